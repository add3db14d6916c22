"""How well a pipeline shuffles, beside how fast it is."""

import math
from collections.abc import Sequence

import numpy as np

from tfx_perf import records
from tfx_perf.input.proof import permutation

_TOLERATED_SHARE = 0.9
_STANDARD_ERRORS = 3  # one false alarm in a thousand comparisons
_SIMULATED_ORDERS = 500
_SEED = 20260101


class ShuffleQuality(records.Record):
    """How near shuffled epochs come to a uniformly random order.

    Attributes:
        displacement_ratio: how far an example moves from its place in the unshuffled order, on
            average, over the same under a full shuffle: 0 for no shuffle, 1 for a full one. It
            tells whether the examples come early in one epoch and late in another.
        mixing_ratio: how far apart in the unshuffled order two examples of one batch lie, on
            the same scale. It tells whether a batch is a sample of the whole split: random
            file order alone has a high displacement and no mixing.
        displacement_deviation: standard deviation of the displacement ratio between epochs.
        mixing_deviation: the same of the mixing ratio, or its standard error within an epoch
            if that is more.
        example_count: examples that it was measured on; of large data, those of the first
            files that occur once.
        epochs: how many shuffled epochs were read.
    """

    displacement_ratio: float
    mixing_ratio: float
    displacement_deviation: float
    mixing_deviation: float
    example_count: int
    epochs: int

    @classmethod
    def of_epochs(
        cls, ratios: Sequence[permutation.Ratios], *, example_count: int
    ) -> "ShuffleQuality":
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

    def shortfall(self, default: "ShuffleQuality", *, file_order_deviation: float) -> str:
        """Says in what it shuffles worse than the default, beyond chance; empty if in nothing.

        A ratio falls short if it is below 0.9 of the default's (of 1, if the default's is
        above) by more than three standard errors of the difference. The deviation between
        epochs counts as no less than theory demands, because a few epochs may be alike by luck.

        Args:
            default: measured on the same examples.
            file_order_deviation: see the function of that name.
        """
        for name, floor in (("displacement", file_order_deviation), ("mixing", 0.0)):
            own, own_error = self._estimate(name, floor)
            others, others_error = default._estimate(name, floor)
            error = _STANDARD_ERRORS * math.hypot(own_error, others_error)
            if own + error < _TOLERATED_SHARE * min(1, others):
                return (
                    f"it shuffles worse than the default: {name} ratio {own:.2g} against "
                    f"{others:.2g}, where a full shuffle has 1"
                )
        return ""

    def _estimate(self, name: str, least_deviation: float) -> tuple[float, float]:
        """Returns a ratio and the standard error of it."""
        ratio = getattr(self, f"{name}_ratio")
        # Of a full shuffle, for large m: the variance of the sum of |r_j - j| is
        # (m + 1)(2m^2 + 7) / 45 (Diaconis and Graham, 1977). A window of w examples is such a
        # shuffle m / w times over, which comes to the same relative deviation.
        chance = ratio * math.sqrt(2 / (5 * self.example_count))
        deviation = max(getattr(self, f"{name}_deviation"), least_deviation, chance)
        return ratio, deviation / math.sqrt(self.epochs)


def file_order_deviation(file_sizes: Sequence[float]) -> float:
    """Returns the deviation of the displacement ratio if nothing but whole files is shuffled.

    The order of a few files is a lottery: two of equal size swap places, which gives 1.5,
    or do not, which gives 0. Simulated, because files may differ in size.

    Args:
        file_sizes: in any unit.
    """
    shares = np.asarray(file_sizes, dtype=float) / max(1, sum(file_sizes))
    starts = np.cumsum(shares) - shares
    random = np.random.default_rng(_SEED)
    displacements = []
    for _ in range(_SIMULATED_ORDERS):
        order = random.permutation(shares.size)
        moved = np.cumsum(shares[order]) - shares[order]
        displacements.append(np.sum(shares[order] * np.abs(moved - starts[order])))
    return 3 * float(np.std(displacements))

