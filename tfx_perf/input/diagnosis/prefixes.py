"""The default's pipeline up to each of its stages, each an endless dataset of its own."""

from collections.abc import Iterator

import tensorflow as tf

from tfx_perf.input import source as source_lib
from tfx_perf.input.timing import measure
from tfx_perf.tf_internals import ancestry

READ = "read"

_READ_BYTES = 256 * 2**10  # the buffer of TFRecordDataset

# The kind of node that a stage begins with, in the order of the stages.
_BEGINNINGS = {
    "Interleave": "records",
    "Shuffle": "shuffle",
    "Batch": "batch",
    "Parse": "parse",
    "Map": "rename",
}
_BEFORE_BATCHING = {"records", "shuffle"}


def of_default(source: source_lib.RecordSource) -> dict[str, tf.data.Dataset]:
    """Returns the prefixes of an endless source's default by the name of their last stage.

    The default's own dataset is cut after each stage, so that what is measured is what TFXIO
    builds for this kind of data. An element of each prefix takes the work of a batch: of what is
    not yet batched, all but one record of a batch are thrown away, in C++, where a record
    costs no call. The first, `read`, yields file names; a `reader` must consume it.

    See `Stage.name` for the names.
    """
    default = source.default()
    names = tf.data.Dataset.from_tensor_slices(list(source.files)).repeat()
    ends = _ends(default)
    if "batch" not in ends:
        return {READ: names, "pipeline": default}
    if "parse" not in ends and "rename" in ends:  # parsed by a map like any other
        ends["parse"] = ends.pop("rename")
    for stage in _BEFORE_BATCHING & ends.keys():
        ends[stage] = _endless(ends[stage]).shard(source.options.batch_size, 0)
    renamed = {"records": "decompress"} if source.compression else {}
    return {READ: names, **{renamed.get(stage, stage): end for stage, end in ends.items()}}


def _ends(dataset: tf.data.Dataset) -> dict[str, tf.data.Dataset]:
    """Returns the last node of each stage that `dataset` is built from."""
    ends = {}
    stage = ""
    for node in _nodes(dataset):
        for word, begun in _BEGINNINGS.items():
            # Before the records the names of the files are shuffled; that is part of reading.
            if word in type(node).__name__ and (stage or begun == "records"):
                stage = begun
        if stage:
            ends[stage] = node
    return ends


def _nodes(dataset: tf.data.Dataset) -> list[tf.data.Dataset]:
    """Returns the datasets that `dataset` is built from, the source first and itself last."""
    nodes = [dataset]
    while len(inputs := ancestry.inputs(nodes[-1])) == 1:
        nodes.append(inputs[0])
    return nodes[::-1]


def _endless(dataset: tf.data.Dataset) -> tf.data.Dataset:
    endless = int(dataset.cardinality()) == tf.data.INFINITE_CARDINALITY
    return dataset if endless else dataset.repeat()


def reader(batch_bytes: float) -> measure.Consumer:
    """Returns a consumer of file names that reads `batch_bytes` of the files for a batch.

    No dataset could do that: those of records decompress or expect records of one length.
    """

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
