"""A candidate that changes another one in one respect."""

from typing import ClassVar

from tfx_perf.input import candidate


class Wrapper(candidate.Candidate):
    """Built around another candidate, e.g. `block_reader+autotune`.

    Attributes:
        kind: what is added to the inner candidate's name.
        inner: the candidate inside.
    """

    kind: ClassVar[str]

    def __init__(self, inner: candidate.Candidate) -> None:
        """Wraps `inner`."""
        self.inner = inner
        self.name = f"{inner.name}+{self.kind}"

    def fresh(self) -> "Wrapper":
        """Returns the same wrapper around a fresh inner candidate."""
        return type(self)(self.inner.fresh())

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
