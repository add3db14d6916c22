"""What the benchmark found, and what that says of the targets."""

from typing import ClassVar

from tfx_perf import records, statistics

STOCK, OPTIMIZED, TUNED = "stock", "optimized", "tuned"
KINDS = (STOCK, OPTIMIZED, TUNED)
LINES = ("keras", "tf_keras")


class Cell(records.Record):
    """One training with one Keras line."""

    workload: str
    line: str

    def __str__(self) -> str:
        return f"{self.workload} {self.line}"


class Run(records.Record):
    """One training in a process of its own.

    Attributes:
        mean_step_time_seconds: after warm-up.
        fit_time_seconds: wall time of `fit`, with the trials before it.
        component_time_seconds: wall time of the whole component, from the data to the saved model.
        trial_time_seconds: what of it was trials.
        plan: in words.
        train_loss: of the training.
    """

    mean_step_time_seconds: float
    fit_time_seconds: float
    component_time_seconds: float | None
    trial_time_seconds: float
    plan: str
    train_loss: float


class Regret(records.Record):
    """All plans, measured in turns in one process.

    Attributes:
        speedups: plan, in words, to plain fit's step time over its own.
        chosen: what the trials chose.
        best: the plan with the shortest step.
        regret_ratio: by how much the chosen plan's step is longer than the best one's.
    """

    speedups: dict[str, statistics.Interval]
    chosen: str
    best: str
    regret_ratio: float


class CellResult(records.Record):
    """What was measured in a cell.

    Attributes:
        cell: which one.
        steps: of each training.
        batch_size: examples in a step.
        runs: kind to its trainings; the i-th of all kinds followed each other.
        regret: None for the taxi template.
    """

    cell: Cell
    steps: int
    batch_size: int
    runs: dict[str, tuple[Run, ...]]
    regret: Regret | None = None

    def steady_ratio(self, kind: str) -> float | None:
        """Returns the stock Trainer's mean step time over this kind's, median of the rounds."""
        return self._ratio(kind, "mean_step_time_seconds")

    def whole_ratio(self, kind: str) -> float | None:
        """Returns the same for the whole component, or `fit` where that is not known."""
        return self._ratio(kind, "component_time_seconds") or self._ratio(kind, "fit_time_seconds")

    def pay_back_steps(self, kind: str) -> float | None:
        """Returns after how many steps the trials have paid; None if never."""
        ours, stock = self.runs[kind], self.runs[STOCK]
        saved = [
            one.mean_step_time_seconds - other.mean_step_time_seconds
            for one, other in zip(stock, ours, strict=True)
        ]
        spent = [run.trial_time_seconds for run in ours]
        gain = statistics.median_interval(saved).value
        return statistics.median_interval(spent).value / gain if gain > 0 else None

    def _ratio(self, kind: str, field: str) -> float | None:
        if kind not in self.runs:
            return None
        stock = [getattr(run, field) for run in self.runs[STOCK]]
        ours = [getattr(run, field) for run in self.runs[kind]]
        if None in (*stock, *ours):
            return None
        return statistics.ratio_interval(stock, ours).value


class BenchmarkRecord(records.Record):
    """A whole run.

    Attributes:
        host: the machine, in words.
        versions: package to version.
        rounds: trainings of each kind in a cell.
        cells: what was measured.
        gaps: what was not, with reasons.
        verdicts: the targets, in words.
    """

    SCHEMA: ClassVar[str] = "tfx_perf.training_benchmark/1"

    host: str
    versions: dict[str, str]
    rounds: int
    cells: tuple[CellResult, ...]
    gaps: tuple[str, ...] = ()
    verdicts: tuple[str, ...] = ()
