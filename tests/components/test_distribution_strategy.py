"""`distribution.strategy`: a module that makes no strategy trains under the one that is set.

What `auto` comes to is found out by `comparisons`.
"""

import functools
import pathlib
import shutil

import numpy as np
import pytest
import tensorflow as tf
import training_cases

from tfx_perf.components import types
from tfx_perf.components.optimized_trainer import comparisons, executor
from tfx_perf.components.training_job import TrainingJob
from tfx_perf.core import errors
from tfx_perf.training.tuning.choice import TRIALS_OFF, StrategyChoice
from tfx_perf.training.tuning.earlier import Earlier, KnownPlan

pytestmark = pytest.mark.each_choice

_BEGINNING, _FIT = (training_cases.UNCONVERTED[key] for key in ("beginning", "train"))
_TWO_DEVICES = _BEGINNING + training_cases.TWO_DEVICES
_MAKES_NONE = training_cases.MODULE.replace(
    "with tf.distribute.MirroredStrategy().scope():", "if True:"
).replace("batch_size=10,", "batch_size=10, shuffle=False,")
_SAVE = """@tf.function(input_signature=[tf.TensorSpec([None, 1], tf.float32, name="number")])
    def serve(number):
        return {"predicted": model({"number": number}, training=False)}

    signatures = {"serving_default": serve}
    tf.saved_model.save(model, fn_args.serving_model_dir, signatures=signatures)"""

_AUTO = {"strategy": "auto"}
_PLACED = {"strategy": "model_parallel", "device_memory_bytes": 800}  # less than all layers need
_REPLICAS = "tf.distribute.get_strategy().num_replicas_in_sync"


@pytest.fixture(scope="module")
def trained_alone(tmp_path_factory):
    """Returns a trainer that has trained a module of a Keras line on one device."""

    @functools.cache
    def of(line, beginning):
        trainer = training_cases.Trainer(tmp_path_factory.mktemp(line))
        given = module(line, beginning=beginning)
        trainer.run(module=given, seed=5, distribution={"strategy": "one_device"})
        return trainer

    return of


def module(line, *, beginning=_TWO_DEVICES):
    own = {"line": line, "beginning": beginning, "template": _MAKES_NONE, "save": _SAVE}
    return training_cases.UNCONVERTED | own


def waiting_module(line, *, condition):
    """Returns a module with two devices, whose data are slow while the condition holds."""
    slowly = training_cases.SLOWLY.format(condition=condition, seconds=0.03)
    given = module(line, beginning=_TWO_DEVICES + slowly)
    return {**given, "template": _MAKES_NONE.replace(".repeat()", ".repeat().map(slowly)")}


def predictions(trainer):
    """Returns what the saved model serves, in a process with one device."""
    place = next(pathlib.Path(trainer.model.uri).rglob("saved_model.pb")).parent
    loaded = tf.saved_model.load(str(place))
    numbers = tf.reshape(tf.range(10, dtype=tf.float32), [10, 1])
    return loaded.signatures["serving_default"](number=numbers)["predicted"].numpy()


