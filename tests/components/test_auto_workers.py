"""`distribution.workers: auto`: one process trains, or bound workers where they are faster.

The two NUMA nodes are a folder's (`core_shares`); the processes and their CPUs are real. What wins
is `comparisons`' choice, as for `strategy: auto` (`test_distribution_strategy.py`).
"""

import functools
import os
import pathlib

import pytest
import training_cases

from tfx_perf import errors
from tfx_perf.components import types
from tfx_perf.components.optimized_trainer import comparisons
from tfx_perf.components.training_job.job import TrainingJob
from tfx_perf.hardware import core_shares, host
from tfx_perf.training.trials.choice import StrategyChoice, plain

pytestmark = pytest.mark.each_choice

_AUTO = {"workers": "auto"}
_ALONE = "tf.distribute.get_strategy().num_replicas_in_sync == 1"
_BEGINNING = "from tfx_perf.tf_internals import autograph\n" + training_cases.SLOWLY
_TEMPLATE = training_cases.MODULE.replace(
    "with tf.distribute.MirroredStrategy().scope():", "if True:"
).replace(".repeat()", ".repeat().map(slowly)")
# Without the conversion of tf_keras itself, which takes half a minute.
_FIT = f"with autograph.libraries_unconverted():\n        {training_cases.FIT}"
_SETTINGS = {"distribution": _AUTO, "trial_budget_seconds": 60}


@pytest.fixture
def trainer(tmp_path):
    return training_cases.Trainer(tmp_path)


