"""OptimizedTrainer hands its training to workers (`distributed`): real executor, real processes.

On this machine they are run by `distributed`. A `worker` does its training (`worker_training`) over
a `worker_server`; before, `shared_trials`, after the plan that OptimizedTrainer left (`earlier`).
What is told of a worker that fails is the state of its `pod` and its output (`job_run`); the
cluster is asked by `job_api`.
"""

import functools
import logging
import os
import pathlib
import signal
import threading
import time

import numpy as np
import pytest
import tensorflow as tf
import training_cases

from tests.ports import free_port
from tfx_perf.components import types
from tfx_perf.components.optimized_trainer import distributed
from tfx_perf.core import errors
from tfx_perf.distribute.kubernetes import job_api, job_run, manifests
from tfx_perf.training.speedups.plan import PLAIN_FIT, TrainingPlan
from tfx_perf.training.tuning import earlier

pytestmark = pytest.mark.each_choice

MODULE = training_cases.UNCONVERTED | {
    "template": training_cases.MODULE.replace(
        "MirroredStrategy()", "MultiWorkerMirroredStrategy()"
    ).replace("batch_size=10,", "batch_size=10, shuffle=False,")
}


def check_published(trainer):
    """Checks the published results of a training by two workers, however they were started."""
    record = trainer.record
    assert record.environment["strategy"] == "MultiWorkerMirroredStrategy"
    assert record.environment["worker_count"] == "2"
    assert (record.worker_count, record.global_batch_size, record.train_step_count) == (2, 10, 120)
    assert record.figures()["examples_per_second"] == 10 / record.mean_step_time_seconds
    assert trainer.perf_metrics.get_float_custom_property("worker_count") == 2
    assert trainer.perf_metrics.get_string_custom_property("plan") == str(record.plan)
    written = {path.name for path in pathlib.Path(trainer.perf_metrics.uri).iterdir()}
    assert written == {
        "metrics.json", "report.html", "job.json", "worker-0.log", "worker-1.log"
    }  # fmt: skip
    assert list(pathlib.Path(trainer.model.uri, "Format-Serving").rglob("saved_model.pb"))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "line"), [("TFJob", "keras"), ("TFJob", "tf_keras"), ("TrainJob", "tf_keras")]
)
def test_two_workers_train_as_one_would(kind, line, trainer, cluster):
    module = {**MODULE, "line": line}
    trainer.run(module=module, seed=5, expected_runs=1, distribution=cluster.settings(kind))
    check_published(trainer)
    record = trainer.record
    assert record.plan == TrainingPlan(steps_per_execution=10, fused_update=True)
    assert record.plan_reason.startswith(
        "it computes the same as Keras fit, no slower, and the training is too short for trials of "
        "what may be faster: one would cost about"
    )
    assert list(pathlib.Path(trainer.model_run.uri).rglob("events*"))
    together = trainer.variables()
    trainer.run(module=module, seed=5, tuning_seconds=0)
    assert trainer.record.worker_count == 1
    alone = trainer.variables()
    assert together.keys() == alone.keys() != set()
    for name, value in alone.items():
        tf.debugging.assert_near(together[name], value, atol=1e-5, message=name)


