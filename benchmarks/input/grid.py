"""Which cells are measured."""

import itertools
from collections.abc import Sequence

from benchmarks.input import results

SHARDS = (1, 12, 64)
COMPRESSIONS = (results.GZIP, results.PLAIN)

# The layout on which the models train by default: TFX writes gzip, and the effect of the layout
# shows without a model.
_MODEL_LAYOUT = (12, results.GZIP)


def cells(
    *,
    workloads: Sequence[str],
    shards: Sequence[int],
    compressions: Sequence[str],
    consumers: Sequence[str] | None,
) -> list[results.Cell]:
    """Returns the cells; those that share files follow one another.

    Args:
        workloads: their names.
        shards: numbers of record files.
        compressions: `gzip`, `plain`.
        consumers: for every layout; None: no model on every layout, the models on one.
    """
    found = []
    for name, count, compression in itertools.product(workloads, shards, compressions):
        for consumer in results.CONSUMERS if consumers is None else consumers:
            everywhere = consumers is not None or consumer == results.NO_MODEL
            if everywhere or (count, compression) == _MODEL_LAYOUT:
                found.append(
                    results.Cell(
                        workload=name, shards=count, compression=compression, consumer=consumer
                    )
                )
    return found
