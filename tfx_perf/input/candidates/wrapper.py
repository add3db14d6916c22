"""A candidate that changes another one in one respect."""

from typing import ClassVar

from tfx_perf.input import candidate
from tfx_perf.input import parameters as parameters_lib


class Wrapper(candidate.Candidate):
    """Built around another candidate, e.g. `block_reader+own_threads`.

    Attributes:
        kind: what is added to the inner candidate's name.
        inner: the candidate inside.
    """

    kind: ClassVar[str]

    def __init__(
        self, inner: candidate.Candidate, parameters: parameters_lib.Parameters
    ) -> None:
        """Wraps `inner`; `parameters` are those of the plan."""
        self.inner = inner
        self.parameters = parameters
        self.name = f"{inner.name}+{self.kind}"

    def fresh(self) -> "Wrapper":
        """Returns the same wrapper around a fresh inner candidate."""
        return type(self)(self.inner.fresh(), self.parameters)

    @property
    def holds_split(self) -> bool:
        """Whether the inner candidate does."""
        return self.inner.holds_split

    @property
    def held_bytes(self) -> int:
        """Size of what the inner candidate keeps."""
        return self.inner.held_bytes

    @property
    def claimed_bytes(self) -> float:
        """What is gone of the memory budget for the inner candidate."""
        return self.inner.claimed_bytes