@pytest.mark.slow
@pytest.mark.parametrize("place", ["job", "here"])
def test_workers_try_plans_together_and_their_replacements_train_the_same(
    place, trainer, cluster, tmp_path, caplog
):
    distribution = cluster.settings() if place == "job" else {"workers": 2}
    settings = {
        "distribution": distribution, "seed": 5, "checkpoint_every_steps": 10,
        "tuning_seconds": 400,  # more than even a busy machine needs
        "checkpoint_folder": str(tmp_path / "checkpoints") if place == "here" else None,
    }  # fmt: skip
    flag = tmp_path / "flag"
    is_second = 'json.loads(os.environ["TF_CONFIG"])["task"]["index"] == 1'
    train = training_cases.killed_once(flag, condition=is_second)
    module = {**MODULE, "line": "keras", "beginning": "import json", "train": train}
    inputs = {"input_plan": [trainer.plan("default")]}  # the examples are in one file
    flag.touch()  # the flag exists already, so no worker is killed
    trainer.run(module=module, inputs=inputs, **settings)
    check_published(trainer)
    first, expected = trainer.record, trainer.variables()
    reference, *others = first.trials
    assert (reference.status, reference.plan) == ("reference", PLAIN_FIT)
    assert {each.plan.fused_update for each in others if each.step_time} >= {True}
    assert first.resumed_step is None
    flag.unlink()
    inputs["previous_metrics"] = [trainer.perf_metrics]
    trainer.perf_metrics = trainer.artifact(types.PerfMetrics, "next_metrics")
    with caplog.at_level(logging.INFO, logger=earlier.__name__):
        trainer.run(module=module, inputs=inputs, **settings)
    assert any(text.endswith("is used again.") for text in caplog.messages)
    record = trainer.record
    assert flag.exists()
    assert record.plan == first.plan
    assert record.resumed_step >= 40
    (note,) = [each for each in record.notes if "started again" in each]
    assert "worker 1" in note
    assert len(cluster.made) == (3 if place == "job" else 0)
    for name, value in trainer.variables().items():
        np.testing.assert_array_equal(expected[name], value, err_msg=name)


_THREAD = "import threading; threading.Thread(target=lambda: 1 / 0, name='reader').start()"


@pytest.mark.slow
@pytest.mark.parametrize(
    "chosen", ["default", "columns", "block_reader", "default+autotune", "block_reader+autotune"]
)
def test_two_workers_on_this_machine_divide_what_an_input_plan_reads(chosen, trainer, cluster):
    inputs = {"input_plan": [trainer.plan(chosen)]}
    module = {**MODULE, "line": "keras", "beginning": f"{MODULE['beginning']}\n{_THREAD}"}
    settings = {"distribution": {"workers": 2}, "monitoring": {"metrics_port": free_port()}}
    trainer.run(module=module, inputs=inputs, **settings)  # one file of examples; no trials
    assert not cluster.made
    check_published(trainer)
    logs = [pathlib.Path(trainer.perf_metrics.uri, f"worker-{i}.log").read_text() for i in (0, 1)]
    assert ["etrics are served at" in log for log in logs] == [True, False]
    notes = " ".join(trainer.record.notes)
    for name in ("worker 0", "worker 1"):
        assert f"threads of {name} have failed (reader); see " in notes
    assert trainer.record.plan == TrainingPlan(steps_per_execution=10, fused_update=True)
    assert list(pathlib.Path(trainer.model_run.uri).rglob("events*"))


RAISES = """if json.loads(os.environ["TF_CONFIG"])["task"]["index"] == 1:
        raise RuntimeError("planned")
    model.fit(train, steps_per_epoch=2, verbose=0)"""
_PLANNED = r"worker 1: RuntimeError: planned\.\nThe end of its log:\n(.*\n)+RuntimeError: planned$"
_ONE_DEVICE = training_cases.MODULE.replace("MirroredStrategy()", 'OneDeviceStrategy("CPU:0")')


@pytest.mark.slow
@pytest.mark.parametrize(
    ("module", "error", "expected"),
    [
        ({"beginning": "import json, os", "train": RAISES}, errors.MeasurementError, _PLANNED),
        (
            {"template": training_cases.MODULE}, errors.UserError,
            "under tf.distribute.MultiWorkerMirroredStrategy.*Received: MirroredStrategy, with",
        ),
        (
            {"template": _ONE_DEVICE}, errors.UserError,
            "MultiWorkerMirroredStrategy.*Received: OneDeviceStrategy, with",
        ),
    ],
    ids=["raises", "mirrored", "one device"],
)  # fmt: skip
def test_what_goes_wrong_in_a_worker(module, error, expected, trainer, cluster):
    with pytest.raises(error, match=expected):
        trainer.run(module={**MODULE, **module}, distribution=cluster.settings())


