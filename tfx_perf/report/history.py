"""The page of `tfx-perf history`."""

import functools
import pathlib
from collections.abc import Sequence

from tfx_perf.core import errors, formatting, storage
from tfx_perf.mlmd import runs as recorded_runs
from tfx_perf.mlmd.runs import RecordedRun
from tfx_perf.report import page, plots

_KINDS = {"blessed": "#1b7f4b", "refused or revoked": "#b3261e", "not judged": "#9aa7b4"}
_KIND_OF = dict(zip((True, False, None), _KINDS, strict=True))


def report_on(
    runs: Sequence[RecordedRun], keys: Sequence[str], *, folder: pathlib.Path
) -> page.Report:
    """Returns each metric's trend by number of workers, and the runs with links from `folder`."""
    counts = [sum(run.blessed is value for run in runs) for value in (True, False)]
    report = page.Report(
        title="History of runs",
        verdict=f"{formatting.counted(len(runs), 'run')}, {counts[0]} blessed, "
        f"{counts[1]} refused or revoked.",
    )
    has_gates = recorded_runs.are_several(runs, "node")
    alike = recorded_runs.alike(runs[::-1])
    for key in keys:
        for who, those in alike.items():
            points = [
                (run.metrics[key], _KIND_OF[run.blessed]) for run in those if key in run.metrics
            ]
            where = f", {who}" if who else ""
            if points:
                report.add_figure(
                    f"Trend of {formatting.label(key)}{where}",
                    svg=functools.partial(plots.trend, points, key=key, kinds=_KINDS),
                )
    report.add_table(
        "Runs, newest first",
        columns=["run", "begun (UTC)", *map(formatting.label, keys), "trained with", "on",
                 "state", "verdict"],
        rows=[
            [
                " ".join(filter(None, (run.pipeline, run.run_id, run.node if has_gates else ""))),
                f"{run.created:%Y-%m-%d %H:%M}",
                *(formatting.format_value(key, run.metrics.get(key)) for key in keys),
                _linked(run.plans.get("training plan", ""), run, "PerfMetrics", folder=folder),
                run.trained_on,
                run.state_in_words,
                _linked(run.note or _KIND_OF[run.blessed], run, "PerfEvaluation", folder=folder),
            ]
            for run in runs
        ],
    )  # fmt: skip
    return report


def _linked(text: str, run: RecordedRun, kind: str, *, folder: pathlib.Path) -> str | page.Link:
    if not text or kind not in run.folders:
        return text
    file = storage.path(run.folders[kind]) / page.FILE_NAME
    try:
        is_there = storage.is_file(file)
    except errors.UserError:  # its store has no driver here
        is_there = False
    return page.Link.on_page(text, str(file), folder=folder) if is_there else text
