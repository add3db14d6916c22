"""OptimizedTrainer hands its training to a coordinator: real executor, real processes.

It is started by `distributed`, or by a job's operator, and its `strategy` is the one of
`parameter_servers`.
"""

import os
import pathlib
import subprocess
import time

import pytest
import tensorflow as tf
import training_cases

from tfx_perf import isolate
from tfx_perf.core import errors
from tfx_perf.distribute.parameter_server import heartbeat
from tfx_perf.hardware import host
from tfx_perf.training.speedups.plan import TrainingPlan

SERVED = {"workers": 2, "parameter_servers": 1}
_OWN = "ParameterServerStrategy(tf.distribute.cluster_resolver.TFConfigClusterResolver())"
MODULE = training_cases.UNCONVERTED


def module(strategy, **changes):
    template = training_cases.MODULE.replace("MirroredStrategy()", strategy)
    return {**MODULE, "template": template, **changes}


@pytest.mark.slow
@pytest.mark.parametrize("strategy", ["get_strategy()", _OWN], ids=["none", "own"])
def test_a_module_trains_beside_parameter_servers(strategy, trainer, monkeypatch):
    monkeypatch.setattr(host, "may_have_accelerators", lambda: False)
    asked, start = [], isolate._SERVER.start

    def noted(request, **given):
        asked.append(request["is_forked"])
        return start(request, **given)

    monkeypatch.setattr(isolate._SERVER, "start", noted)
    trainer.run(module=module(strategy), distribution=SERVED)
    assert len(asked) >= 4 and all(asked)
    record = trainer.record
    assert record.environment["strategy"] == "ParameterServerStrategy"
    assert record.environment["parameter_server_count"] == "1"
    assert (record.worker_count, record.global_batch_size, record.train_step_count) == (2, 10, 120)
    assert record.plan == TrainingPlan(steps_per_execution=10)
    assert record.figures()["examples_per_second"]
    assert record.figures()["peak_memory_bytes"] is None
    assert set(record.losses) == {"loss", "val_loss"}
    written = {path.name for path in pathlib.Path(trainer.perf_metrics.uri).iterdir()}
    assert written == {
        "metrics.json", "report.html", "job.json", "coordinator.log", "worker-0.log",
        "worker-1.log", "server-0.log",
    }  # fmt: skip
    saved = tf.saved_model.load(str(pathlib.Path(trainer.model.uri, "Format-Serving")))
    assert saved.signatures


@pytest.mark.slow
def test_a_model_of_keras_3_is_refused(trainer):
    with pytest.raises(errors.UserError, match="Expected a model of tf_keras under"):
        trainer.run(module=module("get_strategy()", line="keras"), distribution=SERVED)


# Kills the server or worker of that kind, once.
KILLS = """
    import json, os, psutil, signal
    from tfx_perf.training.recovery import checkpoint_writer
    checkpoint_writer._SAVE_SHARE = 0

    def killed(kind):
        host = json.loads(os.environ["TF_CONFIG"])["cluster"][kind][0]
        for process in psutil.process_iter():
            try:
                ports = [each.laddr.port for each in process.net_connections() if not each.raddr]
            except psutil.Error:
                continue
            if int(host.rpartition(":")[2]) in ports:
                process.send_signal(signal.SIGKILL)

    class Fuse(keras.callbacks.Callback):
        def on_epoch_begin(self, epoch, logs=None):
            if epoch == 3 and not os.path.exists({flag!r}):
                open({flag!r}, "w").close()
                killed({kind!r})

    with autograph.libraries_unconverted():
        model.fit(train, steps_per_epoch=20, epochs=6, verbose=0, callbacks=[Fuse()])"""


def killing(kind, tmp_path):
    train = KILLS.strip().format(kind=kind, flag=str(tmp_path / "flag"))
    return module("get_strategy()", train=train)