# Stand-ins for a worker's command, where no training is needed.
KILLED_ONCE = """
import os, signal
if not os.path.exists("killed"):
    open("killed", "w").close()
    os.kill(os.getpid(), signal.SIGKILL)
"""
SUCCEEDS = training_cases.LEAVES_A_MODEL
ENDS = "print('I end well')"
FAILS = "print('before'); raise SystemExit('I fail on purpose')"
WAITS = "import time; print('I wait', flush=True); time.sleep(600)"
FIRST_WAITS = """
import json, os, time
if json.loads(os.environ["TF_CONFIG"])["task"]["index"] == 0:
    time.sleep(600)
print("I am the second")
"""
WAITS_FOR_FILE = """
import os, time
while not os.path.exists("go_on"):
    time.sleep(0.05)
"""


REPORTS = """
import json, pathlib, sys
report = {{"schema": "tfx_perf.worker_failure/2", "name": "worker {worker}", "seconds": 1.0}}
report |= {{"message": "{message}", "is_users": False, "may_pass": {may_pass}}}
pathlib.Path(sys.argv[1], "failure-worker {worker}.json").write_text(json.dumps(report))
raise SystemExit(1)
"""
SUCCEED = {0: SUCCEEDS, 1: ENDS}


@pytest.fixture
def run(trainer, cluster):
    """Trains with stand-ins for both workers; `settings` are those of the job."""

    def run(stand_ins=SUCCEED, *, restarts=0, **settings):
        cluster.stand_ins = stand_ins
        trainer.run(
            module=MODULE, distribution={**cluster.settings(**settings), "restarts": restarts}
        )

    return run


def is_published(trainer):
    return (pathlib.Path(trainer.model.uri) / "Format-Serving" / "saved_model.pb").exists()


def test_an_unmeasured_training_is_published(trainer, run):
    run()
    assert is_published(trainer)
    assert "a test" in trainer.perf_metrics.get_string_custom_property("plan")
    log = pathlib.Path(trainer.perf_metrics.uri) / "worker-1.log"
    assert log.read_text() == "I end well\n"


@pytest.mark.one_case
@pytest.mark.parametrize("policy", [{}, {"imagePullPolicy": "Always"}])
def test_environment_and_arguments_of_the_workers(run, cluster, policy):
    secret = {"name": "KEY", "valueFrom": {"secretKeyRef": {"name": "s3-key", "key": "secret"}}}
    claim = {"name": "shared", "persistentVolumeClaim": {"claimName": "tfx-perf-shared"}}
    own = {
        "nodeSelector": {"pool": "gpu"},
        "tolerations": [{"key": "nvidia.com/gpu", "operator": "Exists"}],
        "serviceAccountName": "trainer", "securityContext": {"runAsUser": 7}, "volumes": [claim],
    }  # fmt: skip
    container = {
        "name": "tensorflow", "env": [secret], **policy,
        "resources": {"limits": {"memory": "2Gi", "nvidia.com/gpu": "2"}},
        "volumeMounts": [{"name": "shared", "mountPath": str(cluster.shared)}],
    }  # fmt: skip
    metadata = {"labels": {"team": "a"}}
    run(pod_template={"metadata": metadata, "spec": {**own, "containers": [container]}})
    (job,) = cluster.made
    replica = job.manifest["spec"]["tfReplicaSpecs"]["Worker"]
    pod = replica["template"]["spec"]
    (given,) = pod["containers"]
    assert (replica["replicas"], replica["restartPolicy"]) == (2, "Never")
    assert "backoffLimit" not in job.manifest["spec"]["runPolicy"]
    assert given["terminationMessagePolicy"] == "FallbackToLogsOnError"
    assert given["imagePullPolicy"] == policy.get("imagePullPolicy", "IfNotPresent")
    assert {name: given[name] for name in container} == container
    security = pod["securityContext"]
    assert (security["runAsNonRoot"], security["runAsUser"]) == (True, 7)
    assert {name: pod[name] for name in own} == {**own, "securityContext": security}
    assert "automountServiceAccountToken" not in pod
    assert replica["template"]["metadata"]["labels"].keys() > metadata["labels"].keys()


