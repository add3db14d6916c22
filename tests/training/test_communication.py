"""How long replicas wait for each other: real workers, and real replicas of one process.

The figures that are served while they train come from `recent_waits`.
"""

import json
import pathlib

import communicating
import pytest
import tensorflow as tf
from prometheus_client.parser import text_string_to_metric_families

from tests.training import script_forks, two_workers
from tfx_perf.training import scaling
from tfx_perf.training.measuring import accounts, communication

pytestmark = pytest.mark.each_choice

_SCRIPT = pathlib.Path(__file__).with_name("communicating.py")
_SLEEP_SECONDS = 0.03


def trained(package, place, *, replicas, sleep_seconds, optimizer="SGD"):
    """Returns the results of each worker, or of the only process."""
    arguments = [package, str(place), str(replicas), str(sleep_seconds), optimizer]
    if replicas == 1:
        ended = two_workers.run(_SCRIPT, [arguments] * 2, timeout=400)
    else:
        ended = [script_forks.run(_SCRIPT, *arguments, timeout=400)]
    for done in ended:
        assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    return [json.loads(path.read_text()) for path in sorted(place.glob("*.json"))]


@pytest.mark.parametrize(
    ("package", "replicas", "optimizer"),
    [
        ("keras", 1, "SGD"),
        pytest.param("tf_keras", 1, "SGD", marks=pytest.mark.slow),
        pytest.param("keras", 2, "SGD", marks=pytest.mark.slow),
        pytest.param("tf_keras", 2, "SGD", marks=pytest.mark.slow),
        pytest.param("tf_keras", 2, "legacy.SGD", marks=pytest.mark.slow),
    ],
)
def test_the_slow_replica_is_waited_for(package, replicas, optimizer, tmp_path):
    found = trained(
        package, tmp_path, replicas=replicas, sleep_seconds=_SLEEP_SECONDS, optimizer=optimizer
    )
    assert len(found) == (2 if replicas == 1 else 1)
    assert all(each["communication"] == found[0]["communication"] for each in found)
    account = accounts.CommunicationAccount.model_validate(found[0]["communication"])
    first, second = account.replicas
    assert [first.worker, second.worker] == ([0, 1] if replicas == 1 else [0, 0])
    assert account.slowest == 1
    assert account.step_time_seconds > _SLEEP_SECONDS
    assert _SLEEP_SECONDS / 2 < first.wait_time_seconds < account.step_time_seconds
    assert second.wait_time_seconds < _SLEEP_SECONDS / 2
    rows = 8 * 3  # number of rows of both replicas, and the rows that the loss counts
    assert account.reduced_bytes_per_step == 4 * (4 * 50 + 50) + rows
    figures = found[0]["figures"]
    assert figures["communication_share_ratio"] == pytest.approx(account.communication_share)
    assert figures["load_imbalance_ratio"] > 0.1
    assert figures["energy_joules"] == communicating.JOULES  # both run on this machine
    counts = [figures[f"{name}_count"] for name in ("replica", "worker", "host")]
    assert counts == [2, 2 if replicas == 1 else 1, 1]
    assert found[0]["environment"]["replica_count"] == "2"
    where = "2 workers (MultiWorker" if replicas == 1 else "2 replicas ("
    assert f" on {where}MirroredStrategy): " in found[0]["page"]
    assert ("<h2>More workers</h2>" in found[0]["page"]) == (replicas == 1)
    who = "worker 1" if replicas == 1 else "replica 1"
    assert who in found[0]["advice"]["load_imbalance"]

    first_seen, last_seen = (served(found, index) for index in (0, 1))
    assert ("replica_wait_ratio", "0") not in first_seen  # there is nothing to compare with yet
    waits = [last_seen["replica_wait_ratio", replica] for replica in "01"]
    assert waits[0] - waits[1] > figures["load_imbalance_ratio"] > 0.1
    given = last_seen["reduced_bytes_total", "0"]
    assert given > first_seen["reduced_bytes_total", "0"] > 0
    assert given % account.reduced_bytes_per_step == 0
    assert [last_seen[f"{name}_count", ""] for name in ("replica", "worker")] == counts[:2]
    if replicas == 1:
        assert ("load_imbalance_ratio", "") not in last_seen  # a worker knows only its own wait
    else:
        assert last_seen["communication_share_ratio", ""] == min(waits)
        imbalance = (waits[0] - waits[1]) / 2
        assert last_seen["load_imbalance_ratio", ""] == pytest.approx(imbalance)


def served(found, index):
    """Returns the values that all processes served in a scrape, by name and replica."""
    return {
        (sample.name.removeprefix("tfx_perf_"), sample.labels.get("replica", "")): sample.value
        for each in found
        for family in text_string_to_metric_families(each["scrapes"][index])
        for sample in family.samples
    }


def account(*waits, step_time=0.1):
    replicas = tuple(
        accounts.ReplicaAccount(worker=worker, wait_time_seconds=wait)
        for worker, wait in enumerate(waits)
    )
    return accounts.CommunicationAccount(
        step_time_seconds=step_time, reduced_bytes_per_step=8, replicas=replicas
    )


def test_the_shares():
    found = account(0.03, 0.01, 0.05)
    assert found.communication_share == pytest.approx(0.1)
    assert found.load_imbalance == pytest.approx(0.2)
    assert found.slowest == 1
    # Two clocks measured the two times.
    assert account(0.3, 0.2).communication_share == 1.0
    assert account(0.03, 0.0299).slowest is None


@pytest.mark.parametrize(("steps_a_epoch", "wait_seconds"), [(10, 0.01), (1, 0.5)])
def test_waits_at_the_start_of_epochs_count_only_if_there_are_no_others(
    steps_a_epoch, wait_seconds
):
    meter, steps = communication.CommunicationMeter(), 0
    meter._totals, meter._replica_count = communication._new_totals((2, 2)), 2
    meter.on_warm(1)
    for _ in range(3):
        meter.on_epoch_start(1 + steps)
        for step in range(steps_a_epoch):
            row = [0.01 if step else 0.5, 8.0]
            tf.raw_ops.ResourceScatterAdd(
                resource=meter._totals, indices=[0, 1], updates=tf.constant([row] * 2, tf.float64)
            )
            steps += 1
            if not step:
                meter.on_epoch_started(1 + steps)
    found = meter.account(
        tf.distribute.get_strategy(),
        step_count=1 + steps,
        mean_step_time_seconds=1.0,
        epoch_start_seconds=0.25,
        peak_memory_bytes=None,
    )
    assert [each.wait_time_seconds for each in found.replicas] == pytest.approx([wait_seconds] * 2)
    assert found.reduced_bytes_per_step == 8
    assert found.epoch_start_share == pytest.approx(0.2)


def test_more_workers_wait_longer_for_a_transfer_in_a_ring():
    found = account(0.02, 0.006)  # the last to arrive waits for the transfer alone
    seconds = [scaling.step_time_seconds(found, count) for count in (1, 2, 4, 1000)]
    assert seconds == pytest.approx([0.094, 0.1, 0.103, 0.106], abs=1e-4)


def test_unmetered_steps_have_no_figures():
    meter = communication.CommunicationMeter()
    meter.on_warm(20)
    found = meter.account(
        None,
        step_count=40,
        mean_step_time_seconds=0.1,
        epoch_start_seconds=0.0,
        peak_memory_bytes=None,
    )
    assert found is None
