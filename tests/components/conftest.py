import pytest
import training_cases


@pytest.fixture
def trainer(tmp_path):
    """Runs OptimizedTrainer in the test's folder."""
    return training_cases.Trainer(tmp_path)


@pytest.fixture
def cluster(tmp_path, monkeypatch):
    """A cluster that OptimizedTrainer finds; checks at the end that no job is left."""
    pytest.importorskip("kubernetes.client", reason="the extra tfx-perf[kfp] is not installed")
    import training_cluster

    with training_cluster.at_hand(tmp_path, monkeypatch) as cluster:
        yield cluster
