"""The user's code around the factory: what it does with the dataset, and what it then sees."""

import collections
import dataclasses
import pathlib
import tempfile
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import tensorflow as tf
from tfx_bsl.tfxio import dataset_options

from tfx_perf.input import equivalence

from .cases import Call

_ENDLESS_EPOCHS = 2.5  # of endless data are read
_FIRST, _SECOND = "first", "second"


@dataclasses.dataclass(frozen=True)
class Batch:
    parts: tuple[Any, ...]  # dtype, shape and bytes of each tensor that it is made of
    rows: tuple[bytes, ...]  # each example


@dataclasses.dataclass
class Reading:
    spec: Any = None  # the dataset's element spec
    cardinality: int | None = None  # of the dataset; None where it is not known outside of a graph
    # batches, by what they were read from
    streams: dict[str, list[Batch]] = dataclasses.field(default_factory=dict)
    error: tuple[str, str] | None = None  # class and message of what was raised


@dataclasses.dataclass(frozen=True)
class Reader:
    """Reads what a factory makes, as the user's code of a call does."""

    factory: Callable[[Any, Any, Any], tf.data.Dataset]  # `(patterns, options, schema) -> dataset`
    schema: Any  # of the examples
    paths: list[str]  # the patterns
    call: Call  # the options, and what is done with the dataset
    label: str  # name of the label, if the call has one
    epoch_rows: int  # how many examples an epoch has

    def read(self) -> Reading:
        """Returns all that is seen until the end, or until something is raised."""
        found = Reading()
        try:
            USES[self.call.use](self, found)
        except Exception as error:
            found.error = type(error).__name__, str(error)
        return found

    def dataset(self, paths: Any = None) -> tf.data.Dataset:
        call = self.call
        options = dataset_options.TensorFlowDatasetOptions(
            batch_size=call.batch_size,
            drop_final_batch=call.drop_final_batch,
            num_epochs=call.num_epochs,
            shuffle=call.shuffle,
            shuffle_buffer_size=call.shuffle_buffer_size,
            shuffle_seed=call.shuffle_seed,
            reader_num_threads=call.reader_num_threads,
            label_key=self.label if call.label else None,
        )
        return self.factory(self.paths if paths is None else paths, options, self.schema)

    def noted(self, found: Reading) -> tf.data.Dataset:
        """Calls the factory and notes how the dataset looks from outside."""
        dataset = self.dataset()
        found.spec = dataset.element_spec
        found.cardinality = int(dataset.cardinality())
        return self.bounded(dataset)

    def bounded(self, dataset: tf.data.Dataset) -> tf.data.Dataset:
        """Cuts off what is endless."""
        if not self.call.is_endless:
            return dataset
        return dataset.take(1 + int(_ENDLESS_EPOCHS * self.epoch_rows / self.call.batch_size))

    def batches(self, iterable: Any) -> Iterator[Batch]:
        for batch in iterable:
            yield batch_of(batch)


def batch_of(batch: Any) -> Batch:
    values = tf.nest.flatten(batch)
    parts, columns = [], []
    for value in values:
        for tensor in tf.nest.flatten(value, expand_composites=True):
            array = tensor.numpy()
            parts.append((str(tensor.dtype), np.shape(array), _bytes(array)))
        columns.append(_rows(value))
    if len({len(column) for column in columns}) > 1:
        raise ValueError(f"columns of {[len(column) for column in columns]} rows")
    rows = tuple(repr(row).encode() for row in zip(*columns, strict=True))
    return Batch(tuple(parts), rows)


def _bytes(array: Any) -> Any:
    array = np.asarray(array)
    return tuple(array.ravel().tolist()) if array.dtype == object else array.tobytes()


def _rows(value: Any) -> list[Any]:
    """Returns something hashable for each row, independent of the other rows of the batch."""
    if isinstance(value, tf.SparseTensor):
        rows: list[list[Any]] = [[] for _ in range(int(value.dense_shape[0]))]
        indices, values = value.indices.numpy(), value.values.numpy()
        for place, content in zip(indices, values, strict=True):
            rows[place[0]].append((*place[1:].tolist(), _bytes(content)))
        return rows
    if isinstance(value, tf.RaggedTensor):
        return [_nested(value[number]) for number in range(int(value.nrows()))]
    return [(np.shape(row), _bytes(row)) for row in value.numpy()]


def _nested(value: Any) -> Any:
    if isinstance(value, tf.RaggedTensor):
        return [_nested(value[number]) for number in range(int(value.nrows()))]
    return _bytes(value.numpy())


def _iterate(reader: Reader, found: Reading) -> None:
    found.streams[_FIRST] = read = []
    read.extend(reader.batches(reader.noted(found)))


def _changed(change: Callable[[Reader, tf.data.Dataset], Any]) -> Any:
    def use(reader: Reader, found: Reading) -> None:
        found.streams[_FIRST] = list(reader.batches(change(reader, reader.noted(found))))

    return use


