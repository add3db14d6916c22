"""What the candidates that keep a split in RAM have in common."""

import abc
import weakref
from typing import Any

import tensorflow as tf

from tfx_perf.input import candidate
from tfx_perf.input import limits as limits_lib
from tfx_perf.input import source as source_lib
from tfx_perf.input.building import batching, resident
from tfx_perf.input.building import table as table_lib
from tfx_perf.input.proof import file_state

_WHILE_LOADING = 2  # times what will be held: until a table is complete its strings are held twice


class TableCandidate(candidate.Candidate):
    """Loads a split once, then shuffles row numbers and takes rows by number.

    An epoch is a full uniform shuffle of the split, which the default's buffer of
    `shuffle_buffer_size` records only comes near to. Of several workers each shuffles every
    n-th row.
    """

    def __init__(self) -> None:
        # By what is read: what the files were then, and what was read. The latest use comes last.
        self._tables: dict[
            tuple[Any, ...], tuple[tuple[file_state.FileState, ...], table_lib.Table]
        ] = {}
        self._in_use: weakref.WeakKeyDictionary[tf.data.Dataset, table_lib.Table] = (
            weakref.WeakKeyDictionary()
        )

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
        """Size of the tables that are kept for later calls."""
        return sum(table.held_bytes for _, table in self._tables.values())

    @property
    def claimed_bytes(self) -> float:
        """Size of these, and of those that datasets still read although their files changed."""
        kept = [table for _, table in self._tables.values()]
        used = self._in_use.values()
        return sum({id(table): table.held_bytes for table in (*kept, *used)}.values())

    def build(
        self, source: source_lib.RecordSource, *, limits: limits_lib.Limits
    ) -> tf.data.Dataset:
        """Loads the split if it is not yet loaded, and returns the dataset over it."""
        table = self._table(source, limits=limits)
        dataset = batching.to_batches(
            batching.row_numbers(table.count, source.options),
            finish=lambda rows, held: self.finish(table.take(rows, held), source),
            source=source,
            limits=limits,
            beside=table.held,
        )
        self._in_use[dataset] = table
        return dataset

    def _table(
        self, source: source_lib.RecordSource, *, limits: limits_lib.Limits
    ) -> table_lib.Table:
        claimed_bytes = self.claimed_bytes
        # Taken out, because its use is the latest now, or its files have been written anew.
        states, table = self._tables.pop(source.identity, (None, None))
        if table is None or states != source.file_states:
            table = None  # which may free it
            chunks = self.chunks(source, limits=limits)
            self._make_room(
                _WHILE_LOADING * source.estimated_count * source.example_bytes,
                budget_bytes=limits.memory_bytes + claimed_bytes,
            )
            limits = limits.raised(claimed_bytes - self.claimed_bytes)
            table = resident.load(
                chunks, limits=limits, expected_bytes=source.expected_bytes
            )
        self._tables[source.identity] = source.file_states, table
        return table

    def _make_room(self, needed_bytes: float, *, budget_bytes: float) -> None:
        """Gives up tables that no dataset reads any more, those of long ago first.

        Args:
            needed_bytes: about what loading takes.
            budget_bytes: for all tables.
        """
        used = set(map(id, self._in_use.values()))
        for identity, (_, table) in tuple(self._tables.items()):
            if self.claimed_bytes + needed_bytes <= budget_bytes:
                return
            if id(table) not in used:
                del self._tables[identity]
