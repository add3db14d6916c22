"""The whole split as parsed columns in RAM."""

from typing import Any

import tensorflow as tf

from tfx_perf.hardware import host
from tfx_perf.input import limits as limits_lib
from tfx_perf.input import source as source_lib
from tfx_perf.input.building import batching
from tfx_perf.input.candidates import table_candidate
from tfx_perf.tf_internals import datasets


class Columns(table_candidate.TableCandidate):
    """Reads and parses once; afterwards a batch is a gather of rows from columns in RAM.

    The same idea as the "single tensor" of TensorFlow Datasets and FFCV's in-memory random
    order: no work per record is left.
    """

    name = "columns"
    description = "The whole split parsed once into columns in RAM; row numbers are shuffled."

    def chunks(
        self, source: source_lib.RecordSource, *, limits: limits_lib.Limits
    ) -> tf.data.Dataset:
        """Reads blocks of records, or, if nobody knows how to parse them, through TFXIO."""
        parse = source.parse
        if parse is not None:
            return datasets.mapped(
                batching.chunks(source, limits=limits, row_size=source.example_size),
                lambda records: (parse(records), source_lib.read_bytes(records)),
                num_parallel_calls=host.cpu_count(),
                deterministic=True,
            )
        batches = source.replace_options(
            batch_size=batching.rows_per_block(source.example_bytes),
            num_epochs=1,
            shuffle=False,
            drop_final_batch=False,
        ).default()
        framed_bytes = int(source.record_bytes) + source_lib.FRAME_BYTES
        return datasets.mapped(
            batches,
            lambda *batch: (
                batch if len(batch) > 1 else batch[0],
                framed_bytes * datasets.row_count(batch),
            ),
        )

    def finish(self, rows: Any, source: source_lib.RecordSource) -> Any:
        """Returns the rows as they are: they were parsed when they were loaded."""
        return rows
