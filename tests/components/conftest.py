import pytest
import training_cases

from tfx_perf.training.speedups import onednn


@pytest.fixture
def onednn_decided(monkeypatch):
    """No turns with oneDNN, whatever the processor: they run the user's code three times more."""
    monkeypatch.setattr(onednn, "is_open", lambda: False)


@pytest.fixture
def trainer(tmp_path, onednn_decided):
    """Runs OptimizedTrainer in the test's folder."""
    return training_cases.Trainer(tmp_path)


@pytest.fixture
def cluster(tmp_path, monkeypatch):
    """A cluster that OptimizedTrainer finds; checks at the end that no job is left."""
    pytest.importorskip("kubernetes.client", reason="the extra tfx-perf[kfp] is not installed")
    import training_cluster

    with training_cluster.at_hand(tmp_path, monkeypatch) as cluster:
        yield cluster
