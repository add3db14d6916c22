"""Whether a candidate yields what the default yields, and how well it shuffles."""

import dataclasses
import time
from collections.abc import Callable, Iterator

import tensorflow as tf

from tfx_perf.input import candidate as candidate_lib
from tfx_perf.input import source as source_lib
from tfx_perf.input.proof import fingerprint, permutation
from tfx_perf.input.proof import shuffle_quality as quality_lib

Build = Callable[[source_lib.RecordSource], tf.data.Dataset]

# Of the time to read the default:
_SAMPLE_SHARE = 1.0  # for finding files that can be read completely
_EPOCHS_SHARE = 0.25  # for shuffled epochs; the first is read in any case
_MAX_EPOCHS = 8

_BEGINNING = 64  # examples of files that a candidate was not examined on


def check_beginning(source: source_lib.RecordSource, build: Build) -> None:
    """Compares the first batch of the unshuffled order with the default's.

    Args:
        source: of which files.
        build: of the candidate.

    Raises:
        NotApplicable: they hold other examples.
    """
    in_order = source.replace_options(
        num_epochs=1, shuffle=False, drop_final_batch=False, batch_size=_BEGINNING
    )
    found, expected = (
        fingerprint.of_first_batch(dataset)
        for dataset in (build(in_order), in_order.default())
    )
    _check_same(found, expected.digest)


@dataclasses.dataclass(frozen=True)
class _Sample:
    """Whole files of which complete epochs can be read.

    Attributes:
        source: one epoch, shuffled.
        digest: of its examples.
        unshuffled: their order without shuffling.
    """

    source: source_lib.RecordSource
    digest: fingerprint.Digest
    unshuffled: permutation.Permutation


class Equivalence:
    """Holds candidates against the default, on as many examples as there is time for.

    If the default can be read completely, shuffled epochs of the whole split are compared as
    multisets. Of larger data the first batches of the unshuffled order are, and shuffled
    epochs of the first files.

    Attributes:
        reference: the default's first batches in the unshuffled order.
    """

    def __init__(self, source: source_lib.RecordSource, *, seconds: float) -> None:
        """Reads the default.

        Args:
            source: what the candidates will be built for.
            seconds: time for its unshuffled order; if it is larger than that, half as much
                again goes to the first files.
        """
        self._in_order = source.replace_options(
            num_epochs=1, shuffle=False, drop_final_batch=False
        )
        self._epochs_seconds = _EPOCHS_SHARE * seconds
        self.reference = self._read_default(self._in_order, seconds=seconds)
        self._sample = (
            _sample(self._in_order, self.reference)
            if self.reference.complete
            else self._first_files(seconds=_SAMPLE_SHARE * seconds)
        )

    def check_start(self, build: Build, *, seconds: float) -> None:
        """Compares the first batches of the unshuffled order with the default's.

        Raises:
            NotApplicable: they hold other examples, or could not be read in `seconds`.
        """
        batches = build(self._in_order).take(self.reference.batches)
        found = fingerprint.prefix(batches, seconds=seconds)
        _check_same(found, self.reference.digest)

    def shuffle_quality(
        self, build: Build, *, seconds: float
    ) -> quality_lib.ShuffleQuality | None:
        """Compares shuffled epochs with the default's examples and measures their order.

        One epoch is always read, and more as the time allows, to average over.

        Args:
            build: of the candidate. Where `reference` is not complete it is asked for the
                first files only, and should not share its tables with the rest.
            seconds: in which the first epoch must have been read.

        Returns:
            The quality; None where it cannot be known: no file can be read in the time, too few
            examples differ from all others, or the candidate does not serve the first files.

        Raises:
            NotApplicable: an epoch holds other examples, or the time ended.
        """
        sample = self._sample
        if sample is None:
            return None
        try:
            batches = build(sample.source)
        except candidate_lib.NotApplicable:
            if self.reference.complete:
                raise
            return None
        ratios = []
        for epoch in self._epochs(batches, seconds=seconds):
            _check_same(epoch, sample.digest)
            if not sample.unshuffled.tells:
                return None
            ratios.append(
                sample.unshuffled.ratios(
                    epoch.fingerprints, batch_size=sample.source.options.batch_size
                )
            )
        return quality_lib.ShuffleQuality.of_epochs(
            ratios, example_count=sample.unshuffled.example_count
        )

    def shortfall(
        self, found: quality_lib.ShuffleQuality | None, default: quality_lib.ShuffleQuality | None
    ) -> str:
        """Says how `found` falls short of the default's; empty if not, or if unknown."""
        if found is None or default is None or self._sample is None:
            return ""
        sizes = [tf.io.gfile.stat(name).length for name in self._sample.source.files]
        deviation = quality_lib.file_order_deviation(sizes)
        return found.shortfall(default, file_order_deviation=deviation)

    def _epochs(
        self, batches: tf.data.Dataset, *, seconds: float
    ) -> Iterator[fingerprint.Prefix]:
        fingerprints = fingerprint.of_batches(batches)
        stop = time.monotonic() + min(seconds, self._epochs_seconds)
        for _ in range(_MAX_EPOCHS):
            started = time.monotonic()
            yield fingerprint.read(fingerprints, seconds=seconds)
            if 2 * time.monotonic() - started > stop:  # no time for another
                break

    def _first_files(self, *, seconds: float) -> _Sample | None:
        """Returns the smallest 1, 2, 4, ... files, as many as the default reads in the time."""
        deadline = time.monotonic() + seconds
        by_size = sorted(self._in_order.files, key=lambda name: tf.io.gfile.stat(name).length)
        files, count, sample = tuple(by_size), 1, None
        while count < len(files):
            part = dataclasses.replace(self._in_order, file_patterns=files[:count])
            try:
                found = self._read_default(part, seconds=deadline - time.monotonic())
            except tf.errors.OpError:  # a damage that the default would only meet later
                break
            if not found.complete:
                break
            sample, count = _sample(part, found), 2 * count
        return sample

    def _read_default(
        self, source: source_lib.RecordSource, *, seconds: float
    ) -> fingerprint.Prefix:
        return fingerprint.prefix(source.default(), seconds=seconds)


def _sample(in_order: source_lib.RecordSource, found: fingerprint.Prefix) -> _Sample:
    return _Sample(
        source=in_order.replace_options(shuffle=True),
        digest=found.digest,
        unshuffled=permutation.Permutation(found.fingerprints),
    )


def _check_same(found: fingerprint.Prefix, expected: fingerprint.Digest) -> None:
    if not found.complete:
        raise candidate_lib.NotApplicable("the time budget ended while it was being checked")
    if found.digest != expected:
        count = found.fingerprints.size
        raise candidate_lib.NotApplicable(
            "its examples are not those of the default: "
            f"{count} examples against {expected.count}"
            + (", with other values" if count == expected.count else "")
        )
