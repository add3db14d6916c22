"""Many rules, one error rate.

Holm, "A simple sequentially rejective multiple test procedure", Scand. J. Statist. 6 (1979).
"""

from collections.abc import Sequence


def levels(p_values: Sequence[float], *, rate: float) -> list[float]:
    """Returns the level of each test; a test rejects if its p-value is at or below it.

    The probability that any true hypothesis is rejected is then at most `rate`, however the
    tests depend on each other.

    Args:
        p_values: one for each test.
        rate: of false rejections, over all tests together.
    """
    found = [0.0] * len(p_values)
    left = len(p_values)
    for index in sorted(range(len(p_values)), key=p_values.__getitem__):
        found[index] = rate / left
        # After the first that does not reject, the others are held to its level.
        if p_values[index] <= found[index] and left > 1:
            left -= 1
    return found
