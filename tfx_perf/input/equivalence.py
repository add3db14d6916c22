"""Checks that a candidate yields the default's examples, in any order and batching."""

import dataclasses
import functools
import math
import time
from collections.abc import Iterator
from typing import Any

import numpy as np
import tensorflow as tf

from tfx_perf.hardware import host
from tfx_perf.input.candidates.candidate import Candidate, NotApplicable
from tfx_perf.input.candidates.limits import Limits
from tfx_perf.input.candidates.source import RecordSource
from tfx_perf.input.shuffle import Permutation, ShuffleQuality, file_order_deviation
from tfx_perf.tf_internals import datasets

# Share of the time for reading the default, for shuffled epochs; the first is read in any case.
_EPOCHS_SHARE = 0.25
_MAX_EPOCHS = 8

_BEGINNING = 64  # examples to check of files that a candidate was not examined on


@dataclasses.dataclass(frozen=True)
class Digest:
    """A multiset of examples in constant space: their count and summed 64-bit fingerprints.

    An additive multiset hash (Clarke et al., "Incremental Multiset Hash Functions", 2003). It
    detects lost, duplicated and changed examples, but is no defense against an adversary.
    """

    count: int
    total: int


@dataclasses.dataclass(frozen=True, eq=False)
class Prefix:
    """Int64 fingerprints of a dataset's first batches; `complete` if the dataset ended there."""

    fingerprints: np.ndarray
    batches: int
    complete: bool

    @property
    def digest(self) -> Digest:
        """The same examples as a multiset."""
        total = self.fingerprints.sum(dtype=np.int64)  # wraps around, as intended
        return Digest(self.fingerprints.size, int(total))


@dataclasses.dataclass(frozen=True)
class _Sample:
    """Whole files that can be read for complete epochs."""

    source: RecordSource  # one epoch, shuffled
    digest: Digest  # of the examples
    unshuffled: Permutation


class Equivalence:
    """Compares candidates with the default, on as many examples as time allows.

    If the data are too large for whole shuffled epochs, it compares the first unshuffled batches
    (`reference`), and shuffled epochs of the smallest files.
    """

    def __init__(self, source: RecordSource, *, seconds: float) -> None:
        """Reads the unshuffled default for `seconds`; if it is larger, also the smallest files."""
        self._in_order = source.replace_options(num_epochs=1, shuffle=False, drop_final_batch=False)
        self._epochs_seconds = _EPOCHS_SHARE * seconds
        self.reference = prefix(self._in_order.default(), seconds=seconds)
        self._sample = (
            _sample(self._in_order, self.reference)
            if self.reference.complete
            else self._first_files(seconds=seconds)
        )

    def check_start(self, candidate: Candidate, *, limits: Limits) -> None:
        """Raises NotApplicable if the first unshuffled batches differ, or take too long."""
        seconds = limits.remaining_seconds
        batches = candidate.build(self._in_order, limits=limits).take(self.reference.batches)
        _check_same(prefix(batches, seconds=seconds), self.reference.digest)

    def shuffle_quality(self, candidate: Candidate, *, limits: Limits) -> ShuffleQuality | None:
        """Compares shuffled epochs with the default's examples and measures their order.

        Raises NotApplicable if an epoch differs, or if the first takes too long. Returns None if
        too few examples can be read or told apart, or if the candidate cannot serve the smallest
        files. If `reference` is incomplete, pass a copy: it may keep tables of the smallest files.
        """
        sample, seconds = self._sample, limits.remaining_seconds
        if sample is None:
            return None
        try:
            batches = candidate.build(sample.source, limits=limits)
        except NotApplicable:
            if self.reference.complete:
                raise
            return None
        batch_size, unshuffled = sample.source.options.batch_size, sample.unshuffled
        ratios, quality = [], None
        for epoch in self._epochs(batches, seconds=seconds):
            _check_same(epoch, sample.digest)
            if not unshuffled.tells:
                return None
            ratios.append(unshuffled.ratios(epoch.fingerprints, batch_size=batch_size))
            quality = ShuffleQuality.of_epochs(ratios, example_count=unshuffled.example_count)
            if quality.is_certain(file_order_deviation=self._file_order_deviation):
                break
        return quality

    def shortfall(self, quality: ShuffleQuality | None, default: ShuffleQuality | None) -> str:
        """Returns how `quality` falls short of the default's; empty if it does not, or unknown."""
        if quality is None or default is None:
            return ""
        return quality.shortfall(default, file_order_deviation=self._file_order_deviation)

    @functools.cached_property
    def _file_order_deviation(self) -> float:
        states = self._sample.source.file_states if self._sample else ()
        return file_order_deviation([state.size_bytes for state in states])

    def _epochs(self, batches: tf.data.Dataset, *, seconds: float) -> Iterator[Prefix]:
        fingerprints = to_fingerprints(batches)
        stop = time.monotonic() + min(seconds, self._epochs_seconds)
        for _ in range(_MAX_EPOCHS):
            started = time.monotonic()
            yield _read(fingerprints, seconds=seconds)
            if 2 * time.monotonic() - started > stop:  # no time for another
                break

    def _first_files(self, *, seconds: float) -> _Sample | None:
        """Returns the smallest files, 1, 2, 4, ..., as many as the default can read in the time."""
        deadline = time.monotonic() + seconds
        states = sorted(self._in_order.file_states, key=lambda state: state.size_bytes)
        files, count, sample = tuple(state.path for state in states), 1, None
        while count < len(files):
            part = dataclasses.replace(self._in_order, file_patterns=files[:count])
            try:
                beginning = prefix(part.default(), seconds=deadline - time.monotonic())
            except tf.errors.OpError:  # damage that the default would only reach later
                break
            if not beginning.complete:
                break
            sample, count = _sample(part, beginning), 2 * count
        return sample