def test_a_worker_that_fails_is_named_with_the_end_of_its_log(trainer, run, cluster):
    with pytest.raises(errors.MeasurementError) as caught:
        run({0: WAITS, 1: FAILS}, restarts=1)
    assert len(cluster.made) == 2
    message = str(caught.value)
    assert "worker 1: TFJob" in message  # not worker 0, which is ended because of worker 1
    assert "worker-1 Failed (Error)" in message
    assert message.endswith("before\nI fail on purpose")
    assert not (pathlib.Path(trainer.perf_metrics.uri) / "metrics.json").exists()


def test_a_failing_worker_whose_pod_is_deleted_is_named_if_it_was_seen(trainer, run, cluster):
    cluster.run_policy, cluster.lag_seconds = {"backoffLimit": 0}, 1.0
    with pytest.raises(errors.MeasurementError) as caught:
        run({0: WAITS, 1: FAILS})
    message = str(caught.value)
    assert "worker 1: Job" in message
    assert message.endswith("The end of its log:\nbefore\nI fail on purpose")
    log = pathlib.Path(trainer.perf_metrics.uri) / "worker-1.log"
    assert log.read_text() == "before\nI fail on purpose\n"


@pytest.mark.parametrize("may_read_events", [True, False])
def test_no_worker_is_blamed_when_the_pods_are_gone(may_read_events, trainer, run, cluster):
    cluster.run_policy = {"backoffLimit": 0}
    cluster.forbidden = set() if may_read_events else {"events"}
    cluster.when_it_runs((cluster.folder / "go_on").touch)
    with pytest.raises(errors.MeasurementError) as caught:
        run({0: WAITS, 1: WAITS_FOR_FILE + FAILS})
    message = str(caught.value)
    name = cluster.made[0].name
    assert "Received: Job " in message
    assert "has reached the specified backoff limit The pods were gone before" in message
    assert f"{name}-worker-1 (last seen Running)" in message
    is_told = f"Pod: team.{name}-worker-1 exited with code 1" in message
    assert is_told == may_read_events
    assert "The end of its log" not in message
    kept = {path.name for path in pathlib.Path(trainer.perf_metrics.uri).glob("*.log")}
    assert "worker-0.log" in kept


@pytest.mark.parametrize(
    ("kind", "policy"), [("TFJob", {}), ("TFJob", {"backoffLimit": 0}), ("TrainJob", {})]
)
def test_the_job_is_recreated_for_a_killed_worker(kind, policy, run, cluster):
    cluster.run_policy = policy  # with a limit its pod is gone
    run({0: SUCCEEDS, 1: KILLED_ONCE}, restarts=3, kind=kind)
    first, second = cluster.made
    assert first.uid != second.uid
    assert (first.outcome[0], second.codes) == ("Failed", [0, 0])


@pytest.mark.parametrize(("may_pass", "count"), [(True, 3), (False, 1)])
def test_lasting_failures_are_not_retried(may_pass, count, run, cluster):
    failing = REPORTS.format(worker=1, message="planned", may_pass=may_pass)
    with pytest.raises(errors.MeasurementError, match="worker 1: planned"):
        run({0: WAITS, 1: failing}, restarts=2)
    assert len(cluster.made) == count


