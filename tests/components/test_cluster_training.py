"""OptimizedTrainer hands its training to workers: the real executor, the real processes."""

import pathlib

import pytest
import tensorflow as tf
import training_cases

pytest.importorskip("kubernetes.client", reason="the extra tfx-perf[kfp] is not installed")
from training_cluster import TrainingCluster  # noqa: E402 (which needs it)

from tfx_perf.components.optimized_trainer.cluster import job_api, job_run  # noqa: E402

# Without the conversion of tf_keras itself, which takes half a minute.
MODULE = {
    "line": "tf_keras",
    "beginning": "from tfx_perf import autograph",
    "template": training_cases.MODULE.replace(
        "MirroredStrategy()", "MultiWorkerMirroredStrategy()"
    ).replace("batch_size=10,", "batch_size=10, shuffle=False,"),
    "train": f"with autograph.tf_keras_unconverted():\n        {training_cases.FIT}",
}


@pytest.fixture
def trainer(tmp_path):
    (tmp_path / "data").mkdir()
    return training_cases.Trainer(tmp_path / "data")


@pytest.fixture
def cluster(tmp_path, monkeypatch):
    (tmp_path / "cluster").mkdir()
    (tmp_path / "shared").mkdir()
    monkeypatch.setattr(job_api, "_FIRST_PAUSE_SECONDS", 0.01)
    monkeypatch.setattr(job_run, "_END_POLL_SECONDS", 0.05)
    cluster = TrainingCluster(tmp_path / "cluster")
    with cluster.running() as path:
        monkeypatch.setenv("KUBECONFIG", str(path))
        yield cluster


def job_settings(tmp_path, kind="TFJob", **settings):
    shared = str(tmp_path / "shared")
    own = {"image": "example/taxi:1", "volumes": {shared: "tfx-perf-shared"}}
    if kind == "TrainJob":
        own = {"runtime": "tfx-perf"}
    return {
        "job": {
            "kind": kind, "worker_count": 2, "shared_folder": shared, "cpu": 1, "memory": "2Gi",
            "poll_seconds": 0.1, **own, **settings,
        }
    }  # fmt: skip


def variables(trainer):
    model = tf.saved_model.load(str(pathlib.Path(trainer.model.uri, "Format-Serving")))
    return [variable.numpy() for variable in model.variables]


@pytest.mark.parametrize("kind", ["TFJob", pytest.param("TrainJob", marks=pytest.mark.slow)])
def test_two_workers_train_as_one_would(kind, trainer, cluster, tmp_path):
    trainer.run(module=MODULE, seed=5, distribution=job_settings(tmp_path, kind))
    record = trainer.record
    assert record.environment["strategy"] == "MultiWorkerMirroredStrategy"
    assert record.environment["worker_count"] == "2"
    assert (record.worker_count, record.global_batch_size, record.train_step_count) == (2, 10, 120)
    assert record.figures()["examples_per_second"] == 10 / record.mean_step_time_seconds
    assert record.plan.is_plain_fit
    assert record.plan_reason == "2 workers train together"
    assert not record.trials
    assert trainer.perf_metrics.get_float_custom_property("worker_count") == 2
    assert trainer.perf_metrics.get_string_custom_property("plan") == "plain fit"
    assert list(pathlib.Path(trainer.model_run.uri).rglob("events*"))
    written = {path.name for path in pathlib.Path(trainer.perf_metrics.uri).iterdir()}
    assert written == {
        "metrics.json", "report.html", "job.json", "worker-0.log", "worker-1.log"
    }  # fmt: skip
    assert not cluster.jobs
    assert not list((tmp_path / "shared").iterdir())
    together = variables(trainer)
    trainer.run(module=MODULE, seed=5, trial_budget_seconds=0)
    assert trainer.record.worker_count == 1
    assert len(together) == len(variables(trainer)) > 0
    for one, other in zip(together, variables(trainer), strict=True):
        tf.debugging.assert_near(one, other, atol=1e-5)
