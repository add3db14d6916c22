"""How well a pipeline shuffles: how far its epochs are from the unshuffled order."""

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from tfx_perf.core import records

_TOLERATED_SHARE = 0.9
_STANDARD_ERRORS = 3  # one false alarm in a thousand comparisons
_CERTAIN_ERROR = 0.01  # standard error of a ratio; more epochs would change no comparison
_SIMULATED_ORDERS = 500
_SEED = 20260101
_MIN_EXAMPLES = 100
_MIN_UNIQUE_SHARE = 0.5


class Ratios(NamedTuple):
    """The ratios of `ShuffleQuality` for one epoch, and the standard error of `mixing`."""

    displacement: float
    mixing: float
    mixing_error: float


class ShuffleQuality(records.Record):
    """How close shuffled epochs come to a uniformly random order.

    Attributes:
        displacement_ratio: how far an example moves from its unshuffled place, relative to a full
            shuffle: 0 for none, 1 for a full one. Low if examples stay early or late.
        mixing_ratio: how far apart two examples of a batch are in the unshuffled order, on the same
            scale. Random file order alone gives high displacement and no mixing.
        displacement_deviation: standard deviation between epochs.
        mixing_deviation: the same, or the standard error within an epoch if that is larger.
        example_count: number of unique examples measured; for large data, of the smallest files.
    """

    displacement_ratio: float
    mixing_ratio: float
    displacement_deviation: float
    mixing_deviation: float
    example_count: int
    epochs: int

    @classmethod
    def of_epochs(cls, ratios: Sequence[Ratios], *, example_count: int) -> "ShuffleQuality":
        """Averages over epochs."""
        displacement, mixing, mixing_error = np.transpose(ratios)
        between = {"ddof": 1} if len(ratios) > 1 else {}
        return cls(
            displacement_ratio=displacement.mean(),
            mixing_ratio=mixing.mean(),
            displacement_deviation=displacement.std(**between),
            mixing_deviation=max(mixing.std(**between), mixing_error.max()),
            example_count=example_count,
            epochs=len(ratios),
        )

    def is_certain(self, *, file_order_deviation: float) -> bool:
        """Whether the ratios are known so well that more epochs would change no comparison."""
        floors = {"displacement": file_order_deviation, "mixing": 0.0}
        errors = (self._estimate(name, floor)[1] for name, floor in floors.items())
        return max(errors) <= _CERTAIN_ERROR

    def shortfall(self, default: "ShuffleQuality", *, file_order_deviation: float) -> str:
        """Returns how it shuffles worse than the default, beyond chance; empty if it does not.

        A ratio falls short if it is below 0.9 of the default's (capped at 1) by more than three
        standard errors of the difference. The deviation between epochs counts as no less than
        theory predicts, because a few epochs may be alike by chance.
        """
        for name, floor in (("displacement", file_order_deviation), ("mixing", 0.0)):
            ratio, own_error = self._estimate(name, floor)
            others, others_error = default._estimate(name, floor)
            error = _STANDARD_ERRORS * math.hypot(own_error, others_error)
            if ratio + error < _TOLERATED_SHARE * min(1, others):
                return (
                    f"it shuffles worse than the default: {name} ratio {ratio:.2g} against "
                    f"{others:.2g}, where a full shuffle has 1"
                )
        return ""

    def _estimate(self, name: str, least_deviation: float) -> tuple[float, float]:
        ratio = getattr(self, f"{name}_ratio")
        # For a full shuffle and large m: the variance of the sum of |r_j - j| is
        # (m + 1)(2m^2 + 7) / 45 (Diaconis and Graham, 1977). A window of w examples is m / w such
        # shuffles, which gives the same relative deviation.
        chance = ratio * math.sqrt(2 / (5 * self.example_count))
        deviation = max(getattr(self, f"{name}_deviation"), least_deviation, chance)
        return ratio, deviation / math.sqrt(self.epochs)


