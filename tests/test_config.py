"""Settings: defaults, sources, and one line for what is wrong."""

import re

import pytest

from tfx_perf import errors, validation
from tfx_perf.config import PerfConfig, check_one_module


def test_every_key_is_optional():
    assert PerfConfig.from_dict(None) == PerfConfig.from_dict({}) == PerfConfig()


def test_the_outer_key_may_be_there_or_not():
    inner = {"training": {"seed": 3}, "compilation": {"enabled": False}}
    config = PerfConfig.from_dict({"tensorflow_optimization": inner})
    assert config == PerfConfig.from_dict(inner)
    assert config.training.seed == 3
    assert not config.compilation.enabled


def test_of_takes_what_it_gets():
    config = PerfConfig()
    assert PerfConfig.of(config) is config
    assert PerfConfig.of({"training": {"margin": 0.5}}).training.margin == 0.5


def test_a_single_number_stands_for_a_list_of_one():
    values = {"training": {"steps_per_call": 50}, "memory": {"batch_sizes": 8}}
    config = PerfConfig.from_dict(values)
    assert (config.training.steps_per_call, config.memory.batch_sizes) == ((50,), (8,))


def test_json_round_trip():
    config = PerfConfig.from_dict(
        {
            "training": {"steps_per_call": [7]},
            "gate": {"rules": {"mfu_ratio": {"min": 0.1}, "train_loss": {"margin": 0.2}}},
        }
    )
    assert PerfConfig.from_json(config.to_json()) == config


def test_yaml(tmp_path):
    path = tmp_path / "perf.yaml"
    path.write_text("tensorflow_optimization:\n  input: {time_budget_seconds: 5}\n")
    assert PerfConfig.from_yaml(path).input.time_budget_seconds == 5.0
    path.write_text("")
    assert PerfConfig.from_yaml(path) == PerfConfig()


def _job(**changes):
    own = {
        "worker_count": 2, "image": "i", "shared_folder": "/a/b", "volumes": {"/a": "claim"}
    }  # fmt: skip
    return {"distribution": {"job": {**own, **changes}}}


