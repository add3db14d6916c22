"""The candidates by name, and the wrappers that go around them."""

from tfx_perf.input.candidate import Candidate
from tfx_perf.input.candidates.block_reader import BlockReader
from tfx_perf.input.candidates.columns import Columns
from tfx_perf.input.candidates.default import Default
from tfx_perf.input.candidates.serialized_cache import SerializedCache
from tfx_perf.input.parameters import Parameters
from tfx_perf.input.wrapper import Wrapper

CANDIDATES: dict[str, type[Candidate]] = {
    kind.name: kind for kind in (Default, Columns, BlockReader, SerializedCache)
}
WRAPPERS: dict[str, type[Wrapper]] = {kind.kind: kind for kind in ()}


def make(name: str, parameters: Parameters = Parameters()) -> Candidate:  # noqa: B008 (frozen)
    """Returns a new candidate.

    Args:
        name: of a candidate, with the wrappers around it: `block_reader+projection`.
        parameters: what wrappers need to know.

    Raises:
        KeyError: there is none of that name.
    """
    base, *wrappers = name.split("+")
    candidate = CANDIDATES[base]()
    for kind in wrappers:
        candidate = WRAPPERS[kind](candidate, parameters)
    return candidate


__all__ = ["CANDIDATES", "WRAPPERS", "BlockReader", "Columns", "Default", "SerializedCache", "make"]
