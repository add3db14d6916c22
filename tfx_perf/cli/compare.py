"""`tfx-perf compare`: the differences between two runs, and which of them contribute most."""

import dataclasses
import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import click
from rich import box, markup, table

from tfx_perf.cli import names, terminal
from tfx_perf.config.gate import DEFAULT_RULES
from tfx_perf.core import cache_key, errors, formatting, metrics, storage

if TYPE_CHECKING:
    from tfx_perf.mlmd.runs import RecordedRun

# The parts of a training's wall time, as sums of metrics with a sign; no part holds another.
_TIMES = {
    "before fit": {"setup_time_seconds": 1},
    "trials": {"trial_time_seconds": 1},
    "first step": {"time_to_first_step_seconds": 1, "trial_time_seconds": -1},
}
_BETWEEN = "validation, and all else between steps"
_AFTER_FIRST_STEP = {"fit_time_seconds": 1, "time_to_first_step_seconds": -1}


@click.command("compare")
@click.argument("before", metavar="RUN")
@click.argument("after", metavar="RUN")
@click.option(
    "--source", metavar="SOURCE",
    help="ML Metadata (a SQLite file, mysql://… or postgresql://…), a ledger, or a baseline_uri.",
)  # fmt: skip
@click.option("--pipeline", metavar="NAME", help="Only this pipeline's runs.")
@click.option("--node", metavar="ID", help="Only what this PerfEvaluator has judged.")
@click.option("--json", "as_json", is_flag=True, help="JSON with plain SI units, not tables.")
def command(
    *,
    before: str,
    after: str,
    source: str | None,
    pipeline: str | None,
    node: str | None,
    as_json: bool,
) -> None:
    """Shows what differs in plan, environment and figures, the largest difference first.

    Each RUN is the id of a run in SOURCE, or the beginning of one; or the path of an
    evaluation.json or metrics.json, or of its folder.
    """
    runs = [_find(name, source=source, pipeline=pipeline, node=node) for name in (before, after)]
    compared = compare(*runs)
    if as_json:
        terminal.show_json(_as_json(runs, compared))
    else:
        _show(runs, compared)


@dataclasses.dataclass(frozen=True)
class Difference:
    """A metric, by its key, or a part of the time in two runs; None where a run has none."""

    name: str
    before: float | None
    after: float | None

    @property
    def ratio(self) -> float | None:
        """The second over the first; None if a factor would be meaningless."""
        if self.before is None or self.after is None or self.before * self.after <= 0:
            return None
        return self.after / self.before

    @property
    def seconds(self) -> float:
        """The second less the first."""
        return (self.after or 0.0) - (self.before or 0.0)

    @property
    def better(self) -> bool | None:
        """Whether the second is better; None if neither is, or one is missing."""
        way = metrics.lookup(self.name).direction
        if way is metrics.Direction.NONE or self.before is None or self.after is None:
            return None
        return (self.after > self.before) is (way is metrics.Direction.HIGHER)


@dataclasses.dataclass(frozen=True)
class Comparison:
    """Everything in which two runs differ; comparable ones have the same environment.

    Attributes:
        times: the parts of the wall time of training, largest difference first; empty if one
            of the runs does not have them all.
        figures: metrics that differ: those that the gate checks come first; then the largest
            factor first, and those without a factor last.
    """

    plans: Mapping[str, tuple[str, str]]
    environment: Mapping[str, tuple[str, str]]
    times: tuple[Difference, ...]
    figures: tuple[Difference, ...]
    equal_count: int


def compare(before: "RecordedRun", after: "RecordedRun") -> Comparison:
    """Compares two runs."""
    from tfx_perf.gate import run as run_lib

    pairs = [
        Difference(key, before.metrics.get(key), after.metrics.get(key))
        for key in sorted({*before.metrics, *after.metrics})
    ]
    different = [pair for pair in pairs if pair.before != pair.after]
    return Comparison(
        plans=cache_key.differences(before.plans, after.plans),
        environment=run_lib.differences(before.environment, after.environment),
        times=_times((before.metrics, after.metrics)),
        figures=tuple(sorted(different, key=_weight, reverse=True)),
        equal_count=len(pairs) - len(different),
    )


def _weight(difference: Difference) -> tuple[bool, bool, float]:
    ratio = difference.ratio
    is_gated = difference.name in DEFAULT_RULES
    return is_gated, ratio is not None, abs(math.log(ratio)) if ratio else 0.0


