"""The candidates by name, and what goes around them."""

import tensorflow as tf

from tfx_perf.input.candidates.block_reader import BlockReader
from tfx_perf.input.candidates.candidate import DEFAULT, Candidate, NotApplicable
from tfx_perf.input.candidates.columns import Columns
from tfx_perf.input.candidates.limits import Limits
from tfx_perf.input.candidates.service import Service
from tfx_perf.input.candidates.source import RecordSource


class Default(Candidate):
    """What the user has now; every other candidate is compared with it."""

    name = DEFAULT
    description = "TFXIO's own dataset factory, untouched."

    def build(self, source: RecordSource, *, limits: Limits) -> tf.data.Dataset:
        """Returns the default's dataset; nothing is held, so no limit applies."""
        del limits
        return source.default()


class Autotune(Candidate):
    """Leaves tf.data's autotune on around a candidate, as `columns+autotune`.

    For training code that adds stages of its own after the factory. The candidates switch
    autotune off, as they leave nothing to it. But without it TensorFlow also no longer makes a
    serial `map` parallel, and the user's may be one (decoding images, say).

    Attributes:
        inner: the candidate inside.
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

    def fresh(self) -> "Autotune":
        """Returns the same around a fresh inner candidate."""
        return type(self)(self.inner.fresh())

    @property
    def held_bytes(self) -> int:
        """Size of what the inner candidate keeps."""
        return self.inner.held_bytes

    @property
    def claimed_bytes(self) -> float:
        """What is gone of the memory budget for the inner candidate."""
        return self.inner.claimed_bytes


CANDIDATES: dict[str, type[Candidate]] = {
    kind.name: kind for kind in (Default, Columns, BlockReader)
}
"""Those that need nothing but the data, in the order of the search."""


def make(name: str, *, service_address: str | None = None) -> Candidate:
    """Returns a new candidate.

    Args:
        name: as `columns`, `service` or `columns+autotune`.
        service_address: dispatcher of a tf.data service, e.g. `grpc://host:5050`.

    Raises:
        NotApplicable: there is none of that name, as in a plan of an earlier version.
    """
    base, *wrappers = name.split("+")
    if base not in {*CANDIDATES, Service.name} or not {Autotune.kind} >= set(wrappers):
        raise NotApplicable(f"this version has no candidate {name}")
    candidate = Service(service_address) if base == Service.name else CANDIDATES[base]()
    return Autotune(candidate) if wrappers else candidate
