"""Measures what a `Diagnosis` says."""

import math
import time
from collections.abc import Callable, Mapping, Sequence

import tensorflow as tf

from tfx_perf import statistics
from tfx_perf.input import source as source_lib
from tfx_perf.input import train_step as train_step_lib
from tfx_perf.input.diagnosis import diagnosis as diagnosis_lib
from tfx_perf.input.diagnosis import stages
from tfx_perf.input.timing import measure

_FED_RATIO = 1.03  # what a free input may bring at most if training counts as fed
_RATES_SHARE = 0.6  # of the time; the stages get what is left

_PIPELINE, _TRAIN, _TOGETHER = "pipeline", "train", "together"
_TURNS = 3


def diagnose(
    source: source_lib.RecordSource,
    *,
    train: train_step_lib.TrainStep | None,
    seconds: float,
    most_seconds: float = math.inf,
    is_worth_it: Callable[[diagnosis_lib.Diagnosis], bool] = lambda rates: True,
    details_worth: Callable[[diagnosis_lib.Diagnosis], float] = lambda rates: math.inf,
) -> diagnosis_lib.Diagnosis:
    """Returns how fast the default and training are, alone and together, and where time goes.

    First comes the pipeline alone: where all that it takes is not worth a search, the step is not
    even traced. Then the three rates are taken side by side, one round at the least if that ends
    within `most_seconds`; then the stages are looked at in the time that is left.

    Args:
        source: the data; it is read for ever, whatever its `num_epochs`.
        train: the training step; None if there is no training code, and then only the
            pipeline is measured.
        seconds: wall time of it all.
        most_seconds: after which no measurement may end that has a choice.
        is_worth_it: given the rates, or that of the pipeline, says whether anything depends on
            them; if not, they are not measured more exactly.
        details_worth: given the rates, returns what the stages may take of it.

    Raises:
        StepFailedError: the training step raised something.
    """
    began = time.monotonic()
    deadline = began + seconds
    source = source.replace_options(num_epochs=None)
    if train:
        dataset = train.dataset(source.default_factory)
        batch_size = train.batch_size
        alone = _alone(dataset, batch_size=batch_size)
        if not is_worth_it(alone):
            return alone
        train.prepare()
        if time.monotonic() + alone.round_time_seconds > began + most_seconds:
            return alone
        timed_datasets = {
            _PIPELINE: measure.TimedDataset(dataset),
            _TRAIN: measure.TimedDataset(train.repeated_batch(), train.consume),
            _TOGETHER: measure.TimedDataset(dataset, train.consume),
        }
    else:
        dataset = source.default()
        batch_size = source.options.batch_size
        timed_datasets = {_PIPELINE: measure.TimedDataset(dataset)}
    began = time.monotonic()

    def judged(samples: measure.Samples) -> diagnosis_lib.Diagnosis:
        rates = judge(samples)
        round_seconds = (time.monotonic() - began) / rates.rounds
        return rates.model_copy(update={"round_time_seconds": round_seconds})

    def decided(samples: measure.Samples) -> bool:
        rates = judged(samples)
        return train is None or rates.bound != "unknown" or not is_worth_it(rates)

    samples = measure.measure(
        timed_datasets,
        batch_size=batch_size,
        deadline_seconds=deadline - (1 - _RATES_SHARE) * seconds,
        decided=decided,
        min_rounds=1 if train else measure.MIN_ROUNDS,  # of which `judge` takes fewer if it may
    )
    diagnosis = judged(samples)
    deadline = min(deadline, time.monotonic() + details_worth(diagnosis))
    left_seconds = deadline - time.monotonic()
    turn_seconds = diagnosis.round_time_seconds / len(timed_datasets)
    if left_seconds <= turn_seconds:  # of which filling the buffers takes a part
        return diagnosis
    found = stages.measure_stages(source, seconds=left_seconds, train=train)
    return diagnosis.model_copy(update={"stages": found})


def _alone(dataset: tf.data.Dataset, *, batch_size: int) -> diagnosis_lib.Diagnosis:
    """Returns the rate of the pipeline, as one turn gives it."""
    began = time.monotonic()
    timed = {_PIPELINE: measure.TimedDataset(dataset)}
    samples = measure.measure(timed, batch_size=batch_size, deadline_seconds=began, max_rounds=1)
    turn_seconds = time.monotonic() - began
    # That of the step takes as long, and that of both at least.
    return judge(samples).model_copy(update={"round_time_seconds": _TURNS * turn_seconds})


def judge(samples: measure.Samples) -> diagnosis_lib.Diagnosis:
    """Returns what samples say.

    Args:
        samples: of `pipeline`, and with training code of `train` and `together`.
    """
    rates = {name: measure.rates(own) for name, own in samples.items()}
    intervals = {name: statistics.median_interval(own) for name, own in rates.items()}
    return diagnosis_lib.Diagnosis(
        pipeline_examples_per_second=intervals[_PIPELINE],
        train_examples_per_second=intervals.get(_TRAIN),
        together_examples_per_second=intervals.get(_TOGETHER),
        headroom_ratio=(
            statistics.ratio_interval(rates[_TRAIN], rates[_TOGETHER]) if _TRAIN in rates else None
        ),
        bound=_bound(rates),
        rounds=len(rates[_PIPELINE]),
    )


def _bound(rates: Mapping[str, Sequence[float]]) -> diagnosis_lib.Bound:
    """Returns what holds up training, if the intervals leave no doubt."""
    if _TRAIN not in rates:
        return "unknown"
    headroom = statistics.ratio_interval(rates[_TRAIN], rates[_TOGETHER])
    few = len(rates[_TRAIN]) < measure.MIN_ROUNDS
    if few and headroom.low < measure.BEYOND_DOUBT:
        return "unknown"
    if headroom.high <= _FED_RATIO:
        return "compute"
    if headroom.low <= _FED_RATIO:
        return "unknown"
    supply = statistics.ratio_interval(rates[_PIPELINE], rates[_TRAIN])
    return "input" if supply.surely_below(1) else "contention"
