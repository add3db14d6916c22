"""Whether the input holds up training, and what there is to gain."""

import math
import time
from collections.abc import Callable, Mapping, Sequence
from typing import ClassVar, Literal

import tensorflow as tf

from tfx_perf.core import records, statistics
from tfx_perf.input import measure
from tfx_perf.input.candidates.source import RecordSource
from tfx_perf.input.stages import Stage, measure_stages

_FED_RATIO = 1.03  # a free input may be at most this many times as fast if training is fed
_RATES_SHARE = 0.6  # share of the time for the rates; the stages get the rest

_PIPELINE, _TRAIN, _TOGETHER = "pipeline", "train", "together"
_TURNS = 3

Bound = Literal["input", "compute", "contention", "unknown"]


class Diagnosis(records.Record):
    """Three rates of the default, and where the input's time goes.

    Attributes:
        pipeline_examples_per_second: the pipeline alone, as the training code builds it.
        train_examples_per_second: the training step alone, on one batch from memory; None without
            training code.
        together_examples_per_second: the step fed by the pipeline; None without training code.
        headroom_ratio: the step alone over both together, paired: how many times as fast training
            would be if its input cost nothing. No pipeline can bring more.
        bound: what holds up training. `compute`: its input costs next to nothing. `input`: the
            pipeline alone is slower than the step alone. `contention`: each alone is fast enough,
            but not both at once, because they take turns or share the CPU. `unknown`: noise allows
            more than one of these, or there is no training code.
        round_time_seconds: time to measure all three once; 0 in plans of earlier versions.
        stages: stages of the pipeline, starting with the files; empty if there was no time.
    """

    REMOVED: ClassVar[frozenset[str]] = frozenset({"autotune"})

    pipeline_examples_per_second: statistics.Interval
    train_examples_per_second: statistics.Interval | None = None
    together_examples_per_second: statistics.Interval | None = None
    headroom_ratio: statistics.Interval | None = None
    bound: Bound = "unknown"
    rounds: int
    round_time_seconds: float = 0.0
    stages: tuple[Stage, ...] = ()

    @property
    def is_fed(self) -> bool:
        """Whether the default feeds training at full speed, and should stay."""
        return self.bound == "compute"

    @property
    def bottleneck(self) -> Stage | None:
        """The stage that takes most of the input's time; None if the stages are unknown."""
        return max(self.stages, key=lambda stage: stage.seconds_per_example, default=None)

    @property
    def user_share(self) -> float:
        """Share of the input's time spent in stages that the training code adds; 0 if unknown."""
        return sum(stage.share for stage in self.stages if stage.name == "transform")

    @property
    def verdict(self) -> str:
        """The findings, in plain sentences with numbers."""
        return " ".join(filter(None, (self._rates(), self.bottleneck_sentence)))

    def _rates(self) -> str:
        pipeline = _examples(self.pipeline_examples_per_second)
        alone, both = self.train_examples_per_second, self.together_examples_per_second
        gain = self.headroom_ratio
        if not (alone and both and gain):
            return f"The default input pipeline alone yields {pipeline} examples/s."
        train, together = _examples(alone), _examples(both)
        free = f"training would be {gain.value:.3g} times as fast if input cost nothing"
        if self.bound == "compute":
            return (
                f"Compute-bound: the step alone trains {train} examples/s, fed by the default "
                f"{together}; input at no cost would bring {max(gain.high - 1, 0):.1%} at most "
                f"({gain.name}), so the default stays."
            )
        if self.bound == "input":
            return (
                f"Input-bound: the step alone trains {train} examples/s, fed by the default "
                f"{together}; {free}."
            )
        if self.bound == "contention":
            return (
                f"Contention: the step alone trains {train} examples/s and the pipeline alone "
                f"yields {pipeline}, but together they reach {together}; {free}. An input that "
                "takes less CPU time leaves more to the step."
            )
        return (
            f"Not clear after {self.rounds} round{'s' * (self.rounds != 1)}: the step alone trains "
            f"{train} examples/s, the pipeline alone yields {pipeline}, together they reach "
            f"{together}; {free} ({gain.spread})."
        )

    @property
    def bottleneck_sentence(self) -> str:
        """Where most of the input's time goes, and the remedy; empty if unknown."""
        worst = self.bottleneck
        if not worst or self.is_fed:
            return ""
        return (
            f"Most of the input's time goes into {worst.name} ({worst.share:.0%}): {worst.remedy}."
        )


