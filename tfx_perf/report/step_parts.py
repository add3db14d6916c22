"""Where the time of a training step goes, in blessed runs and in this one."""

import dataclasses
from collections.abc import Mapping, Sequence

import numpy as np

from tfx_perf import formatting
from tfx_perf.gate import step_division
from tfx_perf.gate.decision import GateRecord
from tfx_perf.gate.run import Run
from tfx_perf.report import page, plots

_UNKNOWN = {
    "waiting for input": "What waits for input is not known of both, and is in the rest.",
    "host (Keras, callbacks)": "What the host takes is not known of both, and is in the rest.",
}


@dataclasses.dataclass(frozen=True)
class _Split:
    """The mean step time of some runs: their median, in parts.

    Attributes:
        plan: what the runs trained with.
        seconds: part to its size.
    """

    plan: str
    seconds: Mapping[str, float]


def add_to(report: page.Report, record: GateRecord) -> None:
    """Adds a picture of both, where there is something to split.

    Args:
        report: PerfEvaluator's.
        record: what it is about.
    """
    own = record.candidate
    known = [
        run
        for run in record.baseline_runs
        if step_division.mean_seconds(run.figures) is not None
    ]
    if step_division.mean_seconds(own.figures) is None or not known:
        return
    parts = step_division.known_parts([run.figures for run in (own, *known)])
    if not parts:
        return
    before, now = _split(known, parts), _split([own], parts)
    name = "last blessed run" if len(known) == 1 else f"{len(known)} blessed runs, median"
    report.add_figure(
        "Where a step's time goes",
        svg=plots.stacked_bars(
            {
                f"{name}\n{before.plan}": before.seconds,
                f"this run\n{now.plan}": now.seconds,
            },
            xlabel="time of a step, mean after warm-up",
            format_size=formatting.format_seconds,
        ),
        note=_note(before, now, parts),
    )


def _note(before: _Split, now: _Split, parts: Sequence[str]) -> str:
    differences = {part: now.seconds[part] - before.seconds[part] for part in now.seconds}
    ordered = sorted(differences, key=lambda part: abs(differences[part]), reverse=True)
    words = [
        f"{part} {formatting.format_seconds(abs(differences[part]))} "
        f"{'more' if differences[part] > 0 else 'less'}"
        for part in ordered
    ]
    sentences = [
        f"Beside the blessed runs, a step of this run took: {', '.join(words)}.",
        "These are mean step times, in which rare slow steps count; the median is checked, too.",
    ]
    if "waiting for input" in parts:
        sentences.append(
            "The wait for input is the share that trials of the plan measured, before the training "
            "or, where the plan is used again, in an earlier run."
        )
    return " ".join([*sentences, *(said for part, said in _UNKNOWN.items() if part not in parts)])


def _split(runs: Sequence[Run], parts: Sequence[str]) -> _Split:
    means = [step_division.mean_seconds(run.figures) or 0.0 for run in runs]
    mean = float(np.median(means))
    seconds = {
        part: float(
            np.median(
                [
                    own * step_division.share_of(part, run.figures)
                    for run, own in zip(runs, means, strict=True)
                ]
            )
        )
        for part in parts
    }
    return _Split(_plan_of(runs), step_division.divided(mean, seconds))


def _plan_of(runs: Sequence[Run]) -> str:
    plans = sorted({run.plan or "plan not recorded" for run in runs})
    return " or ".join(plans) if len(plans) < 3 else f"{len(plans)} plans"
