"""Which worker a process is."""

import json

import pytest

from tfx_perf import errors, workers

_HOSTS = ["a:1", "b:1", "c:1"]


@pytest.mark.parametrize("index", [0, 2])
def test_a_worker_is_known_by_what_was_composed_for_it(index, monkeypatch):
    text = workers.config_of(workers.Worker(index, 3), hosts=_HOSTS)
    assert json.loads(text)["cluster"] == {"worker": _HOSTS}
    assert workers.worker_of(text) == workers.Worker(index, 3)
    monkeypatch.setenv(workers.VARIABLE, text)
    assert workers.this() == workers.Worker(index, 3)
    assert workers.this().is_chief == (index == 0)


@pytest.mark.parametrize("text", ["", "{", '{"cluster": {}, "task": {"type": "ps", "index": 0}}'])
def test_what_is_no_worker_decides_for_itself(text, monkeypatch):
    monkeypatch.setenv(workers.VARIABLE, text)
    assert workers.this() == workers.Worker(0, 1)
    with pytest.raises(errors.UserError, match="TF_CONFIG"):
        workers.worker_of(text)
