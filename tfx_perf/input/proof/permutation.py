"""How far an epoch's order is from the unshuffled one."""

from typing import NamedTuple

import numpy as np

_MIN_EXAMPLES = 100
_MIN_UNIQUE_SHARE = 0.5


class Ratios(NamedTuple):
    """Of one epoch; see `ShuffleQuality` for what the ratios mean.

    Attributes:
        displacement: 1 as of a full shuffle, 0 for none.
        mixing: on the same scale.
        mixing_error: standard error of the latter, from how much the batches differ.
    """

    displacement: float
    mixing: float
    mixing_error: float


class Permutation:
    """The unshuffled order of a split, to which shuffled epochs are compared.

    Examples are known by their fingerprints. Those that occur more than once cannot be told
    apart and are left out; what is said of the rest then holds for all.

    Attributes:
        example_count: m, the examples that occur once.
    """

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
        """Whether enough examples occur once: a hundred, and half of all."""
        needed = max(_MIN_EXAMPLES, _MIN_UNIQUE_SHARE * self._total)
        return self.example_count >= needed

    def ratios(self, epoch: np.ndarray, *, batch_size: int) -> Ratios:
        """Returns how one epoch of the same examples is shuffled.

        With r_j the unshuffled rank of the example that comes j-th:

        - displacement: the mean of |r_j - j|, over (m^2 - 1) / (3m), its expectation under a
          uniformly random permutation (Diaconis and Graham, "Spearman's Footrule as a Measure
          of Disarray", 1977).
        - mixing: (d - d0) / (d1 - d0), where d is the mean distance |r_i - r_j| of two examples
          of one batch, d0 the same for r_j = j, and d1 = (m + 1) / 3 that of any two examples
          (each of the m - k pairs at distance k is as likely), which a random permutation has
          whatever the batch size.

        Args:
            epoch: fingerprints in their order, int64, shape [n].
            batch_size: examples in a batch.
        """
        places = np.minimum(np.searchsorted(self._values, epoch), self.example_count - 1)
        slots = np.flatnonzero(self._values[places] == epoch)
        ranks = self._ranks[places[slots]]
        unshuffled = np.arange(self.example_count)
        expected = (self.example_count**2 - 1) / (3 * self.example_count)
        # A batch of one has no composition; its neighbours matter all the same.
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
    """Returns the mean distance of two ranks of one batch, and its standard error.

    Args:
        ranks: shape [m].
        batches: to which batch each rank belongs, ascending.
    """
    sizes = np.bincount(batches)
    in_batch = ranks[np.lexsort((ranks, batches))]
    place = np.arange(ranks.size) - (np.cumsum(sizes) - sizes)[batches]
    # In ascending order the k-th of b values is subtracted b - 1 - k times and added k times.
    distances = np.bincount(batches, weights=(2 * place + 1 - sizes[batches]) * in_batch)
    pairs = sizes * (sizes - 1) / 2
    mean = distances.sum() / pairs.sum()
    # Of a ratio of sums over batches (Cochran, "Sampling Techniques", 1977, chapter 6).
    residuals = np.square(distances - mean * pairs).sum()
    error = np.sqrt(residuals * sizes.size / max(1, sizes.size - 1)) / pairs.sum()
    return mean, error
