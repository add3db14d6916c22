"""What more workers would take: the ring's `network`, scaled to what was waited.

The `network_probe` of real workers is in `test_communication`; the `cost` is money.
"""

import functools

import pytest

from tfx_perf.training.measuring.accounts import CommunicationAccount, ReplicaAccount
from tfx_perf.training.measuring.network import Network
from tfx_perf.training.scaling import Scaling

_NETWORK = Network(latency_seconds=1e-4, bytes_per_second=1e8)


def account(*waits, step_time=0.1, network=_NETWORK):
    return CommunicationAccount(
        step_time_seconds=step_time,
        reduced_bytes_per_step=1_000_000,
        reduced_tensors_per_step=10,
        replicas=tuple(
            ReplicaAccount(worker=worker, wait_time_seconds=wait)
            for worker, wait in enumerate(waits)
        ),
        network=network,
    )


def test_a_ring_sends_everything_twice_in_as_many_messages_as_there_are_workers():
    assert _NETWORK.reduction_seconds(1_000_000, workers=1) == 0.0
    assert _NETWORK.reduction_seconds(1_000_000, workers=2) == pytest.approx(0.0002 + 0.01)
    found = _NETWORK.reduction_seconds(1_000_000, workers=4, tensors=10)
    assert found == pytest.approx(10 * 6 * 1e-4 + 1.5 * 0.01)


_fitted = functools.partial(
    Network.fitted,
    once=[0.0010, 0.0011, 0.0012, 0.0013, 0.0090],  # one on a machine that was busy
    chained=10,
    size_bytes=1_000_000,
    workers=2,
)
_LONGER = [0.0212, 0.0212, 0.0212, 0.0213, 0.0214]


def test_a_network_is_what_reductions_take_beyond_one_of_nothing():
    found = _fitted(chain=_LONGER, some=[2 * each for each in _LONGER])
    assert found.latency_seconds == pytest.approx(0.02 / 10 / 2)
    assert found.bytes_per_second == pytest.approx(1_000_000 / (0.0424 - 0.0012))


@pytest.mark.parametrize("as_nothing", ["chain", "some"])
def test_what_cannot_be_told_from_a_reduction_of_nothing_is_no_network(as_nothing):
    times = {"chain": _LONGER, "some": _LONGER}
    for noise in ([0.0012] * 5, [0.0010, 0.0011, 0.0013, 0.0014, 0.0015]):
        assert _fitted(**{**times, as_nothing: noise}) is None


def test_it_gives_what_was_measured():
    # The ring would take 2 and 10 ms; the replica that came last waited for 6.
    scaling = Scaling.of(account(0.02, 0.006))
    assert scaling.exposed_ratio == pytest.approx(0.5)
    assert scaling.step_time_seconds(2) == pytest.approx(0.1)
    assert scaling.step_time_seconds(1) == pytest.approx(0.094)
    assert scaling.efficiency(2) == pytest.approx(0.94)
    assert scaling.step_time_seconds(4) == pytest.approx(0.094 + 0.5 * (0.006 + 0.015))


def test_another_network():
    slow = Network(latency_seconds=1e-4, bytes_per_second=1e7)
    scaling = Scaling.of(account(0.02, 0.012)).on(slow)
    assert scaling.step_time_seconds(2) == pytest.approx(0.088 + 0.002 + 0.1)


def test_a_million_examples_cost_more_by_what_the_workers_wait():
    scaling = Scaling.of(account(0.02, 0.006))
    cost = functools.partial(
        scaling.cost_per_million_examples, batch_size=100, price_per_hour=3.6
    )
    assert cost(1) == pytest.approx(0.001 * 0.094 * 1e4)  # a second costs 0.001, for 1e4 steps
    assert cost(2) == pytest.approx(cost(1) / scaling.efficiency(2))


@pytest.mark.parametrize("found", [None, account(0.02, 0.01, network=None)])
def test_of_one_worker_nothing_is_known(found):
    assert Scaling.of(found) is None