@pytest.fixture
def two_nodes(tmp_path, monkeypatch):
    """Has the CPUs of this machine be on two NUMA nodes; a single one is on both."""
    cpus = sorted(os.sched_getaffinity(0))
    half = max(1, len(cpus) // 2)
    for number, own in enumerate((cpus[:half], cpus[half:] or cpus)):
        folder = tmp_path / f"system/node/node{number}"
        folder.mkdir(parents=True)
        (folder / "cpulist").write_text(core_shares.in_words(frozenset(own)))
    monkeypatch.setattr(core_shares, "_SYSTEM", tmp_path / "system")
    monkeypatch.setattr(host, "may_have_accelerators", lambda: False)


def module(line, *, condition, train=_FIT):
    """Returns one whose data are slow where the condition holds."""
    return {
        "line": line,
        "beginning": _BEGINNING.format(condition=condition, seconds=0.2),
        "template": _TEMPLATE,
        "train": train,
    }


@pytest.mark.slow
@pytest.mark.parametrize("line", ["keras", "tf_keras"])
def test_workers_with_cores_of_their_own_train_if_they_are_faster(
    line, two_nodes, trainer, monkeypatch
):
    given = module(line, condition=_ALONE)
    trainer.run(module=given, **_SETTINGS)
    record, before = trainer.record, trainer.perf_metrics
    assert (record.strategy.name, record.strategy.worker_count) == ("multi_worker", 2)
    assert record.strategy.speedup.low > 1
    assert "a step on 2 workers with cores of their own is" in record.strategy.reason
    assert (record.worker_count, record.train_step_count) == (2, 120)
    half = max(1, len(os.sched_getaffinity(0)) // 2)
    assert record.environment["cpu_count"] == str(half)
    folder = pathlib.Path(before.uri)
    assert record.strategy.reason in (folder / "report.html").read_text()
    distribution = TrainingJob.read(folder / "job.json").settings.distribution
    assert (distribution.workers, distribution.cpu_binding) == (2, "exclusive")

    monkeypatch.setattr(comparisons, "one_or_several", None)
    trainer.perf_metrics = trainer.artifact(types.PerfMetrics, "second_metrics")
    trainer.run(module=given, inputs={"previous_metrics": [before]}, **_SETTINGS)
    again = trainer.record
    assert again.strategy == record.strategy.for_another_run()
    assert again.worker_count == 2


@pytest.mark.slow
def test_one_process_trains_if_it_is_faster_or_the_module_makes_a_strategy(two_nodes, trainer):
    own = _TEMPLATE.replace("if True:", "with tf.distribute.MirroredStrategy().scope():")
    given = module("keras", condition=f"not ({_ALONE})")
    for template, reason in ((_TEMPLATE, "0."), (own, "could not be tried: Expected run_fn to")):
        trainer.run(module={**given, "template": template}, **_SETTINGS)
        record = trainer.record
        assert (record.strategy.name, record.worker_count) == ("one_device", 1)
        assert reason in record.strategy.reason
        assert record.train_step_count == 120
        assert not record.idle_settings
        distribution = TrainingJob.read(
            pathlib.Path(trainer.perf_metrics.uri, "job.json")
        ).settings.distribution
        assert (distribution.workers, distribution.strategy) == (None, None)


@pytest.mark.slow
def test_workers_that_were_chosen_train_on_after_a_kill(
    two_nodes, trainer, monkeypatch, tmp_path
):
    train = training_cases.killed_once(tmp_path / "flag")
    given = module("keras", condition=_ALONE, train=train)
    settings = {
        **_SETTINGS,
        "distribution": {**_AUTO, "restarts": 0},
        "checkpoint_steps": 10,
        "checkpoint_folder": str(tmp_path / "checkpoints"),
    }
    with pytest.raises(errors.MeasurementError, match="SIGKILL"):
        trainer.run(module=given, **settings)
    monkeypatch.setattr(comparisons, "one_or_several", None)
    trainer.run(module=given, **settings)
    record = trainer.record
    assert (record.strategy.worker_count, record.worker_count) == (2, 2)
    assert record.resumed_step >= 40
    assert record.train_step_count == 120 - record.resumed_step
    assert not (tmp_path / "checkpoints").exists()


@pytest.fixture
def choose(trainer, tmp_path):
    """Returns `comparisons.strategy` for a training that could not be run."""
    inputs, _, properties = trainer.given(trainer.write_module(), distribution=_AUTO)
    job = TrainingJob.of(inputs, properties)
    return functools.partial(
        comparisons.strategy,
        job,
        known=None,
        key={"code": "1"},
        checkpoint_folder=str(tmp_path / "checkpoints"),
        log_folder=tmp_path,
    )


def test_nothing_is_tried_on_one_node_with_few_cores(choose, tmp_path, monkeypatch):
    monkeypatch.setattr(host, "may_have_accelerators", lambda: False)
    monkeypatch.setattr(host, "cpu_count", lambda: 3)  # of a container's quota
    monkeypatch.setattr(core_shares, "_SYSTEM", tmp_path)
    found = choose()
    assert (found.name, found.worker_count, found.speedup) == ("one_device", 1, None)
    assert found.reason.startswith("this process may use one NUMA node, with too few cores")


def test_nothing_is_tried_where_workers_would_share_accelerators(choose, two_nodes, monkeypatch):
    monkeypatch.setattr(host, "may_have_accelerators", lambda: True)
    assert "accelerators" in choose().reason


def test_what_was_chosen_holds_for_the_next_run_and_after_a_kill(choose, two_nodes, monkeypatch):
    own = StrategyChoice(
        name="multi_worker", worker_count=2, reason="faster", turns_seconds=9.0, seconds=20.0
    )
    known = plain("nothing was faster")
    assert choose(known=known).reason == "nothing was faster"
    assert choose(known=known.model_copy(update={"strategy": own})) == own.for_another_run()
    monkeypatch.setattr(comparisons, "one_or_several", lambda *_, **__: own)
    assert choose().turns_seconds == 9.0
    monkeypatch.setattr(comparisons, "one_or_several", None)
    again = choose()
    assert (again.worker_count, again.turns_seconds, again.seconds) == (2, 0.0, 0.0)
    assert choose(known=known) == again  # the plan's choice was kept, too
