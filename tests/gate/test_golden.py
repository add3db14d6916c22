"""The gate's decisions on fixed histories, with every figure and sentence."""

import json

import golden_histories
import pytest

EXPECTED = json.loads(golden_histories.FILE.read_text(encoding="utf-8"))


@pytest.mark.parametrize("name", golden_histories.HISTORIES)
def test_a_history_is_judged_as_before(name):
    *found, last = golden_histories.decisions(name)
    *expected, expected_last = EXPECTED[name]
    assert last == expected_last
    assert found == expected


def test_no_history_is_left_over():
    assert list(EXPECTED) == list(golden_histories.HISTORIES)
