"""One stage of the default's pipeline and what it costs."""

from tfx_perf import records

_REMEDIES = {
    "read": "keep the split in RAM (columns, serialized_cache), or put it on a faster disk",
    "decompress": "decompress once (columns, serialized_cache, an uncompressed copy), or take "
    "records from several files at a time and in blocks (block_reader)",
    "records": "keep the split in RAM (columns, serialized_cache), or take records from several "
    "files at a time and in blocks (block_reader)",
    "shuffle": "shuffle row numbers (columns) or whole blocks (block_reader) instead of records",
    "batch": "batch rows in RAM (columns) or blocks of records (block_reader)",
    "parse": "parse once (columns) or big blocks in parallel (block_reader), and leave out the "
    "features that the model does not read",
    "rename": "finish many batches in one call (columns, block_reader)",
    "transform": "transform once, in the Transform component, instead of in every epoch",
    "pipeline": "keep the split in RAM (columns)",
}


class Stage(records.Record):
    """What one stage adds to the time of the stages before it.

    A stage that runs hidden behind a slower one adds nothing.

    Attributes:
        name: `read`: the bytes of the files; `decompress`: also handing over single records;
            `records`: the same of plain files; `shuffle`; `batch`; `parse`; `rename`: names,
            label and prefetch; `transform`: what the training code adds after the factory;
            `pipeline`: all that could not be taken apart.
        seconds_per_example: the time it adds.
        share: of the time of the whole pipeline, from 0 to 1.
        examples_per_second: of the pipeline up to and with this stage.
        bytes_per_second: the same in bytes that go into this stage: of the files for `read`, of
            serialised records after it.
    """

    name: str
    seconds_per_example: float
    share: float
    examples_per_second: float
    bytes_per_second: float

    @property
    def remedy(self) -> str:
        """What makes this stage cheaper, as the end of a sentence."""
        return _REMEDIES[self.name]