def check_beginning(source: RecordSource, candidate: Candidate, *, limits: Limits) -> None:
    """Raises NotApplicable if the first unshuffled batch differs from the default's."""
    in_order = source.replace_options(
        num_epochs=1, shuffle=False, drop_final_batch=False, batch_size=_BEGINNING
    )
    beginning = _first_batch(candidate.build(in_order, limits=limits))
    _check_same(beginning, _first_batch(in_order.default()).digest)


def prefix(dataset: tf.data.Dataset, *, seconds: float = math.inf) -> Prefix:
    """Returns the fingerprints of the batches that can be read in `seconds`, at least one."""
    return _read(to_fingerprints(dataset), seconds=seconds)


def to_fingerprints(dataset: tf.data.Dataset) -> tf.data.Dataset:
    """Replaces each batch by the fingerprints of its examples, int64 of shape [batch]."""
    return datasets.mapped(
        dataset,
        lambda *batch: _fingerprint_examples(batch),
        num_parallel_calls=host.cpu_count(),
        deterministic=True,
    )


def _sample(in_order: RecordSource, prefix: Prefix) -> _Sample:
    return _Sample(
        source=in_order.replace_options(shuffle=True),
        digest=prefix.digest,
        unshuffled=Permutation(prefix.fingerprints),
    )


def _check_same(prefix: Prefix, expected: Digest) -> None:
    if not prefix.complete:
        raise NotApplicable("the time budget ended while it was being checked")
    if prefix.digest != expected:
        count = prefix.fingerprints.size
        raise NotApplicable(
            "its examples differ from the default's: "
            f"{count} examples instead of {expected.count}"
            + (", with different values" if count == expected.count else "")
        )


def _first_batch(dataset: tf.data.Dataset) -> Prefix:
    """Returns the `prefix` of one batch, eagerly, as tracing many features takes seconds."""
    for batch in datasets.without_autotune(dataset.take(1)):
        parts = batch if isinstance(batch, tuple) else (batch,)
        return Prefix(_fingerprint_examples(parts).numpy(), batches=1, complete=True)
    return Prefix(np.empty(0, np.int64), batches=0, complete=True)


def _read(fingerprints: tf.data.Dataset, *, seconds: float) -> Prefix:
    deadline = time.monotonic() + seconds
    batches = [np.empty(0, np.int64)]
    complete = True
    for batch in fingerprints.as_numpy_iterator():
        if len(batches) > 1 and time.monotonic() > deadline:
            complete = False
            break
        batches.append(batch)
    return Prefix(np.concatenate(batches), len(batches) - 1, complete)


def _fingerprint_examples(batch: tuple[Any, ...]) -> tf.Tensor:
    """Returns one int64 fingerprint per example, shape [batch]."""
    parts = [_fingerprint_rows(part) for part in tf.nest.flatten(batch)]
    return _as_integers(tf.fingerprint(tf.stack(parts, axis=1)))


def _fingerprint_rows(value: Any) -> tf.Tensor:
    """Returns one int64 fingerprint per row of any kind of tensor, shape [batch]."""
    if isinstance(value, tf.RaggedTensor):
        value = value.to_sparse()
    if isinstance(value, tf.Tensor) and value.shape[1:].num_elements() == 0:
        return tf.zeros(tf.shape(value)[:1], tf.int64)  # fingerprints of no strings are random
    if not isinstance(value, tf.SparseTensor):
        return _as_integers(tf.fingerprint(tf.reshape(value, [tf.shape(value)[0], -1])))
    # Hash each value with its place in the row; skip padding, which depends on the batch.
    values = _as_integers(tf.fingerprint(value.values[:, tf.newaxis]))
    cells = tf.concat([values[:, tf.newaxis], value.indices[:, 1:]], axis=1)
    return tf.math.unsorted_segment_sum(
        _as_integers(tf.fingerprint(cells)), value.indices[:, 0], value.dense_shape[0]
    )


def _as_integers(fingerprints: tf.Tensor) -> tf.Tensor:
    return tf.bitcast(fingerprints, tf.int64)
