"""Errors in settings are reported in one line, in whichever settings they are."""

import re

import pytest

from tfx_perf.config import PerfConfig, base
from tfx_perf.core import errors, validation
from tfx_perf.kubeflow import KubeflowSettings
from tfx_perf.pipelines.airflow import AirflowSettings


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"trainig": {}}, ["one of the keys", "training", "Received: trainig="]),
        ({"training": {"sed": 1}}, ["steps_per_execution", "training.sed=1. Did you mean seed?"]),
        ({"input": {"service_address": "host:5050"}}, ["grpc://HOST:PORT", "'host:5050'"]),
        ({"input": {"service_address": "grpc://host:70000"}}, ["grpc://HOST:PORT", ":70000'"]),
        ({"gate": {"rules": {"mfu_ratio": {"mni": 1}}}}, ["direction, ", "rules.mfu_ratio.mni=1"]),
        ({"gate": {"limits": {}}}, ["one of the keys", "rules", "gate.limits="]),
        ({"gate": {"policy": {"invalid": "maybe"}}}, ["'bless' or 'refuse'", "invalid='maybe'"]),
        ({"training": {"tuning_seconds": -1}}, ["at least 0", "tuning_seconds=-1"]),
        ({"training": {"loss_tolerance": float("nan")}}, ["neither NaN", "loss_tolerance=nan"]),
        ({"training": {"margin": float("inf")}}, ["neither NaN nor infinite", "margin=inf"]),
        ({"training": {"margin": "much"}}, ["Expected a number in", "training.margin='much'"]),
        ({"training": {"seed": 1.5}}, ["Expected a whole number", "training.seed=1.5"]),
        ({"training": {"tuning_second": 9}}, ["tuning_second=9. Did you mean tuning_seconds?"]),
        ({"compilation": {"enabled": "perhaps"}}, ["Expected true or false", "enabled='perhaps'"]),
        ({"compilation": {"aot_signature": 7}}, ["Expected text", "aot_signature=7"]),
        ({"memory": {"batch_sizes": "64"}}, ["Expected a list", "memory.batch_sizes='64'"]),
        ({"memory": {"batch_sizes": True}}, ["Expected a list", "memory.batch_sizes=True"]),
        ({"training": {"steps_per_execution": 0}}, ["above 0", "training.steps_per_execution.0=0"]),
        ({"memory": "much"}, ["Expected keys with values", "memory='much'"]),
        ({"training": {"steps_per_execution": [0]}}, ["training.steps_per_execution.0=0"]),
        (
            {"training": {"gradient_checkpointing": 1}},
            ["at least 2", "training.gradient_checkpointing=1"],
        ),
        (
            {"training": {"gradient_checkpointing": "some"}},
            ["number or 'auto'", "training.gradient_checkpointing='some'"],
        ),
        ({"memory": {"max_device_utilization": 1.5}}, ["memory.max_device_utilization=1.5"]),
        ({"monitoring": {"port": 9090}}, ["metrics_host, metrics_port", "monitoring.port=9090"]),
        ({"monitoring": {"metrics_port": 0}}, ["at least 1", "monitoring.metrics_port=0"]),
        ({"monitoring": {"metrics_port": 65536}}, ["65535", "monitoring.metrics_port=65536"]),
        ({"monitoring": {"metrics_port": True}}, ["whole number", "monitoring.metrics_port=True"]),
        ({"monitoring": {"metrics_host": ""}}, ["monitoring.metrics_host=''"]),
        ({"gate": {"baseline_uri": ""}}, ["gate.baseline_uri=''"]),
        ({"distribution": {"job": {"kind": "TFJob"}}}, ["key worker_count", "Set distribution."]),
        ({"distribution": {"job": {"shared": 1}}}, ["worker_count", "Received: distribution.job"]),
        (["a list"], ["Received: settings=['a list']"]),
        ({"seed": 1}, ["Received: seed=1. Did you mean training.seed?"]),
        ({"margin": 1}, ["Did you mean input.margin or training.margin?"]),
        ({"gate": {"policy": {"invalid": "blss"}}}, ["invalid='blss'. Did you mean bless?"]),
        ({"distribution": {"reduction_dtype": "float32"}},
         ["Expected bfloat16 or float16", "='float32'. Leave distribution.reduction_dtype out"]),
        ({"training": {"precision": "float16"}}, ["Did you mean mixed_float16?"]),
        ({"training": {"seed": "x"}}, ["Leave training.seed out for the default, null."]),
        ({"memory": {"batch_sizes": [8, "x"]}}, ["Received: memory.batch_sizes.1='x'. Leave",
                                                 "memory.batch_sizes out for the default, []."]),
        ({"memory": "much"}, ["Leave memory out for the defaults."]),
        ({"training": {"margin": "1,5"}}, ["='1,5'. Write it without quotes, with a point for"]),
        ({"gate": {"rules": {"mfu_ratio": {"max": "8e9"}}}}, ["or 1.0e+9."]),
        ({"memory": {"batch_sizes": ["64"]}}, ["Write it without quotes"]),
        ({1: {}}, ["Expected one of the keys compilation", "Received: 1={}."]),
        ({None: {}}, ["Expected one of the keys compilation", "Received: None={}."]),
        ({"training": {1: 2}}, ["one of the keys checkpoint_every", "training.1=2."]),
        ({"gate": {"rules": {1: {}}}}, ["Expected text as a key", "gate.rules.1={}. Write the"]),
        ({"distribution": {"strategy": "Auto"}}, ["strategy='Auto'. Did you mean auto?"]),
        ({"distribution": {"strategy": "Mirrored"}}, ["Did you mean mirrored?"]),
        ({"distribution": {"workers": "none"}}, ["workers='none'. Did you mean null?"]),
        ({"training": {"seed": "None"}}, ["training.seed='None'. Did you mean null?"]),
        ({"training": {"margin": "none"}}, ["margin='none'. Leave training.margin out"]),
        ({"training": {"precision": "bf16"}}, ["Did you mean mixed_bfloat16?"]),
        ({"training": {"precision": "FP16"}}, ["Did you mean mixed_float16?"]),
        ({"training": {"gradient_checkpointing": "AUTO"}}, ["Did you mean auto?"]),
        ({"gate": {"ledger_size": 2}}, ["Expected ledger_size not below", "Received: gate={"]),
    ],
)  # fmt: skip
def test_an_error_is_one_line(values, words):
    with pytest.raises(errors.UserError) as caught:
        PerfConfig.from_dict(values)
    message = str(caught.value)
    assert re.fullmatch(r"Expected .+ in settings\. Received: .+[.?]", message)
    assert not re.search(r"Input should|pydantic|Field required|Extra inputs", message)
    for word in words:
        assert word in message


