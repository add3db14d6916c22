"""The candidates by name, and the wrapper that goes around them."""

from tfx_perf.input.candidate import Candidate, NotApplicable
from tfx_perf.input.candidates.autotune import Autotune
from tfx_perf.input.candidates.block_reader import BlockReader
from tfx_perf.input.candidates.columns import Columns
from tfx_perf.input.candidates.default import Default
from tfx_perf.input.candidates.service import Service
from tfx_perf.input.candidates.wrapper import Wrapper
from tfx_perf.input.parameters import Parameters

CANDIDATES: dict[str, type[Candidate]] = {
    kind.name: kind for kind in (Default, Columns, BlockReader)
}
WRAPPERS: dict[str, type[Wrapper]] = {Autotune.kind: Autotune}


def make(name: str, parameters: Parameters = Parameters()) -> Candidate:  # noqa: B008 (frozen)
    """Returns a new candidate.

    Args:
        name: of a candidate, with the wrappers around it: `columns+autotune`.
        parameters: of the plan.

    Raises:
        NotApplicable: there is none of that name, as in a plan of an earlier version.
    """
    base, *wrappers = name.split("+")
    if base not in {*CANDIDATES, Service.name} or not WRAPPERS.keys() >= set(wrappers):
        raise NotApplicable(f"this version has no candidate {name}")
    candidate = Service(parameters) if base == Service.name else CANDIDATES[base]()
    for kind in wrappers:
        candidate = WRAPPERS[kind](candidate)
    return candidate
