"""The configuration a worker receives, and the folder it shares with OptimizedTrainer."""

import json
import pathlib
import re

import pytest
import tensorflow as tf
from tfx.types import standard_artifacts

from tfx_perf.components import examples as examples_lib
from tfx_perf.components import types
from tfx_perf.components.optimized_trainer.child import TrainingResult
from tfx_perf.components.optimized_trainer.exchange import Exchange
from tfx_perf.components.training_job import TrainingJob
from tfx_perf.core import errors
from tfx_perf.core.unmeasured import MissingMeasurement
from tfx_perf.core.workers import Worker
from tfx_perf.distribute import failure, worker
from tfx_perf.distribute.failure import WorkerFailure
from tfx_perf.distribute.kubernetes import manifests
from tfx_perf.training.tuning.earlier import KnownPlan

HOSTS = "job-node-0-0.job:2222,job-node-0-1.job:2222"


def config(kind, index, **cluster):
    return json.dumps({"cluster": cluster, "task": {"type": kind, "index": index}})


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (config("worker", 1, worker=["a:1", "b:1"]), Worker(1, 2)),
        (config("chief", 0, chief=["a:1"], worker=["b:1", "c:1"]), Worker(0, 3)),
        (config("worker", 0, chief=["a:1"], worker=["b:1", "c:1"]), Worker(1, 3)),
        (config("worker", "1", chief=["a:1"], worker=["b:1", "c:1"]), Worker(2, 3)),
    ],
)
def test_the_variable_of_a_tf_job(text, expected):
    environment = {"TF_CONFIG": text, "TFX_PERF_WORKER_HOSTS": HOSTS}
    assert worker.worker_of(environment) == expected
    assert environment["TF_CONFIG"] == text
    assert expected.is_chief == (expected.index == 0)


def test_it_is_composed_for_a_train_job():
    environment = {"TFX_PERF_WORKER_HOSTS": HOSTS, "JOB_COMPLETION_INDEX": "1"}
    assert worker.worker_of(environment) == Worker(1, 2)
    assert json.loads(environment["TF_CONFIG"]) == {
        "cluster": {"worker": ["job-node-0-0.job:2222", "job-node-0-1.job:2222"]},
        "task": {"type": "worker", "index": 1},
    }


@pytest.mark.parametrize(
    ("environment", "words"),
    [
        ({}, "Expected TF_CONFIG.* Received: neither"),
        ({"TF_CONFIG": "{"}, "Received: TF_CONFIG={"),
        ({"TF_CONFIG": "[]"}, r"Received: TF_CONFIG=\[\]"),
        ({"TF_CONFIG": config("ps", 0, ps=["a:1"])}, "only serves"),
        ({"TF_CONFIG": config("worker", 2, worker=["a:1", "b:1"])}, "no worker 2"),
        ({"TF_CONFIG": config("worker", -1, worker=["a:1", "b:1"])}, "no worker -1"),
        ({"TFX_PERF_WORKER_HOSTS": HOSTS}, "below the number of hosts, 2. .*INDEX=None"),
        ({"TFX_PERF_WORKER_HOSTS": HOSTS, "JOB_COMPLETION_INDEX": "2"}, "INDEX=2"),
    ],
)
def test_an_invalid_configuration_is_refused(environment, words):
    with pytest.raises(errors.UserError, match=words) as caught:
        worker.worker_of(environment)
    assert "\n" not in str(caught.value)


def test_the_program_says_in_one_line_what_is_missing(monkeypatch, capsys, tmp_path):
    monkeypatch.delenv("TF_CONFIG", raising=False)
    absent = tmp_path / "absent"
    given = ["--job", str(absent), "--train", "module:function", "--start-timeout", "1"]
    assert worker.main(given) == 2
    monkeypatch.setenv("TF_CONFIG", config("worker", 0, worker=["a:1", "b:1"]))
    assert worker.main(given) == 2
    first, second = capsys.readouterr().err.splitlines()
    assert first.startswith("tfx-perf: Expected TF_CONFIG")
    assert f"Received: job={absent}." in second
    with pytest.raises(SystemExit, match="2"):
        worker.main([])


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (("taxi", "OptimizedTrainer"), "taxi-optimizedtrainer-0123456789abcdef"),
        (("Größe_1", "x."), "gr-e-1-x-0123456789abcdef"),
        (("2024",), "training-2024-0123456789abcdef"),
        (("ü",), "training-0123456789abcdef"),
        (("p" * 26 + "-", "node"), "p" * 26 + "-0123456789abcdef"),
    ],
)
def test_names_are_dns_labels(words, expected):
    name = manifests.job_name(*words, digest="0123456789abcdef")
    assert name == expected
    assert re.fullmatch(r"[a-z]([-a-z0-9]*[a-z0-9])?", name)
    assert len(f"{name}-node-0-999-abcde") <= 63