def _map(reader: Reader, dataset: tf.data.Dataset) -> tf.data.Dataset:
    @tf.autograph.experimental.do_not_convert
    def same(*batch: Any) -> Any:
        return tf.nest.map_structure(
            tf.identity, batch if len(batch) > 1 else batch[0], expand_composites=True
        )

    return dataset.map(same, num_parallel_calls=2).prefetch(1)


def _unbatch(reader: Reader, dataset: tf.data.Dataset) -> tf.data.Dataset:
    return dataset.unbatch().batch(3)


def _step(reader: Reader, found: Reading) -> None:
    """Batches are taken inside of a tf.function, as a training step of one's own does."""
    dataset = reader.noted(found)

    @tf.function(autograph=False)
    def step(iterator: Any) -> Any:
        return next(iterator)

    def batches(iterator: Any) -> Iterator[Any]:
        while True:
            try:
                yield step(iterator)
            except tf.errors.OutOfRangeError:
                return

    found.streams[_FIRST] = list(reader.batches(batches(iter(dataset))))


def _twice(reader: Reader, found: Reading) -> None:
    """Two iterators of one dataset, read in turns."""
    dataset = reader.noted(found)
    iterators = {name: reader.batches(dataset) for name in (_FIRST, _SECOND)}
    found.streams.update({name: [] for name in iterators})
    while iterators:
        for name, iterator in list(iterators.items()):
            batch = next(iterator, None)
            if batch is None:
                del iterators[name]
            else:
                found.streams[name].append(batch)


def _again(reader: Reader, found: Reading) -> None:
    for name in (_FIRST, _SECOND):
        found.streams[name] = list(reader.batches(reader.noted(found)))


def _cache(reader: Reader, found: Reading) -> None:
    dataset = reader.noted(found).cache()
    for name in (_FIRST, _SECOND):
        found.streams[name] = list(reader.batches(dataset))


def _interrupted(reader: Reader, found: Reading, *, is_built_anew: bool) -> None:
    """Goes on from a checkpoint, beside what an iterator that was not interrupted reads."""
    dataset = reader.noted(found)
    iterator = iter(dataset)
    read = reader.batches(iterator)
    before = [batch for _, batch in zip(range(reader.call.at), read, strict=False)]
    with tempfile.TemporaryDirectory() as folder:
        path = tf.train.Checkpoint(iterator=iterator).write(str(pathlib.Path(folder, "point")))
        found.streams[_FIRST] = before + list(read)
        restored = iter(reader.noted(found) if is_built_anew else dataset)
        tf.train.Checkpoint(iterator=restored).read(path).assert_consumed()
        found.streams[_SECOND] = before + list(reader.batches(restored))


def _restored(reader: Reader, found: Reading) -> None:
    _interrupted(reader, found, is_built_anew=False)


def _restarted(reader: Reader, found: Reading) -> None:
    _interrupted(reader, found, is_built_anew=True)


def _in_function(reader: Reader, found: Reading) -> None:
    """The factory is called while a tf.function is traced."""

    @tf.function
    def all_rows() -> tf.Tensor:
        return _collected(reader, reader.bounded(reader.dataset()))

    found.streams[_FIRST] = [batch_of(all_rows())]


def _over_patterns(name: str) -> Any:
    """The factory is called inside of a dataset of patterns, with a tensor for the pattern."""

    def use(reader: Reader, found: Reading) -> None:
        patterns = tf.data.Dataset.from_tensor_slices(reader.paths)
        options = {"cycle_length": 2} if name == "interleave" else {}
        dataset = getattr(patterns, name)(reader.dataset, **options)
        found.spec = dataset.element_spec
        found.streams[_FIRST] = list(reader.batches(reader.bounded(dataset)))

    return use


def _collected(reader: Reader, dataset: tf.data.Dataset) -> tf.Tensor:
    """Returns fingerprints of all examples, by operations alone."""
    rows = equivalence.to_fingerprints(dataset)
    return rows.reduce(
        tf.zeros([0], tf.int64), lambda all_rows, batch: tf.concat([all_rows, batch], axis=0)
    )


def epoch(reader: Reader) -> collections.Counter[bytes]:
    """Returns the examples that a reader's call reads; none if something is raised."""
    try:
        if reader.call.use == "function":
            batches = [batch_of(_collected(reader, reader.dataset()))]
        else:
            batches = list(reader.batches(reader.dataset()))
    except Exception:  # the call itself will tell
        return collections.Counter()
    return collections.Counter(row for batch in batches for row in batch.rows)


USES: dict[str, Callable[[Reader, Reading], None]] = {
    "iterate": _iterate,
    "map": _changed(_map),
    "take": _changed(lambda reader, dataset: dataset.take(reader.call.at)),
    "skip": _changed(lambda reader, dataset: dataset.skip(reader.call.at)),
    "repeat": _changed(lambda reader, dataset: dataset.repeat(2)),
    "shard": _changed(lambda reader, dataset: dataset.shard(2, reader.call.at % 2)),
    "unbatch": _changed(_unbatch),
    "step": _step,
    "twice": _twice,
    "again": _again,
    "cache": _cache,
    "restored": _restored,
    "restarted": _restarted,
    "function": _in_function,
    "interleave": _over_patterns("interleave"),
    "flat_map": _over_patterns("flat_map"),
}
