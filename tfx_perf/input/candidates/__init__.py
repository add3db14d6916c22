"""The candidates by name, and the wrappers that go around them."""

from tfx_perf.input.candidate import Candidate
from tfx_perf.input.candidates.autotune import Autotune
from tfx_perf.input.candidates.block_reader import BlockReader
from tfx_perf.input.candidates.columns import Columns
from tfx_perf.input.candidates.copy import Copy
from tfx_perf.input.candidates.deep_prefetch import DeepPrefetch
from tfx_perf.input.candidates.default import Default
from tfx_perf.input.candidates.device_prefetch import DevicePrefetch
from tfx_perf.input.candidates.own_threads import OwnThreads
from tfx_perf.input.candidates.parallel_reader import ParallelReader
from tfx_perf.input.candidates.serialized_cache import SerializedCache
from tfx_perf.input.candidates.service import Service
from tfx_perf.input.candidates.wrapper import Wrapper
from tfx_perf.input.parameters import Parameters

CANDIDATES: dict[str, type[Candidate]] = {
    kind.name: kind for kind in (Default, Columns, BlockReader, SerializedCache, ParallelReader)
}
# What the search tries around the best candidate.
REFINEMENTS: tuple[type[Wrapper], ...] = (OwnThreads, DeepPrefetch, DevicePrefetch)
_WRAPPERS: tuple[type[Wrapper], ...] = (*REFINEMENTS, Autotune, Copy, Service)
WRAPPERS = {wrapper.kind: wrapper for wrapper in _WRAPPERS}


def make(name: str, parameters: Parameters = Parameters()) -> Candidate:  # noqa: B008 (frozen)
    """Returns a new candidate.

    Args:
        name: of a candidate, with the wrappers around it: `block_reader+own_threads`.
        parameters: what wrappers need to know.

    Raises:
        KeyError: there is none of that name.
    """
    base, *wrappers = name.split("+")
    candidate = CANDIDATES[base]()
    for kind in wrappers:
        candidate = WRAPPERS[kind](candidate, parameters)
    return candidate


__all__ = [
    "CANDIDATES",
    "REFINEMENTS",
    "WRAPPERS",
    "Autotune",
    "BlockReader",
    "Columns",
    "Copy",
    "DeepPrefetch",
    "Default",
    "DevicePrefetch",
    "OwnThreads",
    "ParallelReader",
    "SerializedCache",
    "Service",
    "make",
]
