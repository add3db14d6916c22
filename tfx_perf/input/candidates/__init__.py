"""The candidates, by name; the default first."""

from tfx_perf.input.candidate import Candidate
from tfx_perf.input.candidates.block_reader import BlockReader
from tfx_perf.input.candidates.columns import Columns
from tfx_perf.input.candidates.default import Default
from tfx_perf.input.candidates.serialized_cache import SerializedCache

CANDIDATES: dict[str, type[Candidate]] = {
    kind.name: kind for kind in (Default, Columns, BlockReader, SerializedCache)
}

__all__ = ["CANDIDATES", "BlockReader", "Columns", "Default", "SerializedCache"]