def test_a_job_on_a_cluster():
    job = PerfConfig.from_dict(_job(cpu=2)).distribution.job
    assert (job.kind, job.worker_count, job.cpu) == ("TFJob", 2, "2")
    train_job = {"kind": "TrainJob", "runtime": "tfx-perf", "volumes": {}}
    config = PerfConfig.from_dict(_job(**train_job, tolerations=[], memory="1.5Gi"))
    assert PerfConfig.from_json(config.to_json("distribution")) == config


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"trainig": {}}, ["one of the keys", "training", "Received: trainig="]),
        ({"training": {"sed": 1}}, ["steps_per_call", "Received: training.sed=1"]),
        ({"input": {"service_address": "host:5050"}}, ["grpc://HOST:PORT", "'host:5050'"]),
        ({"input": {"service_address": "grpc://host:70000"}}, ["grpc://HOST:PORT", ":70000'"]),
        ({"gate": {"rules": {"mfu_ratio": {"mni": 1}}}}, ["max, min", "rules.mfu_ratio.mni=1"]),
        ({"gate": {"limits": {}}}, ["one of the keys", "rules", "gate.limits="]),
        ({"gate": {"policy": {"limit": "maybe"}}}, ["'bless' or 'refuse'", "limit='maybe'"]),
        ({"training": {"trial_budget_seconds": -1}}, ["at least 0", "trial_budget_seconds=-1"]),
        ({"training": {"loss_tolerance": float("nan")}}, ["neither NaN", "loss_tolerance=nan"]),
        ({"training": {"margin": float("inf")}}, ["neither NaN nor infinite", "margin=inf"]),
        ({"training": {"margin": "much"}}, ["Expected a number in", "training.margin='much'"]),
        ({"training": {"seed": 1.5}}, ["Expected a whole number", "training.seed=1.5"]),
        ({"training": {"trial_budget": 9}}, ["trial_budget=9. Did you mean trial_budget_seconds?"]),
        ({"compilation": {"enabled": "perhaps"}}, ["Expected true or false", "enabled='perhaps'"]),
        ({"compilation": {"aot_signature": 7}}, ["Expected text", "aot_signature=7"]),
        ({"memory": {"batch_sizes": "64"}}, ["Expected a list", "memory.batch_sizes='64'"]),
        ({"memory": {"batch_sizes": True}}, ["Expected a list", "memory.batch_sizes=True"]),
        ({"training": {"steps_per_call": 0}}, ["above 0", "training.steps_per_call.0=0"]),
        ({"memory": "much"}, ["Expected keys with values", "memory='much'"]),
        ({"training": {"steps_per_call": [0]}}, ["training.steps_per_call.0=0"]),
        ({"training": {"recompute": 1}}, ["at least 2", "training.recompute=1"]),
        ({"training": {"recompute": "some"}}, ["is auto or", "training.recompute='some'"]),
        ({"memory": {"max_device_utilization": 1.5}}, ["memory.max_device_utilization=1.5"]),
        ({"monitoring": {"port": 9090}}, ["metrics_host, metrics_port", "monitoring.port=9090"]),
        ({"monitoring": {"metrics_port": 0}}, ["at least 1", "monitoring.metrics_port=0"]),
        ({"monitoring": {"metrics_port": 65536}}, ["65535", "monitoring.metrics_port=65536"]),
        ({"monitoring": {"metrics_port": True}}, ["whole number", "monitoring.metrics_port=True"]),
        ({"monitoring": {"metrics_host": ""}}, ["monitoring.metrics_host=''"]),
        ({"distribution": {"job": {"kind": "TFJob"}}}, ["key worker_count", "Set distribution."]),
        ({"distribution": {"job": {"shared": 1}}}, ["worker_count", "Received: distribution.job"]),
        (_job(worker_count=1), ["a number of at least 2", "job.worker_count=1"]),
        (_job(shared_folder="jobs"), ["an absolute folder", "job.shared_folder='jobs'"]),
        (_job(shared_folder="/elsewhere"), ["in one of the volumes"]),
        (_job(memory="8 GB"), ['"8Gi"', "job.memory='8 GB'"]),
        (_job(cpu="0m"), ["above 0", "job.cpu='0m'"]),
        (_job(image=None), ["a TFJob needs an image"]),
        (_job(runtime="x"), ["a runtime is for a TrainJob"]),
        (_job(kind="TrainJob"), ["needs the name of a TrainingRuntime"]),
        (_job(kind="TrainJob", runtime="x"), ["the TrainingRuntime says volumes"]),
        (_job(accelerator="nvidia.com/gpu"), ["accelerator_count belong together"]),
        (_job(secret_environment={"A": "b"}), ["secret/key for each variable"]),
        (["a list"], ["Received: settings=['a list']"]),
    ],
)
def test_what_is_wrong_is_said_in_one_line(values, words):
    with pytest.raises(errors.UserError) as caught:
        PerfConfig.from_dict(values, source="perf.yaml")
    message = str(caught.value)
    assert re.fullmatch(r"Expected .+ in perf\.yaml\. Received: .+[.?]", message)
    assert not re.search(r"Input should|pydantic|Field required|Extra inputs", message)
    for word in words:
        assert word in message


@pytest.mark.parametrize("host", ["service", "10.0.0.1", "[::1]", "a.b-c.svc.cluster.local"])
def test_addresses_of_a_service(host):
    address = f"grpc://{host}:5050"
    assert PerfConfig.from_dict({"input": {"service_address": address}}).input.service_address
    assert validation.grpc_address(address) == (host.strip("[]"), 5050)


@pytest.mark.parametrize("rest", ["", ":0", ":5050/path", ":50 50", "@other:1", ":1\n"])
def test_what_is_no_address(rest):
    with pytest.raises(ValueError, match="grpc://HOST:PORT"):
        validation.grpc_address(f"grpc://host{rest}")


@pytest.mark.parametrize("text", [None, b"a: [", b"a: b: c", "a: Grüße".encode("latin-1")])
def test_a_file_that_cannot_be_read(tmp_path, text):
    path = tmp_path / "perf.yaml"
    if text is not None:
        path.write_bytes(text)
    with pytest.raises(errors.UserError, match=f"Received: path={path}") as caught:
        PerfConfig.from_yaml(path)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(("module_file", "run_fn"), [(None, None), ("", ""), ("a.py", "b.run_fn")])
def test_exactly_one_module(module_file, run_fn):
    with pytest.raises(errors.UserError, match="exactly one"):
        check_one_module(module_file=module_file, run_fn=run_fn)


def test_one_module_is_right():
    check_one_module(module_file="a.py", run_fn=None)
    check_one_module(module_file=None, run_fn="b.run_fn")


def test_a_key_that_is_there_twice_is_refused(tmp_path):
    path = tmp_path / "perf.yaml"
    path.write_text("tensorflow_optimization:\n  gate: {baseline_runs: 3, baseline_runs: 5}\n")
    with pytest.raises(errors.UserError, match="'baseline_runs' is there twice"):
        PerfConfig.from_yaml(path)
