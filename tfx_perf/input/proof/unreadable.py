"""Which record file is damaged: TensorFlow's errors say where in a file, but not in which."""

import re
import time
from collections.abc import Sequence
from typing import NamedTuple

import tensorflow as tf

from tfx_perf import errors
from tfx_perf.input import candidate
from tfx_perf.input import source as source_lib

_SEARCH_SECONDS = 5.0
_RECORDS_AT_ONCE = 1024
_TENSORFLOW_NOISE = re.compile(r"\{\{[^}]*\}\}\s*|\s*\[Op:.*$")


class Damage(NamedTuple):
    """A file that cannot be read to its end, and the error, in one line."""

    file: str
    error: str


def find(
    files: Sequence[str],
    compression: str,
    *,
    seconds: float,
    parse: source_lib.Parse | None = None,
) -> Damage | None:
    """Returns the first file that cannot be read to its end; None if none was found.

    Args:
        files: record files.
        compression: `GZIP` or the empty string.
        seconds: after this the search is given up.
        parse: also parses the records, to find one that lacks a feature.
    """
    deadline = time.monotonic() + seconds
    for name in files:
        records = tf.data.TFRecordDataset(name, compression).batch(_RECORDS_AT_ONCE)
        try:
            for _ in records.map(parse) if parse else records:
                if time.monotonic() > deadline:
                    return None
        except tf.errors.OpError as error:
            return Damage(name, describe(error))
    return None


def describe(error: Exception) -> str:
    """Returns an error's message in one line, without TensorFlow's names of graph nodes."""
    first_line = (str(error).strip().splitlines() or [""])[0]
    return _TENSORFLOW_NOISE.sub("", first_line).strip() or type(error).__name__


class DamageSearch:
    """Explains errors of reading a source by the file behind them."""

    def __init__(self, source: source_lib.RecordSource) -> None:
        """Explains errors of `source`; its files are looked into only when asked."""
        self._source = source
        self._found: dict[bool, Damage | None] = {}

    def reason(self, error: Exception, *, seconds: float) -> str:
        """Returns why a candidate failed, in one line.

        Args:
            error: what it raised.
            seconds: to look for the damaged file, and at most 5 s.
        """
        from_tensorflow = isinstance(error, tf.errors.OpError)
        damage = self._find(error, seconds=seconds) if from_tensorflow else None
        if damage:
            return f"cannot read {damage.file}: {damage.error}"
        return f"{type(error).__name__}: {describe(error)}"

    def user_error(self, error: Exception) -> errors.UserError:
        """Returns what to tell the user if the default itself raises `error`."""
        received = f"file_patterns={list(self._source.file_patterns)}"
        try:
            damage = self._find(error)
        except candidate.NotApplicable as mixed:
            return errors.UserError(
                "Expected record files that are all gzip or all plain. "
                f"Received: {received} ({mixed}). Write all of them the same way."
            )
        if damage:
            received, remedy = f"file={damage.file} ({damage.error})", "Write that file again."
        else:
            received = f"{received} ({describe(error)})"
            remedy = "Check the split and its schema."
        return errors.UserError(
            "Expected examples that TFXIO's dataset factory can read. "
            f"Received: {received}. {remedy}"
        )

    def _find(self, error: Exception, *, seconds: float = _SEARCH_SECONDS) -> Damage | None:
        """Returns the damaged file; None if it was not found."""
        corrupt = isinstance(error, tf.errors.DataLossError)  # else the content is to blame
        if corrupt not in self._found:  # all candidates meet the same one
            self._found[corrupt] = find(
                self._source.files,
                self._source.compression,
                seconds=min(seconds, _SEARCH_SECONDS),
                parse=None if corrupt else self._source.parse,
            )
        return self._found[corrupt]
