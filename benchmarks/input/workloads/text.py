"""Film reviews of different lengths, as words."""

from collections.abc import Iterator

import numpy as np
import pandas as pd
import pyarrow as pa

from benchmarks.input.workloads import workload

_ROWS = 40_000
_LONGEST_WORDS = 150


def _tables() -> Iterator[workload.Columns]:
    """Yields random passages of 1 to 150 words, each from one review of TFX's IMDB sample."""
    path = workload.package_file(
        "tfx",
        "examples/imdb/data/imdb_small_with_labels.txt",
        remedy="It is part of the wheel of TFX: install tfx.",
    )
    reviews = pd.read_csv(path)
    words = [text.lower().split() for text in reviews["text"]]
    counts = np.array([len(review) for review in words])
    first = np.cumsum(counts) - counts
    generator = np.random.default_rng(workload.SEED)
    chosen = generator.integers(len(reviews), size=_ROWS)
    lengths = generator.integers(1, _LONGEST_WORDS, _ROWS, endpoint=True)
    lengths = np.minimum(lengths, counts[chosen])
    starts = first[chosen] + generator.integers(counts[chosen] - lengths, endpoint=True)
    offsets = np.concatenate([[0], np.cumsum(lengths)])
    places = np.repeat(starts - offsets[:-1], lengths) + np.arange(offsets[-1])
    vocabulary = pa.array([word.encode() for review in words for word in review])
    yield {
        "words": pa.ListArray.from_arrays(
            pa.array(offsets, pa.int32()), vocabulary.take(pa.array(places))
        ),
        workload.LABEL_KEY: reviews["label"].to_numpy(np.int64)[chosen],
    }


SPARSE = workload.Workload(
    name="text-sparse",
    description="IMDB passages of 1 to 150 words, as sparse tensors",
    batch_size=256,
    class_count=2,
    tables=_tables,
)
RAGGED = workload.Workload(
    name="text-ragged",
    description="IMDB passages of 1 to 150 words, as ragged tensors",
    batch_size=256,
    class_count=2,
    tables=_tables,
    ragged=True,
)
