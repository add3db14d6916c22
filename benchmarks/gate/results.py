"""The benchmark's figures, and whether they meet the targets."""

from collections.abc import Sequence
from typing import ClassVar

from benchmarks.gate.histories import Cell
from benchmarks.gate.months import Score
from benchmarks.gate.short_runs import ShortRuns
from tfx_perf.core import records

# Largest share of unchanged runs that any of nine rules may refuse, in each cell of eight runs.
_FALSE_ALARMS = 0.02
# Smallest share of true changes to refuse, by their size; for eight runs with noise of at most 1%.
_POWER = {0.05: 0.80, 0.10: 0.95}
_QUIET, _ENOUGH = 0.01, 8


class CellResult(records.Record):
    """One cell.

    Attributes:
        cell: what was simulated.
        count: histories.
        refused: share that the gate refused, as a regression or as inconclusive.
        regression: share in which it called a metric a regression.
        rivals: share with an alarm by rule of another tool; empty if not computed.
    """

    cell: Cell
    count: int
    refused: float
    regression: float
    rivals: dict[str, float] = {}


class Turns(records.Record):
    """The gate's answers to one case.

    Attributes:
        count: trainings that were judged.
        refused_first: of these, how many a comparison of runs alone refuses.
        right: how many got the right answer in the end.
        ratios: the step's time over the blessed run's, measured in turns.
        seconds: how long measuring took.
    """

    count: int
    refused_first: int
    right: int
    ratios: tuple[float | None, ...]
    seconds: tuple[float, ...]


class GateBenchmark(records.Record):
    """All cells.

    Attributes:
        versions: of the other tools.
        cells: their results.
        real: real trainings by kind: how many were judged and refused, and by which metrics.
        real_note: what the real trainings were and on which machine.
        real_noise: metric to the relative standard deviation of the unchanged real trainings.
        months: the gate's verdicts on simulated months, by world.
        short_runs: the gate's verdicts on short trainings.
        turns: refusals that were measured again in turns, by case.
        judging_seconds: median of each thousand runs, with all earlier runs on record.
    """

    SCHEMA: ClassVar[str] = "tfx_perf.gate_benchmark/1"

    versions: dict[str, str] = {}
    cells: tuple[CellResult, ...] = ()
    real: dict[str, dict[str, int]] = {}
    real_note: str = ""
    real_noise: dict[str, float] = {}
    months: dict[str, Score] = {}
    short_runs: tuple[ShortRuns, ...] = ()
    turns: dict[str, Turns] = {}
    judging_seconds: tuple[float, ...] = ()


def verdicts(results: Sequence[CellResult]) -> list[str]:
    """Returns a sentence for each target."""
    full = [result for result in results if result.cell.runs == _ENOUGH]
    same = [result.refused for result in full if not result.cell.effect]
    words = []
    if same:
        words.append(_sentence("false alarms, worst cell", max(same), "<=", _FALSE_ALARMS))
    for effect, target in _POWER.items():
        quiet = [
            result.refused
            for result in full
            if result.cell.effect == effect and result.cell.run_sd <= _QUIET
        ]
        if quiet:
            words.append(_sentence(f"power at +{effect:.0%}, worst cell", min(quiet), ">=", target))
    return words


def table(results: Sequence[CellResult]) -> str:
    """Returns the cells with eight runs as Markdown, rules as rows."""
    full = [result for result in results if result.cell.runs == _ENOUGH]
    noise = list(dict.fromkeys((r.cell.run_sd, r.cell.autocorrelation) for r in full))
    lines = []
    for effect in dict.fromkeys(result.cell.effect for result in full):
        chosen = {
            (r.cell.run_sd, r.cell.autocorrelation): r for r in full if r.cell.effect == effect
        }
        heads = [f"{sd:.1%}{f', ρ {rho:g}' if rho else ''}" for sd, rho in noise]
        title = "nothing changed" if not effect else f"one metric {effect:.0%} worse"
        lines += [f"| {title} | {' | '.join(heads)} |", f"|{'---|' * (len(heads) + 1)}"]
        rows = {"**tfx-perf: refused**": [chosen[key].refused for key in noise]}
        rows["tfx-perf: called a regression"] = [chosen[key].regression for key in noise]
        for name in dict.fromkeys(name for r in chosen.values() for name in r.rivals):
            rows[name] = [chosen[key].rivals[name] for key in noise]
        for name, shares in rows.items():
            lines.append(f"| {name} | {' | '.join(f'{100 * share:.1f}' for share in shares)} |")
        lines.append("")
    return "\n".join(lines)


def _sentence(what: str, share: float, sign: str, target: float) -> str:
    met = share <= target if sign == "<=" else share >= target
    return f"{'met' if met else 'MISSED'}: {what} {share:.1%} ({sign} {target:.0%})"
