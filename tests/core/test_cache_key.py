"""How two cache keys are compared, and what is said of the differences."""

import pytest

from tfx_perf.core import cache_key

DIGESTS = cache_key.digest(b"before"), cache_key.digest(b"now")


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"python": ("3.11", "3.12")}, "python 3.11 -> 3.12"),
        ({"code": DIGESTS}, "code has changed"),
        ({"code": (cache_key.ABSENT, DIGESTS[0])}, f"code (not recorded) -> {DIGESTS[0]}"),
        ({str(number): ("a", "b") for number in range(6)},
         "0 a -> b; 1 a -> b; 2 a -> b; 3 a -> b; 4 a -> b; and 1 more"),
    ],
)  # fmt: skip
def test_changes_are_described_in_a_phrase(changes, words):
    assert cache_key.describe(changes) == words
