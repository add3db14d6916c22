"""Where the time of a training step goes, in blessed runs and in this one."""

from collections.abc import Mapping, Sequence

import numpy as np

from tfx_perf.core import formatting
from tfx_perf.gate.decision import GateRecord
from tfx_perf.gate.run import Run
from tfx_perf.report import page, plots

# The time that is in none of the known parts.
_REST, _REST_WITH_INPUT = "compute (the rest)", "compute and input (not separated)"
_INPUT, _HOST = "waiting for input", "host (Keras, callbacks)"
_OTHERS = "waiting for other replicas"  # only with several replicas
# Each part, and the shares that add up to it. Those measured in the training itself come first:
# they are more certain than those that trials measured.
_PARTS = {
    _HOST: ("python_overhead_ratio",),
    _OTHERS: ("communication_share_ratio", "load_imbalance_ratio"),
    _INPUT: ("input_wait_ratio",),
}
_UNKNOWN = {
    _INPUT: "The wait for input is not known for both runs; it is part of the rest.",
    _HOST: "The time in Python is not known for both runs; it is part of the rest.",
}


def mean_seconds(figures: Mapping[str, float]) -> float | None:
    """Returns a run's mean step time, which the parts are shares of; None if unknown."""
    speed, batch_size = figures.get("examples_per_second"), figures.get("global_batch_size")
    return batch_size / speed if speed and batch_size else None


def known_parts(runs: Sequence[Mapping[str, float]]) -> list[str]:
    """Returns the parts known for all runs and recorded by one; one replica waits for no others."""
    return [
        part
        for part, keys in _PARTS.items()
        if any(keys[0] in run for run in runs)
        and all(_share(part, run) is not None for run in runs)
    ]


def divided(
    seconds: float, figures: Mapping[str, float], *, parts: Sequence[str]
) -> dict[str, float]:
    """Returns a time of steps, split into the parts and the rest."""
    return _cut(seconds, {part: seconds * (_share(part, figures) or 0.0) for part in parts})


def _cut(seconds: float, parts: Mapping[str, float]) -> dict[str, float]:
    """Returns the rest and the parts; none is larger than the time that earlier parts leave."""
    parts_left: dict[str, float] = {}
    for part, part_seconds in parts.items():
        parts_left[part] = min(part_seconds, seconds - sum(parts_left.values()))
    rest = _REST if _INPUT in parts else _REST_WITH_INPUT
    return {rest: seconds - sum(parts_left.values()), **parts_left}


def _share(part: str, figures: Mapping[str, float]) -> float | None:
    shares = [figures[key] for key in _PARTS[part] if key in figures]
    if len(shares) == len(_PARTS[part]):
        return sum(shares)
    return 0.0 if part == _OTHERS and figures.get("replica_count") == 1 else None


def add_to(report: page.Report, record: GateRecord) -> None:
    """Adds a figure of both to PerfEvaluator's report, if there are known parts."""
    candidate = record.candidate
    known = [run for run in record.baseline_runs if mean_seconds(run.figures) is not None]
    if mean_seconds(candidate.figures) is None or not known:
        return
    parts = known_parts([run.figures for run in (candidate, *known)])
    if not parts:
        return
    before, now = _median(known, parts), _median([candidate], parts)
    name = "last blessed run" if len(known) == 1 else f"{len(known)} blessed runs, median"
    report.add_figure(
        "Where a step's time goes",
        svg=lambda: plots.stacked_bars(
            {f"{name}\n{_plan_of(known)}": before, f"this run\n{_plan_of([candidate])}": now},
            xlabel="time of a step, mean after warm-up",
            format_size=formatting.format_seconds,
        ),
        note=_note(before, now, parts),
    )


def _note(before: Mapping[str, float], now: Mapping[str, float], parts: Sequence[str]) -> str:
    differences = {part: now[part] - before[part] for part in now}
    ordered = sorted(differences, key=lambda part: abs(differences[part]), reverse=True)
    words = [
        f"{part} {formatting.format_seconds(abs(differences[part]))} "
        f"{'more' if differences[part] > 0 else 'less'}"
        for part in ordered
    ]
    sentences = [
        f"Compared with the blessed runs, a step of this run took: {', '.join(words)}.",
        "These are mean step times, in which rare slow steps count; the median is checked, too.",
    ]
    if _INPUT in parts:
        sentences.append(
            "The wait for input is the share that trials of the plan measured, before the training "
            "or, if the plan was reused, in an earlier run."
        )
    sentences += [reason for part, reason in _UNKNOWN.items() if part not in parts]
    return " ".join(sentences)


def _median(runs: Sequence[Run], parts: Sequence[str]) -> dict[str, float]:
    means = np.asarray([mean_seconds(run.figures) or 0.0 for run in runs])
    medians = {
        part: float(np.median(means * [_share(part, run.figures) or 0.0 for run in runs]))
        for part in parts
    }
    return _cut(float(np.median(means)), medians)


def _plan_of(runs: Sequence[Run]) -> str:
    plans = sorted({run.plan or "plan not recorded" for run in runs})
    return " or ".join(plans) if len(plans) < 3 else f"{len(plans)} plans"
