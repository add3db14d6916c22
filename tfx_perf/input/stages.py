"""Where the default's time goes, by timing its pipeline cut after each stage, side by side.

Takes differences of whole runs instead of using a profiler, as in DS-Analyzer (Mohan et al.,
"Analyzing and Mitigating Data Stalls in DNN Training", VLDB 2021), but over one pipeline's stages.
"""

import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from tfx_perf.core import records
from tfx_perf.input import measure
from tfx_perf.input.candidates.source import RecordSource
from tfx_perf.tf_internals import ancestry, datasets

_READ = "read"
_ROUNDS = 5  # more rounds would only refine shares of a few percent
_SHORTEST_TURN = 0.2  # share of the usual turn, for when time is short
_READ_BYTES = 256 * 2**10  # the default buffer size of TFRecordDataset

# Words in the class names of the datasets that begin a stage, in the order of the stages.
_BEGINNINGS = {
    "Interleave": "records",
    "Shuffle": "shuffle",
    "Batch": "batch",
    "Parse": "parse",
    "Map": "rename",
}
_BEFORE_BATCHING = {"records", "shuffle"}

_REMEDIES = {
    "read": "keep the split in RAM (columns), or put it on a faster disk",
    "decompress": "decompress once (columns), or take records from several files at a time and in "
    "blocks (block_reader)",
    "records": "keep the split in RAM (columns), or take records from several files at a time and "
    "in blocks (block_reader)",
    "shuffle": "shuffle row numbers (columns) or whole blocks (block_reader) instead of records",
    "batch": "batch rows in RAM (columns) or blocks of records (block_reader)",
    "parse": "parse once (columns) or big blocks in parallel (block_reader), and leave out the "
    "features that the model does not read",
    "rename": "finish many batches in one call (columns, block_reader)",
    "transform": "this is work that your code adds to the factory's dataset; move one-time work to "
    "the Transform component",
    "pipeline": "keep the split in RAM (columns)",
}


class Stage(records.Record):
    """The time that one stage adds to the stages before it; 0 if a slower one hides it.

    Attributes:
        name: `read`: reading the files' bytes; `decompress`: decompressing and handing over single
            records; `records`: handing over records of plain files; `shuffle`; `batch`; `parse`;
            `rename`: names, label and prefetch; `transform`: stages of the training code after the
            factory; `pipeline`: everything that could not be taken apart.
        share: part of the whole pipeline's time, from 0 to 1.
        examples_per_second: rate of the pipeline up to and including this stage.
        bytes_per_second: bytes of files for `read`, of serialized records for later stages.
    """

    name: str
    seconds_per_example: float
    share: float
    examples_per_second: float
    bytes_per_second: float

    @property
    def remedy(self) -> str:
        """How to make this stage cheaper, as the end of a sentence."""
        return _REMEDIES[self.name]


def measure_stages(
    source: RecordSource, *, seconds: float, train: measure.TrainStep | None = None
) -> tuple[Stage, ...]:
    """Returns the stages of the default's pipeline and of `train`; none if time is too short."""
    deadline = time.monotonic() + seconds
    source = source.replace_options(num_epochs=None)
    if train:
        source = source.replace_options(batch_size=train.batch_size)
    whole = train.default if train else source.default()
    least_seconds = _least_seconds(whole)
    batch_bytes = source.stored_record_bytes * source.options.batch_size
    timed_datasets = {
        name: measure.TimedDataset(
            dataset, _reader(batch_bytes) if name == _READ else measure.take_only
        )
        for name, dataset in prefixes_of(source).items()
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
        max_rounds=_ROUNDS,
        turn_share=turn_share,
    )
    return divide(
        {name: [1 / rate for rate in measure.rates(taken)] for name, taken in samples.items()},
        compressed_bytes=source.stored_record_bytes,
        record_bytes=source.record_bytes,
    )


def divide(
    seconds_up_to: Mapping[str, Sequence[float]], *, compressed_bytes: float, record_bytes: float
) -> tuple[Stage, ...]:
    """Divides a pipeline's time among its stages, given the seconds per example of each round.

    A prefix takes its median share of the whole pipeline's time, at most that of any longer prefix,
    which does all its work. A short prefix may measure slower, because its consumer waits for each
    record, and waking up costs more than the extra work of a longer prefix.
    """
    rounds = np.array(list(seconds_up_to.values()))  # [stage, round]
    measured = np.median(rounds / rounds[-1], axis=1)
    shares_up_to = np.minimum.accumulate(measured[::-1])[::-1]
    shares = np.diff(shares_up_to, prepend=0.0)
    whole_seconds = float(np.median(rounds[-1]))
    stages = []
    for name, share, share_up_to in zip(seconds_up_to, shares, shares_up_to, strict=True):
        examples_per_second = 1 / (float(share_up_to) * whole_seconds)
        example_bytes = compressed_bytes if name == _READ else record_bytes
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


def _least_seconds(dataset: tf.data.Dataset) -> float:
    """Predicts a turn's time on top of `turn_seconds`: that of its first batch and two more."""
    iterator = iter(dataset)
    first, second = (_seconds(iterator) for _ in range(2))
    return first + 2 * second


def _seconds(iterator: Iterator[Any]) -> float:
    started = time.perf_counter()
    next(iterator)
    return time.perf_counter() - started


def prefixes_of(source: RecordSource) -> dict[str, tf.data.Dataset]:
    """Returns the prefixes of an endless source's default, keyed by their last `Stage`.

    TFXIO's own dataset is cut after each stage. Each element takes the work of a batch; all records
    but one are dropped in C++. The first prefix, `read`, yields file names for `_reader`.
    """
    default = source.default()
    names = tf.data.Dataset.from_tensor_slices(list(source.files)).repeat()
    ends = _ends(default)
    if "batch" not in ends:
        return {_READ: names, "pipeline": default}
    if "parse" not in ends and "rename" in ends:  # a plain map parses
        ends["parse"] = ends.pop("rename")
    for stage in _BEFORE_BATCHING & ends.keys():
        ends[stage] = datasets.endless(ends[stage]).shard(source.options.batch_size, 0)
    renamed = {"records": "decompress"} if source.compression else {}
    return {_READ: names, **{renamed.get(stage, stage): end for stage, end in ends.items()}}


def _ends(dataset: tf.data.Dataset) -> dict[str, tf.data.Dataset]:
    ends = {}
    stage = ""
    for node in _nodes(dataset):
        for word, begun in _BEGINNINGS.items():
            # The shuffle of file names, before any records, is part of reading.
            if word in type(node).__name__ and (stage or begun == "records"):
                stage = begun
        if stage:
            ends[stage] = node
    return ends


def _nodes(dataset: tf.data.Dataset) -> list[tf.data.Dataset]:
    nodes = [dataset]
    while len(inputs := ancestry.inputs(nodes[-1])) == 1:
        nodes.append(inputs[0])
    return nodes[::-1]


def _reader(batch_bytes: float) -> measure.Consumer:
    """Returns a consumer of file names that reads `batch_bytes` per batch; no dataset can do so."""

    def consumer(names: tf.data.Dataset) -> measure.Take:
        blocks = _blocks(names)
        missing = 0.0

        def take(count: int) -> None:
            nonlocal missing
            missing += count * batch_bytes
            while missing > 0:
                missing -= len(next(blocks))

        return take

    return consumer


def _blocks(names: tf.data.Dataset) -> Iterator[bytes]:
    for name in names.as_numpy_iterator():
        with tf.io.gfile.GFile(name.decode(), "rb") as file:
            while block := file.read(_READ_BYTES):
                yield block
