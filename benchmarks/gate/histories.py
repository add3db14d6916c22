"""Simulated runs: each has a level, which drifts and scatters, and steps around this level."""

import dataclasses
import itertools
import math
from collections.abc import Iterator

import numpy as np

from tfx_perf.core import records

METRICS = 9
STEPS = 200
_STEP_SD = 0.05
_OUTLIER_SHARE, _OUTLIER_FACTOR = 0.01, 3.0

# The variance of a run's median step that comes from the scatter of its steps.
_MEDIAN_VARIANCE = math.pi / 2 * _STEP_SD**2 / STEPS

# Run-to-run standard deviation and autocorrelation of the run levels.
_NOISE = (
    (0.0, 0.0), (0.005, 0.0), (0.005, 0.3), (0.01, 0.0), (0.01, 0.5), (0.02, 0.0), (0.02, 0.5),
)  # fmt: skip
_RUNS = (1, 3, 8)
_EFFECTS = (0.0, 0.03, 0.05, 0.10)


class Cell(records.Record):
    """The parameters of a simulation.

    Attributes:
        run_sd: relative standard deviation of a run's figure, its median step; 0: only the
            scatter of the steps themselves.
        autocorrelation: of the levels of successive runs.
        runs: blessed runs before the one that is judged.
        effect: true relative change for the worse of one of the nine metrics.
    """

    run_sd: float
    autocorrelation: float
    runs: int
    effect: float


@dataclasses.dataclass(frozen=True)
class Histories:
    """Many histories of one cell.

    Attributes:
        steps: step times, [history, metric, run, step]; the last run is the one to judge.
    """

    steps: np.ndarray

    @property
    def levels(self) -> np.ndarray:
        """The figure of each run, its median step: [history, metric, run]."""
        return np.median(self.steps, axis=-1)


def cells() -> Iterator[Cell]:
    """Yields the grid."""
    for (run_sd, autocorrelation), runs, effect in itertools.product(_NOISE, _RUNS, _EFFECTS):
        yield Cell(run_sd=run_sd, autocorrelation=autocorrelation, runs=runs, effect=effect)


def simulate(cell: Cell, *, count: int, seed: int) -> Histories:
    """Draws histories.

    The levels are a stationary first-order autoregression around 1; steps scatter by 5% around
    their run's level, and 1% of them take three times as long.

    Args:
        cell: what to draw.
        count: how many histories.
        seed: of the generator.
    """
    generator = np.random.default_rng(seed)
    levels = generator.normal(size=(count, METRICS, cell.runs + 1))
    rho = cell.autocorrelation
    for run in range(1, cell.runs + 1):
        levels[..., run] = rho * levels[..., run - 1] + np.sqrt(1 - rho**2) * levels[..., run]
    levels = 1 + math.sqrt(max(0.0, cell.run_sd**2 - _MEDIAN_VARIANCE)) * levels
    levels[:, 0, -1] *= 1 + cell.effect
    steps = scattered(generator, (*levels.shape, STEPS), dtype=np.float32)
    return Histories(steps=levels[..., np.newaxis] * steps)


def scattered(
    generator: np.random.Generator, shape: tuple[int, ...], *, dtype: type[np.floating]
) -> np.ndarray:
    """Returns steps that scatter by 5% around 1, of which 1% take three times as long.

    Args:
        generator: draws them.
        shape: of the result.
        dtype: of the result.
    """
    steps = 1 + _STEP_SD * generator.standard_normal(shape, dtype=dtype)
    steps[generator.random(shape, dtype=dtype) < _OUTLIER_SHARE] *= _OUTLIER_FACTOR
    return steps