def _times(runs: Sequence[Mapping[str, float]]) -> tuple[Difference, ...]:
    needed = {key for parts in (*_TIMES.values(), _AFTER_FIRST_STEP) for key in parts}
    if not all(needed <= run.keys() for run in runs):
        return ()
    times = [
        {name: _sum(run, terms) for name, terms in _TIMES.items()} | further
        for run, further in zip(runs, _after_first_step(runs), strict=True)
    ]
    parts = [Difference(name, *(time[name] for time in times)) for name in times[0]]
    return tuple(sorted(parts, key=lambda part: abs(part.seconds), reverse=True))


def _after_first_step(runs: Sequence[Mapping[str, float]]) -> list[dict[str, float]]:
    from tfx_perf.report import step_parts

    whole = [_sum(run, _AFTER_FIRST_STEP) for run in runs]
    means = [step_parts.mean_seconds(run) for run in runs]
    if None in means or not all("train_step_count" in run for run in runs):
        return [{"further steps, and what is between them": seconds} for seconds in whole]
    parts = step_parts.known_parts(runs)
    times = []
    for run, seconds, mean in zip(runs, whole, means, strict=True):
        # The steps after those of the first call.
        further = max(0.0, run["train_step_count"] - run.get("steps_per_execution", 1.0))
        in_steps = min(seconds, (mean or 0.0) * further)
        saving = min(seconds - in_steps, run.get("checkpoint_time_seconds", 0.0))
        divided = step_parts.divided(in_steps, run, parts=parts)
        times.append(
            {f"further steps: {part}": time for part, time in divided.items()}
            | {"saving checkpoints": saving, _BETWEEN: seconds - in_steps - saving}
        )
    return times


def _sum(figures: Mapping[str, float], terms: Mapping[str, int]) -> float:
    return sum(sign * figures[key] for key, sign in terms.items())


def _find(
    name: str, *, source: str | None, pipeline: str | None, node: str | None
) -> "RecordedRun":
    from tfx_perf.gate import history

    if name and storage.exists(name):
        return history.read_artifact(name)
    if source is None:
        raise errors.UserError(
            "Expected the path of an evaluation.json or metrics.json, or a run's id with --source."
            f" Received: run={name}, which is not a path."
        )
    return names.pick_run(name, history.read(source, pipeline=pipeline), node=node)


def _as_json(runs: "Sequence[RecordedRun]", diffs: Comparison) -> dict[str, Any]:
    document = dataclasses.asdict(diffs)
    for key in ("figures", "times"):
        for values, difference in zip(document[key], getattr(diffs, key), strict=True):
            values["ratio"] = difference.ratio
    return {"runs": [run.run_id for run in runs], "comparable": not diffs.environment, **document}


def _show(runs: "Sequence[RecordedRun]", compared: Comparison) -> None:
    for heading, run in zip(("before", "after"), runs, strict=True):
        click.echo(f"{heading:<7} {run.run_id}")
    _show_values("Plan", compared.plans)
    _show_values("Environment differs, so not comparable", compared.environment)
    if compared.times:
        rows = terminal.figures_table(
            "Time of training, largest difference first", "", "before", "after", "difference"
        )
        for part in compared.times:
            sign = "-" if part.seconds < 0 else "+"
            shown = (part.before or 0.0, part.after or 0.0, abs(part.seconds))
            before, after, difference = map(formatting.format_seconds, shown)
            rows.add_row(part.name, before, after, sign + difference)
        terminal.show(rows)
    if compared.figures:
        rows = terminal.figures_table(
            "Figures, those of the gate first", "", "before", "after", "change"
        )
        for changed in compared.figures:
            rows.add_row(*_row(changed))
        terminal.show(rows)
    equal = "figure is" if compared.equal_count == 1 else "figures are"
    click.echo(f"{compared.equal_count} further {equal} equal.")


def _show_values(title: str, values: Mapping[str, tuple[str, str]]) -> None:
    if values:
        rows = table.Table("", "before", "after", title=title, box=box.SIMPLE_HEAD,
                           title_justify="left")  # fmt: skip
        for name, pair in values.items():
            rows.add_row(*map(markup.escape, (name, *pair)))
        terminal.show(rows)


def _row(difference: Difference) -> tuple[str, ...]:
    key = difference.name
    shown = (formatting.format_value(key, value) for value in (difference.before, difference.after))
    change = formatting.MISSING
    if difference.ratio is not None:
        change = f"{formatting.signed_percent(difference.ratio - 1)}%"
    if difference.better is not None:
        change = f"[{'green' if difference.better else 'red'}]{change}[/]"
    return markup.escape(formatting.label(key)), *shown, change