@pytest.fixture
def exchange(tmp_path):
    (tmp_path / "shared").mkdir()
    return Exchange(tmp_path / "shared" / "job")


def test_files_outside_the_shared_folder_are_copied(trainer, exchange, tmp_path):
    inputs, _, properties = trainer.given(trainer.write_module())
    shared, remote = standard_artifacts.Schema(), standard_artifacts.Model()
    shared.uri, remote.uri = str(tmp_path / "shared" / "schema"), "gs://bucket/model"
    before = types.PerfMetrics()
    inputs |= {"schema": [shared], "base_model": [remote], "previous_metrics": [before]}
    exchange.prepare(TrainingJob.of(inputs, properties), KnownPlan())
    exchange.prepare(TrainingJob.of(inputs, properties), KnownPlan())
    found = exchange.job.input_dict
    assert found.keys() == {"examples", "schema", "base_model"}
    assert found["schema"][0].uri == shared.uri
    assert found["base_model"][0].uri == remote.uri
    examples = pathlib.Path(found["examples"][0].uri)
    assert examples.is_relative_to(exchange.folder)
    assert (examples / "Split-train" / "part-00000-of-00001.gz").exists()
    assert found["examples"][0].split_names == trainer.examples.split_names
    module = pathlib.Path(exchange.job.exec_properties["module_file"])
    assert module.is_relative_to(exchange.folder)
    assert module.exists()
    assert [path.name for path in (tmp_path / "shared").iterdir()] == ["job"]


def test_a_packaged_module_keeps_its_name(trainer, exchange, tmp_path):
    wheel = tmp_path / "module-0.0+1-py3-none-any.whl"
    wheel.touch()
    inputs, _, properties = trainer.given("")
    properties = {**properties, "module_file": None, "module_path": f"module@{wheel}"}
    exchange.prepare(TrainingJob.of(inputs, properties), KnownPlan())
    name, _, path = exchange.job.exec_properties["module_path"].partition("@")
    assert name == "module"
    assert pathlib.Path(path) == exchange.folder / "code" / wheel.name
    assert pathlib.Path(path).exists()


def test_an_interrupted_publication_of_results_is_completed(trainer, exchange):
    _, outputs, _ = trainer.given("")
    folder = exchange.begin(Worker(0, 2))
    for place in ("model/Format-Serving/variables", "model_run"):
        (folder / place).mkdir(parents=True)
    (folder / "model/Format-Serving/variables/index").write_text("new")
    (folder / "model_run/events").write_text("new")
    begun = pathlib.Path(trainer.model.uri, "Format-Serving", "variables")
    begun.mkdir(parents=True)
    (begun / "index").write_text("ne")
    exchange.collect(outputs)
    assert (begun / "index").read_text() == "new"
    assert pathlib.Path(trainer.model_run.uri, "events").read_text() == "new"
    assert exchange.begin(Worker(1, 2)) != folder


def test_what_workers_leave(exchange):
    exchange.folder.mkdir()
    assert exchange.result is None
    assert failure.left_in(exchange.folder) == {}
    exchange.report(TrainingResult(record=MissingMeasurement(reason="a test")))
    assert exchange.result.record.reason == "a test"
    for number, seconds in ((0, 2.0), (1, 1.0)):
        name = f"worker {number}"
        WorkerFailure(name=name, seconds=seconds, message="m").leave_in(exchange.folder)
    left = failure.left_in(exchange.folder)
    assert {name: each.seconds for name, each in left.items()} == {"worker 0": 2, "worker 1": 1}
    failure.forget(exchange.folder)
    (exchange.folder / "outputs" / "model").mkdir(parents=True)
    exchange.begin(Worker(1, 2))
    assert exchange.result is not None
    assert not exchange.begin(Worker(0, 2)).exists()
    assert (failure.left_in(exchange.folder), exchange.result) == ({}, None)


@pytest.mark.parametrize(("worker_count", "policy"), [(2, "AUTO"), (3, "DATA")])
def test_rows_are_divided_where_there_are_too_few_files(worker_count, policy, tmp_path):
    for number in range(2):
        (tmp_path / f"part-{number}").touch()

    def default(files, options, schema=None):
        return tf.data.Dataset.range(6).batch(2)

    factory = examples_lib.by_rows_if_few_files(default, worker_count=worker_count)
    for pattern in (str(tmp_path / "part-*"), [str(tmp_path / "part-*")]):
        data = factory(pattern, None, schema=None)
        assert data.options().experimental_distribute.auto_shard_policy.name == policy
        assert len(list(data)) == 3
