"""The results of the benchmark."""

from typing import ClassVar

import numpy as np

from tfx_perf.core import records, statistics

STOCK, OPTIMIZED, TUNED = "stock", "optimized", "tuned"
KINDS = (STOCK, OPTIMIZED, TUNED)
LINES = ("keras", "tf_keras")
LONG_STEPS = 20_000
"""Steps of a training that is long enough for trials."""


class Cell(records.Record):
    """One training with one Keras line."""

    workload: str
    line: str

    def __str__(self) -> str:
        return f"{self.workload} {self.line}"


class Run(records.Record):
    """One training in a process of its own.

    Attributes:
        step_time_seconds: of each block; the i-th blocks of all kinds ran one after another.
        start_time_seconds: from the start of its process to the end of the first call, trials
            included; for the taxi template all of `fit` except its steps.
        trial_time_seconds: the part of it that trials took.
        plan: description of the plan.
        train_loss: last loss of the training, which ends when everything is measured.
    """

    step_time_seconds: tuple[float, ...]
    start_time_seconds: float
    trial_time_seconds: float
    plan: str
    train_loss: float

    @property
    def uses_onednn(self) -> bool:
        """Whether the plan uses oneDNN's kernels although TensorFlow would not by default."""
        return "oneDNN" in self.plan

    def seconds_of(self, steps: int) -> float:
        """Returns how long a training of this many steps takes."""
        return self.start_time_seconds + steps * float(np.median(self.step_time_seconds))


class Regret(records.Record):
    """All plans, measured in turns in one process, with the kernels that the training used.

    Attributes:
        speedups: by the plan's description, Keras fit's step time over that of the plan.
        chosen: the plan that the trials chose.
        best: the plan with the shortest step.
        regret_ratio: by how much the chosen plan's step is longer than the best one's.
    """

    speedups: dict[str, statistics.Interval]
    chosen: str
    best: str
    regret_ratio: float


class CellResult(records.Record):
    """The measurements of a cell.

    Attributes:
        cell: which one.
        batch_size: examples in a step.
        runs: the training of each kind.
        regret: None for the taxi template.
    """

    cell: Cell
    batch_size: int
    runs: dict[str, Run]
    regret: Regret | None = None

    def steady_ratio(self, kind: str) -> statistics.Interval | None:
        """Returns the stock Trainer's step time over this kind's, None if it was not measured."""
        if kind not in self.runs:
            return None
        stock, ours = self.runs[STOCK], self.runs[kind]
        return statistics.ratio_interval(stock.step_time_seconds, ours.step_time_seconds)

    def whole_ratio(self, kind: str) -> float:
        """Returns the ratio of the times from process start to the end of `LONG_STEPS` steps."""
        stock, ours = self.runs[STOCK], self.runs[kind]
        return stock.seconds_of(LONG_STEPS) / ours.seconds_of(LONG_STEPS)

    def pay_back_steps(self, kind: str) -> float | None:
        """Returns the number of steps after which the longer start pays off; None if never."""
        stock, ours = self.runs[STOCK], self.runs[kind]
        gain = (stock.seconds_of(LONG_STEPS) - stock.start_time_seconds) - (
            ours.seconds_of(LONG_STEPS) - ours.start_time_seconds
        )
        spent = ours.start_time_seconds - stock.start_time_seconds
        return max(0.0, spent) / gain * LONG_STEPS if gain > 0 else None


class BenchmarkRecord(records.Record):
    """A whole run.

    Attributes:
        host: description of the machine.
        versions: package to version.
        rounds: blocks of each training.
        cells: what was measured.
        gaps: cells that could not be measured, with reasons.
        verdicts: a sentence for each target.
    """

    SCHEMA: ClassVar[str] = "tfx_perf.training_benchmark/2"

    host: str
    versions: dict[str, str]
    rounds: int
    cells: tuple[CellResult, ...]
    gaps: tuple[str, ...] = ()
    verdicts: tuple[str, ...] = ()
