"""The whole split as parsed columns in RAM."""

import weakref
from collections.abc import Callable
from typing import Any

import tensorflow as tf

from tfx_perf.hardware import host
from tfx_perf.input.candidates import batching
from tfx_perf.input.candidates import table as table_lib
from tfx_perf.input.candidates.candidate import Candidate
from tfx_perf.input.candidates.limits import Limits
from tfx_perf.input.candidates.sharding import Worker
from tfx_perf.input.candidates.source import FRAME_BYTES, FileState, RecordSource, RowSize
from tfx_perf.tf_internals import datasets


class Columns(Candidate):
    """Reads and parses once; afterwards a batch is a gather of rows from columns in RAM.

    As in TFDS's "single tensor" and FFCV's in-memory random order, no work per record is left. An
    epoch is a full uniform shuffle. With several workers, each shuffles every n-th row.
    """

    name = "columns"
    description = "The whole split parsed once into columns in RAM; row numbers are shuffled."
    holds_split = True

    def __init__(self) -> None:
        # Tables by the identity of their source, each with the files' states when it was read.
        self._tables: dict[tuple[Any, ...], tuple[tuple[FileState, ...], table_lib.Table]] = {}
        self._in_use: weakref.WeakKeyDictionary[tf.data.Dataset, table_lib.Table] = (
            weakref.WeakKeyDictionary()
        )

    @property
    def held_bytes(self) -> int:
        """Size of the tables that are kept for later calls."""
        return sum(table.held_bytes for _, table in self._tables.values())

    @property
    def claimed_bytes(self) -> float:
        """Size of the kept tables, and of tables of changed files that datasets still read."""
        tables = [table for _, table in self._tables.values()]
        used = self._in_use.values()
        return sum({id(table): table.held_bytes for table in (*tables, *used)}.values())

    @tf.autograph.experimental.do_not_convert  # converting our code would read whole source files
    def build(self, source: RecordSource, *, limits: Limits) -> tf.data.Dataset:
        """Loads the split if it is not yet loaded, and returns the dataset over it."""
        table = self._table(source, limits=limits)
        dataset = batching.to_batches(
            row_numbers(table.count, source.options),
            finish=table.take,
            source=source,
            limits=limits,
            beside=table.held,
        )
        self._in_use[dataset] = table
        return dataset

    def _table(self, source: RecordSource, *, limits: Limits) -> table_lib.Table:
        states, table = self._tables.get(source.identity, (None, None))
        if table is None or states != source.file_states:
            table = None
            self._tables.pop(source.identity, None)  # may free the table of rewritten files
            chunks = self.chunks(source, limits=limits)
            table = table_lib.load(chunks, limits=limits, expected_bytes=source.expected_bytes)
            self._tables[source.identity] = source.file_states, table
        return table

    def chunks(self, source: RecordSource, *, limits: Limits) -> tf.data.Dataset:
        """Returns the unshuffled split for `table.load`; TFXIO's batches if there is no parser."""
        parse = source.parse
        if parse is None:
            batches = source.replace_options(
                batch_size=batching.rows_per_block(source.example_bytes),
                num_epochs=1,
                shuffle=False,
                drop_final_batch=False,
            ).default()
            framed_bytes = int(source.record_bytes) + FRAME_BYTES
            return datasets.mapped(
                batches,
                lambda *batch: (
                    batch if len(batch) > 1 else batch[0],
                    framed_bytes * datasets.row_count(batch),
                ),
            )
        limit_bytes = batching.bytes_per_block(limits)
        padding_bytes, ratio = source.example_size
        row_bytes = padding_bytes + ratio * source.record_bytes
        turn = max(1, min(batching.TURN, int(limit_bytes / max(row_bytes, 1))))
        vectors = batching.joined(
            source.records().batch(turn),
            rows=batching.ROWS_PER_BLOCK,
            limit_bytes=limit_bytes,
            row_size=source.example_size,
        )
        framed_size = RowSize(padding_bytes=FRAME_BYTES, ratio=1)  # in an uncompressed file
        return datasets.mapped(
            vectors,
            lambda records: (parse(records), tf.reduce_sum(framed_size.of(records))),
            num_parallel_calls=host.cpu_count(),
            deterministic=True,
        )


def row_numbers(count: int, options: Any) -> Callable[[Worker], tf.data.Dataset]:
    """Returns a function that makes an epoch: a worker's rows (int64 vector), maybe shuffled."""
    seeds = batching.epochs(options)

    def numbers(worker: Worker) -> tf.data.Dataset:
        def epoch(seed: tf.Tensor) -> tf.Tensor:
            rows = worker.rows(count)
            return tf.random.experimental.stateless_shuffle(rows, seed) if options.shuffle else rows

        # Prefetch one epoch, so that its permutation does not hold up the first batch.
        return seeds.map(epoch).prefetch(1)

    return numbers