@pytest.mark.parametrize(
    ("settings", "text", "message"),
    [
        (KubeflowSettings, "defaults: {}\n",
         r"Expected the key image in FILE\. Received: settings={'defaults': {}}\. "
         r"Set image\."),
        (KubeflowSettings, "image: i\nnodes:\n  Trainer:\n    memory_limt: 2Gi\n",
         r"Expected one of the keys .* in FILE, line 4\. Received: "
         r"nodes\.Trainer\.memory_limt='2Gi'\. Did you mean memory_limit\?"),
        (KubeflowSettings, "image: i\ndefaults: {accelerator: gpu}\n",
         r"Expected accelerator and accelerator_count together in FILE, line 2\. "
         r"Received: defaults={'accelerator': 'gpu'}\."),
        (AirflowSettings, "default_args:\n  retries: many\n",
         r"Expected a whole number in FILE, line 2\. Received: default_args\.retries='many'\. "
         r"Leave default_args\.retries out for the default, null\."),
        (AirflowSettings, "schedule: daily\n",
         r"Expected a cron expression .* or a duration in seconds in FILE, line 1\. "
         r"Received: schedule='daily'\. Leave schedule out for the default, null\."),
        (AirflowSettings, "parameters:\n  steps: [1]\n",
         r"Expected a whole number or a number or text in FILE, line 2\. "
         r"Received: parameters\.steps=\[1\]\."),
    ],
)  # fmt: skip
def test_settings_of_orchestrators_are_read_alike(tmp_path, settings, text, message):
    path = tmp_path / "settings.yaml"
    path.write_text(text)
    with pytest.raises(errors.UserError) as caught:
        settings.from_yaml(path)
    assert re.fullmatch(message.replace("FILE", re.escape(str(path))), str(caught.value))


def test_settings_of_a_node_that_is_not_there_are_refused_with_the_nearest_one():
    validation.check_nodes(["Trainer"], ["Trainer", "Pusher"])
    said = r"nodes: Trainer, Pusher\. Received: nodes\.Puser\. Did you mean Pusher\?"
    with pytest.raises(errors.UserError, match=said):
        validation.check_nodes(["Trainer", "Puser"], ["Trainer", "Pusher"])


def test_a_removed_setting_names_its_replacement(monkeypatch):
    monkeypatch.setitem(base._ADVICE, "input.*gone", "This setting was removed. Set input.margin.")
    with pytest.raises(errors.UserError, match=r"bygone=1. This setting was removed. Set input.m"):
        PerfConfig.from_dict({"input": {"bygone": 1}})
