"""Drawn cases that take some MB: no candidate grows beyond its budget."""

import pytest

from tests.fuzzing import failures

from .cases import Case
from .memory import MemoryChecker, cases

pytestmark = pytest.mark.each_choice

_MANY = 50


@pytest.fixture(scope="module")
def checker():
    made = MemoryChecker()
    yield made
    made.close()


@pytest.mark.slow
@pytest.mark.parametrize("example", [
    # The table has numbers of a few long strings: a block goes by what its rows become.
    '{"candidate": "columns", "features": [{"dtype": "bytes", "value_bytes": 2000,'
    ' "distinct": 5}], "files": [{"records": 20000}], "memory_budget_bytes": 10000000}',
    # A list of a few strings takes what they take, and no batch has more rows than there are.
    '{"candidate": "block_reader", "features": [{"dtype": "bytes", "kind": "variable",'
    ' "values": 2, "value_bytes": 500000}], "files": [{"records": 20}],'
    ' "calls": [{"batch_size": 1000}], "memory_budget_bytes": 60000000}',
])  # fmt: skip
def test_rows_stay_within_the_budget(example, checker):
    case = Case.from_json(example)
    assert checker.check(case) is None
    assert checker.measured[-1][0] == case


@pytest.mark.one_case
@pytest.mark.parametrize("example", [
    # A few blocks of large strings at a time are more than the split.
    '{"candidate": "block_reader", "features": [{"dtype": "bytes", "value_bytes": 20000}],'
    ' "files": [{"records": 1000}], "memory_budget_bytes": 10000000}',
    # 50 bytes in a file become a row of 4 KB.
    '{"candidate": "columns", "features": [{"dtype": "float", "shape": [1000],'
    ' "has_default": true, "missing": 0.99}], "files": [{"records": 4000}],'
    ' "memory_budget_bytes": 5000000}',
    # And one of 5 KB, of which strings take a header each.
    '{"candidate": "columns", "features": [{"dtype": "bytes", "shape": [200],'
    ' "has_default": true, "missing": 0.99}], "files": [{"records": 4000}],'
    ' "memory_budget_bytes": 5000000}',
])  # fmt: skip
def test_data_that_would_not_fit_are_left_to_the_default_with_the_reason(example, checker):
    case = Case.from_json(example)
    assert checker.check(case) is None
    refused, reasons = checker.refused[-1]
    assert refused == case
    assert all("of memory, the budget is" in reason for reason in reasons)


@pytest.mark.slow
def test_a_table_that_would_not_fit_while_it_is_made_is_given_up_early(checker):
    case = Case.from_json(
        '{"candidate": "columns", "features": [{"dtype": "bytes", "value_bytes": 20000}],'
        ' "files": [{"records": 2000}], "memory_budget_bytes": 40000000}'
    )
    assert checker.check(case) is None
    assert checker.remarks["columns falls back"]


@pytest.mark.slow
@pytest.mark.timeout(0)
def test_no_drawn_case_takes_more_than_its_budget(checker):
    """How many: `DIFFERENTIAL_INPUT_CASES`; again the same: `DIFFERENTIAL_INPUT_SEED`."""
    found = failures.of_many(checker, cases(), "DIFFERENTIAL_INPUT", count=_MANY)
    print(checker.table())
    assert not found.groups, found.table(shrink=False)
