"""Generated rows that resemble Criteo's click logs."""

from collections.abc import Iterator

import numpy as np

from benchmarks.input.workloads import workload

_BLOCKS, _ROWS_PER_BLOCK = 5, 20_000
_COUNTS, _CATEGORIES = 13, 26
_CLICK_RATE = 0.25


def _tables() -> Iterator[workload.Columns]:
    """Yields skewed counts and hashed categories of 10 to 1 million values, Zipf-distributed."""
    generator = np.random.default_rng(workload.SEED)
    sizes = np.logspace(1, 6, _CATEGORIES).astype(np.int64)
    for _ in range(_BLOCKS):
        columns = {}
        for index in range(_COUNTS):
            columns[f"I{index + 1}"] = generator.lognormal(1, 2, _ROWS_PER_BLOCK).astype(np.float32)
        for index, size in enumerate(sizes):
            values = generator.zipf(1.3, _ROWS_PER_BLOCK) % size
            columns[f"C{index + 1}"] = _hashed(values, salt=index)
        clicks = generator.random(_ROWS_PER_BLOCK) < _CLICK_RATE
        columns[workload.LABEL_KEY] = clicks.astype(np.int64)
        yield columns


def _hashed(values: np.ndarray, *, salt: int) -> np.ndarray:
    """Returns eight hexadecimal digits for each value, as in the logs."""
    # Knuth's multiplicative hash ("The Art of Computer Programming" 3, section 6.4).
    hashes = ((values + 1_000_003 * salt) * 2_654_435_761) % 2**32
    return np.char.mod("%08x", hashes).astype(object)


CRITEO = workload.Workload(
    name="criteo",
    description="generated like Criteo's logs: 13 floats, 26 strings",
    batch_size=1024,
    class_count=2,
    tables=_tables,
    tabular=True,
)