def file_order_deviation(file_sizes: Sequence[float]) -> float:
    """Returns the (simulated) deviation of the displacement ratio if only files are shuffled."""
    shares = np.asarray(file_sizes, dtype=float) / max(1, sum(file_sizes))
    starts = np.cumsum(shares) - shares
    random = np.random.default_rng(_SEED)
    displacements = []
    for _ in range(_SIMULATED_ORDERS):
        order = random.permutation(shares.size)
        moved = np.cumsum(shares[order]) - shares[order]
        displacements.append(np.sum(shares[order] * np.abs(moved - starts[order])))
    return 3 * float(np.std(displacements))


class Permutation:
    """The unshuffled order of all examples that occur once, to compare shuffled epochs with."""

    def __init__(self, unshuffled: np.ndarray) -> None:
        """Takes the fingerprints (int64, shape [n]) of all examples in the unshuffled order."""
        values, first, counts = np.unique(unshuffled, return_index=True, return_counts=True)
        once = counts == 1
        self._total = unshuffled.size
        self._values = values[once]
        self._ranks = np.empty(self._values.size, np.int64)
        self._ranks[np.argsort(first[once])] = np.arange(self._values.size)
        self.example_count = self._values.size

    @property
    def tells(self) -> bool:
        """Whether enough examples are unique: at least a hundred, and half of all."""
        needed = max(_MIN_EXAMPLES, _MIN_UNIQUE_SHARE * self._total)
        return self.example_count >= needed

    def ratios(self, epoch: np.ndarray, *, batch_size: int) -> Ratios:
        """Returns how one epoch of the same examples is shuffled, given int64 fingerprints, [n].

        With r_j the unshuffled rank of the example that comes j-th:

        - displacement: the mean of |r_j - j|, over (m^2 - 1) / (3m), its expectation under a
          uniformly random permutation (Diaconis and Graham, "Spearman's Footrule as a Measure
          of Disarray", 1977).
        - mixing: (d - d0) / (d1 - d0), where d is the mean distance |r_i - r_j| of two examples
          of one batch, d0 the same for r_j = j, and d1 = (m + 1) / 3 that of any two examples
          (each of the m - k pairs at distance k is as likely), as under a random permutation.
        """
        places = np.minimum(np.searchsorted(self._values, epoch), self.example_count - 1)
        slots = np.flatnonzero(self._values[places] == epoch)
        ranks = self._ranks[places[slots]]
        unshuffled = np.arange(self.example_count)
        expected = (self.example_count**2 - 1) / (3 * self.example_count)
        # Batches of one cannot be mixed, so pairs of neighbors count as batches.
        batches = slots // max(2, batch_size)
        distance, error = _within(ranks, batches)
        unshuffled_distance, _ = _within(unshuffled, batches)
        # One batch that holds everything is mixed by definition.
        scale = (self.example_count + 1) / 3 - unshuffled_distance if batches[-1] else np.inf
        return Ratios(
            displacement=float(np.abs(ranks - unshuffled).mean() / expected),
            mixing=float(1 - ((self.example_count + 1) / 3 - distance) / scale),
            mixing_error=float(error / scale),
        )


def _within(ranks: np.ndarray, batches: np.ndarray) -> tuple[float, float]:
    """Returns the mean distance of two ranks in one of the ascending `batches`, and its error."""
    sizes = np.bincount(batches)
    in_batch = ranks[np.lexsort((ranks, batches))]
    place = np.arange(ranks.size) - (np.cumsum(sizes) - sizes)[batches]
    # In ascending order the k-th of b values is subtracted b - 1 - k times and added k times.
    distances = np.bincount(batches, weights=(2 * place + 1 - sizes[batches]) * in_batch)
    pairs = sizes * (sizes - 1) / 2
    mean = distances.sum() / pairs.sum()
    # Standard error of a ratio of batch sums (Cochran, "Sampling Techniques", 1977, chapter 6).
    residuals = np.square(distances - mean * pairs).sum()
    error = np.sqrt(residuals * sizes.size / max(1, sizes.size - 1)) / pairs.sum()
    return mean, error
