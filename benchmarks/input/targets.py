"""The targets that InputTuner must reach, judged by what was measured."""

import dataclasses
import statistics
from collections.abc import Callable, Sequence

from benchmarks.input import results
from benchmarks.input.workloads import WORKLOADS


@dataclasses.dataclass(frozen=True)
class Target:
    """The minimum ratio of two pipelines' speeds.

    Attributes:
        title: what it is about.
        numerator: the pipeline that must be fast.
        denominator: the pipeline that it is compared with.
        least: the smallest ratio that meets the target.
        over_cells: `median` where the issue asks for a typical speedup, `min` where it
            promises something for every cell.
        concerns: whether a cell counts.
    """

    title: str
    numerator: str
    denominator: str
    least: float
    over_cells: Callable[[Sequence[float]], float]
    concerns: Callable[[results.Cell], bool]

    def judge(self, found: Sequence[results.CellResult]) -> results.Verdict:
        """Returns the verdict, with the spread of the cells."""
        ratios = {
            str(result.cell): ratio.value
            for result in found
            if self.concerns(result.cell)
            and (ratio := result.ratio(self.numerator, self.denominator))
        }
        how = "median" if self.over_cells is statistics.median else "every cell"
        target = f"{self.title}, {how} >= {self.least:g}"
        if not ratios:
            return results.Verdict(target=target, met=None, evidence="not measured")
        value = self.over_cells(list(ratios.values()))
        reached = sum(ratio >= self.least for ratio in ratios.values())
        worst, best = min(ratios, key=ratios.get), max(ratios, key=ratios.get)
        return results.Verdict(
            target=target,
            met=value >= self.least,
            evidence=f"{value:.3g}; {reached} of {len(ratios)} cells reach it, "
            f"from {ratios[worst]:.3g} ({worst}) to {ratios[best]:.3g} ({best})",
        )


def verdicts(found: Sequence[results.CellResult]) -> tuple[results.Verdict, ...]:
    """Returns one verdict for each target."""
    return tuple(target.judge(found) for target in TARGETS)


def _taxi_alone(cell: results.Cell) -> bool:
    return cell.workload == "taxi" and cell.consumer == results.NO_MODEL


def _tabular_alone(cell: results.Cell) -> bool:
    # Without a model: with one, the ratio says more about the model than about the input.
    return WORKLOADS[cell.workload].tabular and cell.consumer == results.NO_MODEL


TARGETS = (
    Target(
        title="taxi: tuned / default",
        numerator=results.TUNED,
        denominator=results.DEFAULT,
        least=25,
        over_cells=statistics.median,
        concerns=_taxi_alone,
    ),
    Target(
        title="taxi: block reader / default",
        numerator=results.BLOCK_READER,
        denominator=results.DEFAULT,
        least=8,
        over_cells=statistics.median,
        concerns=_taxi_alone,
    ),
    Target(
        title="tabular: tuned / guide",
        numerator=results.TUNED,
        denominator=results.GUIDE,
        least=3,
        over_cells=statistics.median,
        concerns=_tabular_alone,
    ),
    Target(
        title="everything: tuned / default",
        numerator=results.TUNED,
        denominator=results.DEFAULT,
        least=0.97,
        over_cells=min,
        concerns=lambda cell: True,
    ),
    Target(
        title="small model: fed ratio",
        numerator=results.TUNED,
        denominator=results.REPEATED,
        least=0.9,
        over_cells=min,
        concerns=lambda cell: cell.consumer == results.SMALL,
    ),
)
