"""The text of reports on stored records."""

import json

import golden_pages
import pytest

EXPECTED = json.loads(golden_pages.FILE.read_text(encoding="utf-8"))


@pytest.fixture(scope="module")
def found():
    return golden_pages.lines()


@pytest.mark.parametrize("name", EXPECTED)
def test_a_page_is_unchanged(name, found):
    assert found[name] == EXPECTED[name]


def test_no_page_is_left_over(found):
    assert list(EXPECTED) == list(found)
