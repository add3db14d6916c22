"""Where the time of a training step goes, in blessed runs and in this one."""

import dataclasses
from collections.abc import Mapping, Sequence

import numpy as np

from tfx_perf import formatting
from tfx_perf.gate.record import GateRecord
from tfx_perf.gate.run import Run
from tfx_perf.report import page, plots

_REST = "compute (the rest)"
# First what was measured in the training itself: of the two it is the more certain.
_SHARES = {
    "host_share_ratio": "host (Keras, callbacks)",
    "input_wait_ratio": "waiting for input",
}
_UNKNOWN = {
    "input_wait_ratio": "What waits for input is not known of both, and is in the rest.",
    "host_share_ratio": "What the host takes is not known of both, and is in the rest.",
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
    known = [run for run in record.baseline_runs if _mean_seconds(run) is not None]
    if _mean_seconds(own) is None or not known:
        return
    shares = [key for key in _SHARES if _all_know(key, [own]) and _all_know(key, known)]
    if not shares:
        return
    before, now = _split(known, shares), _split([own], shares)
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
        note=_note(before, now, shares),
    )


def _note(before: _Split, now: _Split, shares: Sequence[str]) -> str:
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
    if "input_wait_ratio" in shares:
        sentences.append(
            "The wait for input is the share that trials of the plan measured, before the training "
            "or, where the plan is used again, in an earlier run."
        )
    return " ".join([*sentences, *(_UNKNOWN[key] for key in _SHARES if key not in shares)])


def _mean_seconds(run: Run) -> float | None:
    """Returns the mean step time, of which the host's share is one."""
    speed, batch_size = run.figure("examples_per_second"), run.figure("global_batch_size")
    return batch_size / speed if speed and batch_size else None


def _seconds_of(key: str, run: Run) -> float:
    """Returns what a step takes of a share that is known."""
    return (_mean_seconds(run) or 0.0) * (run.figure(key) or 0.0)


def _all_know(key: str, runs: Sequence[Run]) -> bool:
    return all(run.figure(key) is not None for run in runs)


def _split(runs: Sequence[Run], shares: Sequence[str]) -> _Split:
    mean = float(np.median([_mean_seconds(run) for run in runs]))
    parts: dict[str, float] = {}
    for key in shares:
        seconds = float(np.median([_seconds_of(key, run) for run in runs]))
        parts[_SHARES[key]] = min(seconds, mean - sum(parts.values()))
    return _Split(_plan_of(runs), {_REST: mean - sum(parts.values()), **parts})


def _plan_of(runs: Sequence[Run]) -> str:
    plans = sorted({run.plan or "plan not recorded" for run in runs})
    return " or ".join(plans) if len(plans) < 3 else f"{len(plans)} plans"