def _examples(rate: statistics.Interval) -> str:
    value = float(f"{rate.value:.3g}")
    return f"{value:,.0f}" if value >= 100 else f"{value:g}"


def alone(
    dataset: tf.data.Dataset, *, batch_size: int, turn_share: float
) -> tuple[Diagnosis, measure.Sample]:
    """Returns the rate of the training's dataset with nothing else running, and its one turn."""
    began = time.monotonic()
    timed = {_PIPELINE: measure.TimedDataset(dataset)}
    samples = measure.measure(
        timed, batch_size=batch_size, deadline_seconds=began, max_rounds=1, turn_share=turn_share
    )
    whole_seconds = time.monotonic() - began + measure.turn_seconds(1 - turn_share)
    # A turn of the step takes as long, and a turn of both at least as long.
    return judge(samples, seconds=_TURNS * whole_seconds), samples[_PIPELINE][0]


def diagnose(
    source: RecordSource,
    dataset: tf.data.Dataset,
    *,
    train: measure.TrainStep | None,
    seconds: float,
    is_worth_it: Callable[[Diagnosis], bool] = lambda rates: True,
    details_worth: Callable[[Diagnosis], float] = lambda rates: math.inf,
) -> Diagnosis:
    """Returns how fast the default and training are, alone and together, and where time goes.

    `dataset` is the endless dataset that training reads with the default. Measuring takes about
    `seconds` of wall time. Without `train`, which must be prepared, only the pipeline is measured.
    Measuring ends once `is_worth_it` denies it; `details_worth` returns the seconds for the stages.
    """
    deadline = time.monotonic() + seconds
    timed_datasets = {_PIPELINE: measure.TimedDataset(dataset)}
    if train:
        batch_size = train.batch_size
        timed_datasets |= {
            _TRAIN: measure.TimedDataset(train.repeated_batch(), train.consume),
            _TOGETHER: measure.TimedDataset(dataset, train.consume),
        }
    else:
        batch_size = source.options.batch_size
    began = time.monotonic()

    def decided(samples: measure.Samples) -> bool:
        rates = judge(samples, seconds=time.monotonic() - began)
        if train is None:
            return rates.rounds >= measure.MIN_ROUNDS
        return rates.bound != "unknown" or not is_worth_it(rates)

    samples = measure.measure(
        timed_datasets,
        batch_size=batch_size,
        deadline_seconds=deadline - (1 - _RATES_SHARE) * seconds,
        decided=decided,
    )
    diagnosis = judge(samples, seconds=time.monotonic() - began)
    deadline = min(deadline, time.monotonic() + details_worth(diagnosis))
    left_seconds = deadline - time.monotonic()
    turn_seconds = diagnosis.round_time_seconds / len(timed_datasets)
    if left_seconds <= turn_seconds:  # part of a turn only fills buffers
        return diagnosis
    stages = measure_stages(source, seconds=left_seconds, train=train)
    return diagnosis.model_copy(update={"stages": stages})


def judge(samples: measure.Samples, *, seconds: float = 0.0) -> Diagnosis:
    """Returns the diagnosis from samples of `pipeline` and, if trained, `train` and `together`.

    `seconds` is how long measuring them took.
    """
    rates = {name: measure.rates(taken) for name, taken in samples.items()}
    intervals = {name: statistics.median_interval(taken) for name, taken in rates.items()}
    headroom = None
    if _TRAIN in rates:
        headroom = statistics.ratio_interval(rates[_TRAIN], rates[_TOGETHER])
    return Diagnosis(
        pipeline_examples_per_second=intervals[_PIPELINE],
        train_examples_per_second=intervals.get(_TRAIN),
        together_examples_per_second=intervals.get(_TOGETHER),
        headroom_ratio=headroom,
        bound=_bound(rates, headroom),
        rounds=len(rates[_PIPELINE]),
        round_time_seconds=seconds / len(rates[_PIPELINE]),
    )


def _bound(rates: Mapping[str, Sequence[float]], headroom: statistics.Interval | None) -> Bound:
    """Returns what holds up training, if the intervals leave no doubt."""
    if headroom is None:
        return "unknown"
    few = len(rates[_TRAIN]) < measure.MIN_ROUNDS
    if few and headroom.low < measure.BEYOND_DOUBT:
        return "unknown"
    if headroom.high <= _FED_RATIO:
        return "compute"
    if headroom.low <= _FED_RATIO:
        return "unknown"
    supply = statistics.ratio_interval(rates[_PIPELINE], rates[_TRAIN])
    return "input" if supply.high < 1 else "contention"
