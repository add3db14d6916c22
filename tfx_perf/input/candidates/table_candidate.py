"""What the candidates that keep a split in RAM have in common."""

import abc
from typing import Any

import tensorflow as tf

from tfx_perf.input import batching, candidate, file_state, resident
from tfx_perf.input import limits as limits_lib
from tfx_perf.input import source as source_lib
from tfx_perf.input import table as table_lib


class TableCandidate(candidate.Candidate):
    """Loads a split once, then shuffles row numbers and takes rows by number.

    An epoch is a full uniform shuffle of the split, which the default's buffer of
    `shuffle_buffer_size` records only comes near to. Of several workers each shuffles every
    n-th row.
    """

    def __init__(self) -> None:
        # By what is read: what the files were then, and what was read.
        self._tables: dict[
            tuple[Any, ...], tuple[tuple[file_state.FileState, ...], table_lib.Table]
        ] = {}

    @abc.abstractmethod
    def chunks(
        self, source: source_lib.RecordSource, *, limits: limits_lib.Limits
    ) -> tf.data.Dataset:
        """Returns the split in its unshuffled order, once, as `resident.load` wants it."""

    @abc.abstractmethod
    def finish(self, rows: Any, source: source_lib.RecordSource) -> Any:
        """Turns rows taken from the table into examples."""

    def fresh(self) -> "TableCandidate":
        """Returns one without tables."""
        return type(self)()

    @property
    def holds_split(self) -> bool:
        """It does."""
        return True

    @property
    def held_bytes(self) -> int:
        """Size of all tables."""
        return sum(table.held_bytes for _, table in self._tables.values())

    def build(
        self, source: source_lib.RecordSource, *, limits: limits_lib.Limits
    ) -> tf.data.Dataset:
        """Loads the split if it is not yet loaded, and returns the dataset over it."""
        table = self._table(source, limits=limits)
        return batching.to_batches(
            batching.row_numbers(table.count, source.options),
            finish=lambda rows, held: self.finish(table.take(rows, held), source),
            source=source,
            row_bytes=table.held_bytes / table.count,
            beside=table.held,
        )

    def _table(
        self, source: source_lib.RecordSource, *, limits: limits_lib.Limits
    ) -> table_lib.Table:
        states, table = self._tables.get(source.identity, (None, None))
        if states != source.file_states:
            self._tables.pop(source.identity, None)  # of files that were written anew since
            table = resident.load(
                self.chunks(source, limits=limits),
                limits=limits,
                expected_bytes=source.expected_bytes,
            )
            self._tables[source.identity] = source.file_states, table
        return table