@pytest.mark.slow
@pytest.mark.parametrize("line", ["keras", "tf_keras"])
@pytest.mark.parametrize(
    ("distribution", "strategy"),
    [
        ({"strategy": "mirrored"}, "MirroredStrategy"),
        ({"workers": 2}, "MultiWorkerMirroredStrategy"),
        (_PLACED, "model_parallel"),
    ],
    ids=["mirrored", "multi_worker", "model_parallel"],
)
def test_a_module_without_a_strategy_trains_as_on_one_device(
    distribution, strategy, line, trainer, trained_alone
):
    beginning = _BEGINNING if "workers" in distribution else _TWO_DEVICES
    alone = trained_alone(line, beginning)
    before = alone.record
    assert before.environment["strategy"] == "one_device"
    given = module(line, beginning=beginning)
    executions = pathlib.Path(trainer.perf_metrics.uri)
    shutil.copytree(alone.perf_metrics.uri, executions / "1")
    trainer.perf_metrics.uri = str(executions / "2")
    trainer.run(module=given, seed=5, distribution=distribution)
    record = trainer.record
    if distribution is not _PLACED:
        assert record.one_replica.source == str(executions / "1")
        speed = before.figures()["examples_per_second"]
        assert record.one_replica.examples_per_second == speed
    assert record.environment["strategy"] == strategy
    assert (record.global_batch_size, record.train_step_count) == (10, 120)
    assert not [note for note in record.notes if "has its own" in note]
    assert list(pathlib.Path(trainer.model_run.uri).rglob("events*"))
    parts = record.placement.parts if distribution is _PLACED else ()
    assert [bool(part.weight_bytes) for part in parts] == [True, True] * (len(parts) // 2)
    html = (pathlib.Path(trainer.perf_metrics.uri) / "report.html").read_text()
    assert ("Layers on devices" in html) == bool(parts)
    found, expected = trainer.variables(), alone.variables()
    assert found.keys() == expected.keys() != set()
    for variable, value in expected.items():
        np.testing.assert_allclose(found[variable], value, atol=1e-5, err_msg=variable)
    np.testing.assert_allclose(predictions(trainer), predictions(alone), atol=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize("line", ["keras", "tf_keras"])
def test_precisions_are_compared_under_the_training_strategy(line, trainer):
    settings = {"distribution": {"strategy": "mirrored"}, "tuning_seconds": 60}
    trainer.run(module=module(line), precision="auto", **settings)
    record = trainer.record
    assert record.environment["strategy"] == "MirroredStrategy"
    assert record.fit["strategy"] == "MirroredStrategy, 2 replicas"
    compared = [trial for trial in record.trials if trial.status in ("chosen", "slower")]
    assert "mixed_bfloat16" in {trial.plan.precision for trial in compared}
    log = pathlib.Path(trainer.perf_metrics.uri, "mixed-bfloat16.log")
    assert log.exists()


def test_a_module_with_a_strategy_keeps_it_and_the_record_says_so(trainer):
    trainer.run(distribution={"strategy": "one_device"}, tuning_seconds=0)
    (said,) = trainer.record.idle_settings
    assert said.startswith("distribution.strategy=one_device has no effect: ")
    assert said.endswith("under MirroredStrategy")
    assert trainer.record.environment["strategy"] == "MirroredStrategy"
    html = (pathlib.Path(trainer.perf_metrics.uri) / "report.html").read_text()
    assert said in html


def test_without_a_tpu_run_fn_is_not_run(trainer, monkeypatch):
    monkeypatch.delenv("TPU_NAME", raising=False)
    with pytest.raises(errors.UserError, match=r"Expected a TPU.* TPU_NAME"):
        trainer.run(module={"train": "raise ValueError"}, distribution={"strategy": "tpu"})


@pytest.mark.slow
def test_auto_tries_nothing_with_one_device(trainer):
    trainer.run(module=module("keras", beginning=_BEGINNING), distribution=_AUTO)
    found = trainer.record.strategy
    assert (found.name, found.reason) == ("one_device", "this machine has one device")
    assert trainer.record.environment["strategy"] == "one_device"
    folder = pathlib.Path(trainer.perf_metrics.uri)
    assert not list(folder.glob("*mirrored*"))
    assert "one_device: this machine has one device." in (folder / "report.html").read_text()


@pytest.mark.slow
@pytest.mark.parametrize("line", ["keras", "tf_keras"])
@pytest.mark.parametrize(
    ("condition", "name"),
    [(f"{_REPLICAS} == 1", "mirrored"), (f"{_REPLICAS} == 2", "one_device")],
    ids=["faster", "slower"],
)
def test_auto_trains_on_all_devices_if_they_are_faster_also_in_the_next_run(
    condition, name, line, trainer, monkeypatch
):
    given = waiting_module(line, condition=condition)
    settings = {"distribution": _AUTO, "tuning_seconds": 30}
    trainer.run(module=given, **settings)
    record = trainer.record
    strategy = {"mirrored": "MirroredStrategy"}.get(name, name)
    assert record.strategy.name == name
    assert record.environment["strategy"] == strategy
    assert (record.strategy.speedup.value > 1) == (name == "mirrored")
    assert "on one (95% interval" in record.strategy.reason
    folder = pathlib.Path(trainer.perf_metrics.uri)
    assert record.strategy.reason in (folder / "report.html").read_text()
    job = TrainingJob.read(folder / "job.json")
    assert job.settings.distribution.strategy == name
    assert job.is_unchanged
    monkeypatch.setattr(comparisons, "one_or_several", None)
    inputs = {"previous_metrics": [trainer.perf_metrics]}
    trainer.perf_metrics = trainer.artifact(types.PerfMetrics, "second_metrics")
    trainer.run(module=given, inputs=inputs, **settings)
    assert trainer.record.reused_from
    assert trainer.record.strategy.name == name
    assert trainer.record.environment["strategy"] == strategy


@pytest.mark.slow
def test_one_device_trains_if_all_together_fail(trainer):
    given = module("keras")
    given["train"] = f"assert {_REPLICAS} == 1, 'not for me'\n    {_FIT}"
    trainer.run(module=given, distribution=_AUTO)
    found = trainer.record.strategy
    assert found.name == "one_device"
    assert found.reason.startswith("2 devices could not be tried: its process")
    assert "not for me" in found.reason
    assert found.speedup is None
    assert trainer.record.train_step_count == 120


def test_a_known_plan_brings_its_strategy(trainer, tmp_path):
    inputs, _, properties = trainer.given(trainer.write_module(), distribution=_AUTO)
    job = TrainingJob.of(inputs, properties)
    own = StrategyChoice(name="mirrored", reason="it was faster", turns_seconds=9.0)
    earlier = Earlier({}, folder=None)
    choose = functools.partial(comparisons.strategy, job, earlier=earlier, log_folder=tmp_path)
    known = executor.known_plan(job, earlier).choice
    with_own = known.model_copy(update={"strategy": own})
    assert choose(known=KnownPlan(choice=with_own)) == own.for_another_run()
    found = choose(known=KnownPlan(choice=known))
    assert found == StrategyChoice(name="one_device", reason=TRIALS_OFF)


@pytest.mark.slow
def test_the_choice_of_auto_holds_after_a_kill(trainer, monkeypatch, tmp_path):
    given = waiting_module("keras", condition=f"{_REPLICAS} == 1")
    given["train"] = training_cases.killed_once(tmp_path / "flag")
    settings = {
        "distribution": _AUTO, "tuning_seconds": 30, "checkpoint_every_steps": 10,
        "checkpoint_folder": str(tmp_path / "checkpoints"),
    }  # fmt: skip
    with pytest.raises(errors.TrainingError, match="killed"):
        trainer.run(module=given, **settings)
    monkeypatch.setattr(comparisons, "one_or_several", None)
    trainer.run(module=given, **settings)
    record = trainer.record
    assert record.strategy.name == "mirrored"
    assert record.environment["strategy"] == "MirroredStrategy"
    assert record.resumed_step >= 40
    assert record.train_step_count == 120 - record.resumed_step


@pytest.mark.slow
def test_workers_reduce_within_the_configured_timeout(trainer):
    found = "tf.distribute.get_strategy().extended._communication_options.timeout_seconds"
    given = module("keras", beginning=_BEGINNING)
    given["train"] = f"assert {found} == 600, {found}\n    {_FIT}"
    distribution = {"workers": 2, "collective_timeout_seconds": 600}
    trainer.run(module=given, distribution=distribution, tuning_seconds=0)
    assert trainer.record.worker_count == 2
