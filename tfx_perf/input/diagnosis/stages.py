"""Where the default's time goes: prefixes of its pipeline, measured side by side.

Differences of whole runs instead of a profiler, as DS-Analyzer does it (Mohan et al., "Analyzing
and Mitigating Data Stalls in DNN Training", VLDB 2021), here over the stages of one pipeline.
"""

import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from tfx_perf.input import source as source_lib
from tfx_perf.input import train_step as train_step_lib
from tfx_perf.input.diagnosis import prefixes
from tfx_perf.input.diagnosis.diagnosis import Stage
from tfx_perf.input.timing import measure

_ROUNDS = 5  # more would only sharpen shares of a few per cent
_SHORTEST_TURN = 0.2  # of the usual length, where there is little time


def measure_stages(
    source: source_lib.RecordSource,
    *,
    seconds: float,
    train: train_step_lib.TrainStep | None = None,
) -> tuple[Stage, ...]:
    """Returns the stages of the default's pipeline, from the files on.

    See `divide` for what a stage is charged with.

    Args:
        source: the data; it is read for ever, whatever its `num_epochs`.
        seconds: wall time of the measurement. With little of it, turns are shorter. If, going by
            the first two batches, not even one round of these fits in, none is begun and there
            are no stages.
        train: the training, whose own code after the factory is then the last stage.
    """
    deadline = time.monotonic() + seconds
    source = source.replace_options(num_epochs=None)
    if train:
        source = source.replace_options(batch_size=train.batch_size)
    whole = train.dataset(source.default_factory) if train else source.default()
    least_seconds = _least_seconds(whole)
    timed_datasets = {
        name: measure.TimedDataset(
            dataset, _reader(source) if name == prefixes.READ else measure.take_only
        )
        for name, dataset in prefixes.of_default(source).items()
    }
    if train:
        timed_datasets["transform"] = measure.TimedDataset(whole)
    left_seconds = (deadline - time.monotonic()) / len(timed_datasets) - least_seconds
    turn_share = min(1.0, left_seconds / measure.turn_seconds())
    if turn_share < _SHORTEST_TURN:
        return ()
    samples = measure.measure(
        timed_datasets,
        batch_size=source.options.batch_size,
        deadline_seconds=deadline,
        decided=lambda samples: len(samples[prefixes.READ]) >= _ROUNDS,
        turn_share=turn_share,
    )
    return divide(
        {name: [1 / rate for rate in measure.rates(own)] for name, own in samples.items()},
        compressed_bytes=source.stored_record_bytes,
        record_bytes=source.record_bytes,
    )


def divide(
    seconds_up_to: Mapping[str, Sequence[float]], *, compressed_bytes: float, record_bytes: float
) -> tuple[Stage, ...]:
    """Divides the time of a pipeline over its stages.

    A prefix takes the median over the rounds of its share in the whole pipeline's time, and no
    more than any longer prefix, which does all its work and more. So it can be measured: with
    nothing else to do, the consumer waits for each record, and waking up costs more than the
    work that a longer prefix does meanwhile.

    Args:
        seconds_up_to: seconds per example of the pipeline up to and with each stage, in order,
            one figure a round.
        compressed_bytes: mean size of an example in its file.
        record_bytes: mean size of a serialised example.
    """
    rounds = np.array(list(seconds_up_to.values()))  # [stage, round]
    measured = np.median(rounds / rounds[-1], axis=1)
    shares_up_to = np.minimum.accumulate(measured[::-1])[::-1]
    shares = np.diff(shares_up_to, prepend=0.0)
    whole_seconds = float(np.median(rounds[-1]))
    stages = []
    for name, share, share_up_to in zip(seconds_up_to, shares, shares_up_to, strict=True):
        examples_per_second = 1 / (float(share_up_to) * whole_seconds)
        example_bytes = compressed_bytes if name == prefixes.READ else record_bytes
        stages.append(
            Stage(
                name=name,
                seconds_per_example=float(share) * whole_seconds,
                share=float(share),
                examples_per_second=examples_per_second,
                bytes_per_second=examples_per_second * example_bytes,
            )
        )
    return tuple(stages)


def _reader(source: source_lib.RecordSource) -> measure.Consumer:
    return prefixes.reader(source.stored_record_bytes * source.options.batch_size)


def _least_seconds(dataset: tf.data.Dataset) -> float:
    """Predicts what a turn takes beside `measure.turn_seconds` from the first two batches.

    The first fills buffers, as it does in every turn; the warm-up and the block each take at
    least one more.
    """
    iterator = iter(dataset)
    first, second = (_seconds(iterator) for _ in range(2))
    return first + 2 * second


def _seconds(iterator: Iterator[Any]) -> float:
    started = time.perf_counter()
    next(iterator)
    return time.perf_counter() - started
