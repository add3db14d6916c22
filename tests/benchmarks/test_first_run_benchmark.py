"""The report of the benchmark of first runs on its measurements."""

import pytest

from benchmarks.first_run import results, run_job


def cell(*, stock, first):
    """Returns a cell of three rounds, of which the last was disturbed."""
    by_node = dict(zip(run_job.OURS, (0.5 * first, 0.2 * first, 0.3 * first), strict=True))
    slow = {node: 9 * seconds for node, seconds in by_node.items()}
    rounds = [(stock, by_node), (stock, by_node), (9 * stock, slow)]
    runs = tuple(
        results.Run(stock_seconds=seconds, first_seconds=nodes, second_seconds=nodes)
        for seconds, nodes in rounds
    )
    return results.CellResult(training="dense", line="keras", runs=runs)


@pytest.mark.parametrize(
    ("stock", "first", "verdict"),
    [
        (10.0, 15.0, "met"),
        (10.0, 16.0, "missed by 1.0 s"),
        (60.0, 60.0, "met"),
        (60.0, 62.0, "missed by 2.0 s"),
    ],
)
def test_a_short_training_has_five_seconds_and_a_long_one_none(stock, first, verdict):
    assert cell(stock=stock, first=first).verdict == verdict


def test_a_cell_has_medians_and_ratios_of_pairs():
    found = cell(stock=10.0, first=20.0)
    assert found.stock.value == pytest.approx(10.0)
    assert found.chain_seconds("first") == pytest.approx(20.0)
    assert found.ratio("second").value == pytest.approx(2.0)
