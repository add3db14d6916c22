"""The candidates by name, and their wrappers."""

import tensorflow as tf

from tfx_perf.input.candidates.block_reader import BlockReader
from tfx_perf.input.candidates.candidate import DEFAULT, Candidate, NotApplicable
from tfx_perf.input.candidates.columns import Columns
from tfx_perf.input.candidates.limits import Limits
from tfx_perf.input.candidates.service import Service
from tfx_perf.input.candidates.source import RecordSource


class Default(Candidate):
    """The user's current pipeline; every other candidate is compared with it."""

    name = DEFAULT
    description = "TFXIO's own dataset factory, untouched."

    def build(self, source: RecordSource, *, limits: Limits) -> tf.data.Dataset:
        """Returns the default's dataset; nothing is held, so no limit applies."""
        del limits
        return source.default()


class Autotune(Candidate):
    """Leaves tf.data's autotune on around the `inner` candidate, named like `columns+autotune`.

    This is for code that adds stages after the factory: candidates switch autotune off, and without
    it TensorFlow no longer makes the user's serial `map` (decoding images, say) parallel.
    """

    kind = "autotune"

    def __init__(self, inner: Candidate) -> None:
        self.inner = inner
        self.name = f"{inner.name}+{self.kind}"
        self.description = (
            f"{inner.description} Autotune stays on, for what the training code adds."
        )
        self.holds_split = inner.holds_split

    def build(self, source: RecordSource, *, limits: Limits) -> tf.data.Dataset:
        """Returns the inner candidate's dataset with autotune on."""
        options = tf.data.Options()
        options.autotune.enabled = True
        return self.inner.build(source, limits=limits).with_options(options)

    @property
    def held_bytes(self) -> int:
        """Size of the data that the inner candidate keeps."""
        return self.inner.held_bytes

    @property
    def claimed_bytes(self) -> float:
        """The part of the memory budget that the inner candidate has in use."""
        return self.inner.claimed_bytes


CANDIDATES: dict[str, type[Candidate]] = {
    kind.name: kind for kind in (Default, Columns, BlockReader)
}
"""The candidates that need nothing but the data, in the order of the search."""


def make(name: str, *, service_address: str | None = None) -> Candidate:
    """Returns a new candidate by name (`columns+autotune`); NotApplicable if it is unknown."""
    base, *wrappers = name.split("+")
    if base not in {*CANDIDATES, Service.name} or not {Autotune.kind} >= set(wrappers):
        raise NotApplicable(f"this version has no candidate {name}")
    candidate = Service(service_address) if base == Service.name else CANDIDATES[base]()
    return Autotune(candidate) if wrappers else candidate