def test_the_report_of_a_local_worker_is_shown_with_the_end_of_its_log(
    trainer, monkeypatch, tmp_path
):
    reports = FIRST_WAITS + REPORTS.format(worker=1, message="planned", may_pass=False)
    (tmp_path / "reporting.py").write_text(
        "import sys\n\ndef report(folder, **_):\n"
        f"    sys.argv[1:] = [folder]\n    exec({reports!r})\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(distributed, "_WORKER", "reporting:report")
    words = r"worker 1: planned\.\nThe end of its log:\nI am the second$"
    with pytest.raises(errors.MeasurementError, match=words):
        trainer.run(module=MODULE, distribution={"workers": 2})


def test_passing_failures_of_the_api_are_retried(run, cluster):
    cluster.failures = [500, 429, 503, 504]
    run()
    assert len(cluster.made) == 1
    assert cluster.failures == []


def test_an_api_that_stays_unreachable_is_given_up(run, cluster):
    cluster.failures = [500] * 100
    with pytest.raises(errors.MeasurementError, match="500 etcdserver.*10 times"):
        run()
    assert len(cluster.failures) == 90
    cluster.failures.clear()


def test_a_lost_answer_to_the_creation_makes_no_second_job(run, cluster, monkeypatch):
    create = cluster.create

    def created_but_not_said(kind, manifest):
        if not cluster.made:
            create(kind, manifest)
            cluster.failures = [500]
        return create(kind, manifest)

    monkeypatch.setattr(cluster, "create", created_but_not_said)
    run()
    assert len(cluster.made) == 1


@pytest.mark.parametrize(
    ("change", "settings", "words"),
    [
        ({"forbidden": {"tfjobs"}}, {}, "Expected the right.*403.*training/access.yaml"),
        ({"installed": set()}, {}, "knows tfjobs.kubeflow.org, with Kubeflow's Training Operator"),
        ({}, {"kind": "TrainJob", "runtime": "torch"}, "training runtime does not exist"),
    ],
)
def test_a_refusal_by_the_cluster_is_one_line(change, settings, words, run, cluster):
    for name, value in change.items():
        setattr(cluster, name, value)
    with pytest.raises(errors.UserError, match=words) as caught:
        run(**settings)
    assert "\n" not in str(caught.value)
    assert not cluster.made


def test_a_shared_folder_that_is_not_mounted(run, cluster):
    cluster.shared.rmdir()
    with pytest.raises(errors.UserError, match="shared_folder=.*/shared"):
        run()
    assert not cluster.made


def test_without_a_cluster(run, tmp_path, monkeypatch):
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "missing"))
    with pytest.raises(errors.UserError, match="Expected a cluster for distribution.job"):
        run()


def test_unreadable_logs_do_not_hide_the_failure(run, cluster):
    cluster.forbidden = {"pods"}
    with pytest.raises(errors.MeasurementError, match="1 Worker.*None of its pods has been seen"):
        run({0: WAITS, 1: FAILS})


def test_a_job_that_is_deleted_from_outside_is_an_error(run, cluster):
    cluster.when_it_runs(lambda: [job.delete() for job in cluster.made])
    with pytest.raises(errors.MeasurementError, match="it no longer exists; it was deleted"):
        run({0: WAITS, 1: WAITS})


def test_a_job_that_takes_too_long_is_deleted(run):
    words = "timeout_seconds=3. Received: state=Pending, pods: .*-node-0-0-abcde Running"
    with pytest.raises(errors.MeasurementError, match=words):
        run({0: WAITS, 1: WAITS}, kind="TrainJob", timeout_seconds=3)


def test_workers_without_results_are_an_error(run, monkeypatch):
    monkeypatch.setattr(distributed, "_VISIBLE_SECONDS", 0.1)
    with pytest.raises(errors.MeasurementError, match="leave its results in .* the same volume"):
        run({0: ENDS, 1: ENDS})


def test_results_may_become_visible_late(trainer, run):
    late = "import time; time.sleep(0.5)"
    first = (
        f"import subprocess, sys\nsubprocess.Popen([sys.executable, '-c', {late + SUCCEEDS!r}, "
        "sys.argv[1]])"
    )
    run({0: first, 1: ENDS})
    assert is_published(trainer)


@pytest.fixture
def submitted(trainer, cluster):
    """Starts a process that runs the executor as `run` does, and waits for its job."""

    def start(stand_ins):
        cluster.stand_ins = stand_ins
        distribution = {**cluster.settings(), "restarts": 0}
        process = trainer.started(trainer.write_module(**MODULE), distribution=distribution)
        deadline = time.monotonic() + 120
        while not cluster.jobs and process.poll() is None and time.monotonic() < deadline:
            time.sleep(0.1)
        assert cluster.jobs, process.stderr.read()[-2000:]
        return process

    return start