@pytest.mark.slow
@pytest.mark.parametrize("place", ["here", "job"])
def test_all_continue_after_a_server_was_killed(place, trainer, cluster, tmp_path):
    job = cluster.settings(parameter_server_count=1)
    settings = {"distribution": {**job, "restarts": 1}}
    if place == "here":
        settings = {"distribution": SERVED, "checkpoint_folder": str(tmp_path / "checkpoints")}
    trainer.run(module=killing("ps", tmp_path), checkpoint_every_steps=20, **settings)
    assert (tmp_path / "flag").exists()
    assert trainer.record.resumed_step >= 40
    (note,) = [each for each in trainer.record.notes if "started again" in each]
    assert place == "job" or "server 0: was killed (SIGKILL)" in note
    assert len(cluster.made) == (2 if place == "job" else 0)


STANDS_IN = "import time; time.sleep(600)"
KILLED_ONCE = """
import os, signal, time
if not os.path.exists("killed"):
    open("killed", "w").close()
    os.kill(os.getpid(), signal.SIGKILL)
open("again", "w").close()
time.sleep(600)
"""
WAITS_FOR_IT = """
import os, time
while not os.path.exists("again"):
    time.sleep(0.05)
"""


def is_alive(probe):
    return subprocess.run(probe, check=False).returncode == 0


def test_a_job_ends_with_its_chief_and_not_with_a_worker(trainer, cluster, tmp_path):
    chief = WAITS_FOR_IT + training_cases.LEAVES_A_MODEL
    cluster.stand_ins = {0: chief, 1: KILLED_ONCE, 2: STANDS_IN, 3: STANDS_IN}
    job = cluster.settings(parameter_server_count=1)
    trainer.run(module=MODULE, distribution={**job, "restarts": 1})
    (made,) = cluster.made
    spec = made.manifest["spec"]
    replicas = {
        name: (each["replicas"], each["restartPolicy"])
        for name, each in spec["tfReplicaSpecs"].items()
    }
    assert replicas == {"Chief": (1, "Never"), "Worker": (2, "ExitCode"), "PS": (1, "Never")}
    assert "successPolicy" not in spec
    chief, *serving = (
        each["template"]["spec"]["containers"][0] for each in spec["tfReplicaSpecs"].values()
    )
    assert "livenessProbe" not in chief
    file = str(tmp_path / "heartbeat")
    for container in serving:
        (own,) = (each["value"] for each in container["env"] if each["name"] == heartbeat.VARIABLE)
        *shell, code = container["livenessProbe"]["exec"]["command"]
        probe = [*shell, code.replace(own, file)]
        assert is_alive(probe)  # before the first heartbeat
        for seconds, expected in ((0, True), (50, True), (70, False)):
            written = time.time() - seconds
            pathlib.Path(file).touch()
            os.utime(file, (written, written))
            assert is_alive(probe) == expected
        pathlib.Path(file).unlink()
    assert made.restarts == 1
    assert "backoffLimit" not in spec["runPolicy"]


_KILLED = "import os, signal, time; time.sleep(0.5); os.kill(os.getpid(), signal.SIGKILL)"


@pytest.mark.parametrize(
    ("restarts", "words"),
    [(1, r"worker 0: 2 pods.*distribution.restarts=1"), (0, "worker 0: .*OOMKilled")],
)
def test_restarts_that_the_operator_does_not_count_are_counted(restarts, words, trainer, cluster):
    cluster.stand_ins = {0: STANDS_IN, 1: _KILLED, 2: STANDS_IN, 3: STANDS_IN}
    job = cluster.settings(parameter_server_count=1)
    with pytest.raises(errors.MeasurementError, match=words):
        trainer.run(module=MODULE, distribution={**job, "restarts": restarts})
    assert len(cluster.made) == 1 + restarts
    assert restarts or not cluster.made[0].restarts  # only the operator restarts it


@pytest.mark.slow
def test_the_coordinator_of_a_job_continues_without_a_worker(trainer, cluster, tmp_path):
    job = cluster.settings(parameter_server_count=1)
    trainer.run(module=killing("worker", tmp_path), distribution={**job, "restarts": 2})
    record = trainer.record
    (made,) = cluster.made
    assert made.restarts == 1
    assert list(made.manifest["spec"]["tfReplicaSpecs"]) == ["Chief", "Worker", "PS"]
    assert (record.worker_count, record.resumed_step) == (2, None)
    assert record.environment["strategy"] == "ParameterServerStrategy"
    assert (pathlib.Path(trainer.perf_metrics.uri) / "coordinator.log").exists()
