"""The role of a process among several workers."""

import json

import pytest

from tfx_perf.core import errors, workers

SERVERS = workers.ParameterServers(worker_count=2, server_count=1)
CONFIGS = workers.configs_of(["a:1", "b:1", "c:1", "d:1"], server_count=1)
ALIKE = workers.configs_of(["a:1", "b:1"])


def test_every_process_has_its_task():
    assert {name: json.loads(config)["task"] for name, config in CONFIGS.items()} == {
        "coordinator": {"type": "chief", "index": 0},
        "worker 0": {"type": "worker", "index": 0},
        "worker 1": {"type": "worker", "index": 1},
        "server 0": {"type": "ps", "index": 0},
    }
    assert list(CONFIGS) == workers.names_of(2, server_count=1)
    clusters = [json.loads(config)["cluster"] for config in CONFIGS.values()]
    expected = {"chief": ["a:1"], "worker": ["b:1", "c:1"], "ps": ["d:1"]}
    assert all(cluster == expected for cluster in clusters)


def test_only_the_coordinator_trains_and_is_alone():
    assert workers.worker_of(CONFIGS["coordinator"]) == workers.Worker(index=0, count=1)
    assert not workers.only_serves(CONFIGS["coordinator"])
    for name in ("worker 1", "server 0"):
        assert workers.only_serves(CONFIGS[name])
        with pytest.raises(errors.UserError, match="beside parameter servers only serves"):
            workers.worker_of(CONFIGS[name])


@pytest.mark.parametrize(
    ("config", "servers"),
    [*((each, SERVERS) for each in CONFIGS.values()), (ALIKE["worker 1"], None), ("", None)],
)
def test_who_serves_is_counted(config, servers, monkeypatch):
    monkeypatch.setenv("TF_CONFIG", config)
    assert workers.these_servers() == servers


def test_workers_alike_all_train():
    assert list(ALIKE) == workers.names_of(2, server_count=0) == ["worker 0", "worker 1"]
    assert workers.worker_of(ALIKE["worker 1"]) == workers.Worker(index=1, count=2)
    assert not workers.only_serves(ALIKE["worker 1"])
    local = workers.local_configs(1, server_count=2)
    assert list(local) == ["coordinator", "worker 0", "server 0", "server 1"]