def kill(process):
    process.kill()
    process.wait()


@pytest.mark.slow
def test_sigterm_deletes_the_job(submitted):
    process = submitted({0: WAITS, 1: WAITS})
    time.sleep(0.5)
    process.send_signal(signal.SIGTERM)
    assert process.wait(60) == -signal.SIGTERM, process.stderr.read()[-2000:]


@pytest.mark.slow
def test_a_job_of_a_failed_attempt_is_recreated(run, submitted, cluster):
    kill(submitted({0: WAITS, 1: WAITS}))
    cluster.made[0].signal(signal.SIGTERM)
    run()
    assert len(cluster.made) == 2


@pytest.fixture
def in_pod(cluster, tmp_path, monkeypatch):
    """Returns a function that has this process run in the cluster's pod of the given name."""
    from kubernetes import config

    (tmp_path / "namespace").write_text("team")
    monkeypatch.setattr(job_api, "_NAMESPACE", tmp_path / "namespace")
    # The library's own loader supports HTTPS only.
    here = functools.partial(config.load_kube_config, os.environ["KUBECONFIG"])
    monkeypatch.setattr(config, "load_incluster_config", here)

    def run_in(name):
        monkeypatch.setenv("KFP_POD_NAME", name)
        cluster.pods[name] = f"uid of {name}"

    return run_in


def owners(cluster):
    return [each["name"] for each in cluster.made[0].manifest["metadata"]["ownerReferences"]]


@pytest.mark.one_case
@pytest.mark.parametrize("kind", ["TFJob", "TrainJob"])
def test_the_job_ends_with_the_pod_that_submitted_it(kind, run, cluster, in_pod):
    in_pod("trainer-1")
    cluster.when_it_runs(cluster.pods.clear)
    with pytest.raises(errors.MeasurementError, match="it no longer exists"):
        run({0: WAITS, 1: WAITS}, kind=kind)
    assert owners(cluster) == ["trainer-1"]


@pytest.mark.slow
def test_a_restarted_executor_moves_the_job_to_its_own_pod(
    trainer, run, submitted, cluster, in_pod
):
    stand_ins = {0: WAITS_FOR_FILE + SUCCEEDS, 1: ENDS}
    kill(submitted(stand_ins))
    before = {"apiVersion": "v1", "kind": "Pod", "name": "trainer-1", "uid": "uid of trainer-1"}
    cluster.pods["trainer-1"] = before["uid"]
    cluster.made[0].manifest["metadata"]["ownerReferences"] = [before]
    in_pod("trainer-2")

    def go_on():
        while len(owners(cluster)) == 1:
            time.sleep(0.05)
        del cluster.pods["trainer-1"]
        cluster.reconcile()
        (cluster.folder / "go_on").touch()

    threading.Thread(target=go_on, daemon=True).start()
    run(stand_ins)
    assert owners(cluster) == ["trainer-1", "trainer-2"]
    assert len(cluster.made) == 1
    assert is_published(trainer)


@pytest.mark.one_case
@pytest.mark.parametrize("obstacle", ["rights", "name"])
def test_a_pod_that_cannot_be_the_owner(obstacle, trainer, run, cluster, in_pod):
    in_pod("trainer-1")
    if obstacle == "rights":
        cluster.forbidden = {"pods"}
    else:
        cluster.pods.clear()
    run()
    assert "ownerReferences" not in cluster.made[0].manifest["metadata"]
    assert is_published(trainer)


@pytest.mark.one_case
@pytest.mark.parametrize("kind", ["TFJob", "TrainJob"])
def test_the_operator_ends_a_job_past_its_deadline(kind, run, monkeypatch):
    monkeypatch.setattr(manifests, "_MARGIN_SECONDS", 0)
    monkeypatch.setattr(job_run.JobRun, "_raise_late", lambda *_: None)  # so that the operator acts
    with pytest.raises(errors.MeasurementError, match="longer than specified deadline"):
        run({0: WAITS, 1: WAITS}, kind=kind, timeout_seconds=1)
