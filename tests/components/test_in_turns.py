"""A run that would be refused and a blessed run are trained again, in turns.

Each is a child process that runs `in_turns.train_in_turns`.
"""

import datetime
import functools
import math
import pathlib
import shutil

import pytest
import training_cases
from gated_project import artifact_in, gate_outputs
from tfx.types import standard_artifacts

from tfx_perf.components import in_turns, training_job, types
from tfx_perf.components.perf_evaluator import executor
from tfx_perf.config import PerfConfig
from tfx_perf.core import errors
from tfx_perf.gate.decision import GateRecord, Verdict
from tfx_perf.gate.ledger import Ledger
from tfx_perf.gate.run import Run

# A layer that is slow to compute.
SLOW = """
class Slow(keras.layers.Layer):
    def call(self, inputs):
        square = tf.tile(inputs[:1, :1], (300, 300))
        for _ in range(4):
            square = tf.linalg.matmul(square, square) * 1e-3
        return inputs + 0.0 * tf.reduce_mean(square)
"""
# A layer that ends its process in the middle of the turns.
DIES = f"""
import os, time
began = []

def look(x):
    began.append(time.monotonic())
    if {training_cases.ONLY_MEASURES} and time.monotonic() > began[0] + 2:
        os.abort()
    return x

class Dies(keras.layers.Layer):
    def call(self, inputs):
        return tf.ensure_shape(tf.py_function(look, [inputs], tf.float32), inputs.shape)
"""


def trained(folder, **module):
    """Trains once, without trials; returns the trainer."""
    folder.mkdir()
    trainer = training_cases.Trainer(folder)
    trainer.run(module={"line": "keras", **module}, tuning_seconds=0)
    return trainer


@pytest.fixture(scope="module")
def trainer_of(tmp_path_factory):
    """Returns a function that gives, by name, a trainer that has trained once."""
    folder = tmp_path_factory.mktemp("in_turns")
    modules = {"blessed": {}, "same": {}, "slow": {"beginning": SLOW, "layer": "Slow()"}}
    return functools.cache(lambda name: trained(folder / name, **modules[name]))


def run_of(trainer, name):
    found = executor.read_run({"perf_metrics": [trainer.perf_metrics]}, settings=PerfConfig().gate)
    return found.model_copy(
        update={"run_id": name, "artifact": None, "environment": {"device_kind": "CPU"}}
    )


def with_time(run, step_time_seconds, name):
    figures = {**run.figures, "step_time_seconds": step_time_seconds}
    return run.model_copy(update={"run_id": name, "figures": figures})


def measured(run, blessed, folder, *, seconds=90):
    # Any ratio below ten is clear with such a rule.
    gate = {"rerun_seconds": seconds, "rules": {"step_time_seconds": {"tolerance": 9}}}
    settings = PerfConfig.from_dict({"gate": gate}).gate
    return executor.measure(run, [blessed], settings=settings, log_folder=folder)


def test_no_run_of_this_size_is_another_reason_than_code_that_is_gone(tmp_path):
    now = datetime.datetime.now(datetime.timezone.utc)
    run = Run(run_id="a", time=now, environment={}, figures={})
    found = executor.measure(run, [], settings=PerfConfig().gate, log_folder=tmp_path)
    assert found.reason == "no blessed run has a model of this size, within 2%"


@pytest.mark.slow
def test_a_slower_model_is_slower_in_turns(trainer_of, tmp_path):
    ratios, blessed = {}, run_of(trainer_of("blessed"), "blessed")
    for name in ("same", "slow"):
        found = measured(run_of(trainer_of(name), name), blessed, tmp_path / name)
        assert found.against == "blessed", found.reason
        ratios[name] = found.ratio
    assert ratios["slow"].low > 1.5
    assert 0.6 < ratios["same"].value < 1.6  # both on a busy machine
    logs = {path.name for path in (tmp_path / "slow").iterdir()}
    assert logs == {"in-turns-baseline.log", "in-turns-candidate.log"}


@pytest.mark.slow
def test_the_gate_asks_if_noise_leaves_it_undecided(trainer_of, tmp_path):
    blessed = run_of(trainer_of("blessed"), "blessed")
    step_time = run_of(trainer_of("slow"), "slow").figures["step_time_seconds"]
    # Noisy runs, with the slow run's time in the middle of theirs.
    noisy = [with_time(blessed, factor * step_time, f"noisy-{factor}") for factor in (0.5, 1.5, 1)]
    alone = judge(trainer_of("slow"), noisy, tmp_path / "alone", rerun_seconds=0)
    assert alone.verdict is Verdict.INCONCLUSIVE, alone.headline
    evaluation = judge(trainer_of("slow"), noisy, tmp_path / "in turns", rerun_seconds=90)
    assert evaluation.verdict is Verdict.REGRESSION, evaluation.headline
    assert evaluation.ab_rerun.ratio.low > 1.5
    assert "In turns with noisy-" in evaluation.headline


@pytest.mark.slow
def test_a_slower_machine_is_distinguished_from_slower_code(trainer_of, tmp_path):
    own = run_of(trainer_of("same"), "same").figures["step_time_seconds"]
    blessed = run_of(trainer_of("blessed"), "blessed")
    before = [with_time(blessed, own / 3, f"run-{i}") for i in (1, 2)]
    alone = judge(trainer_of("same"), before, tmp_path / "alone", rerun_seconds=0)
    assert alone.verdict is Verdict.REGRESSION, alone.headline
    evaluation = judge(trainer_of("same"), before, tmp_path / "in turns", rerun_seconds=90)
    assert evaluation.blessed, evaluation.headline
    assert "In turns with run-2 on one host" in evaluation.outcomes[0].reason


def untrained_run(folder, *, distribution=None, **module):
    """Returns a run with only the files that are needed to train it again."""
    trainer = training_cases.Trainer(folder)
    inputs, _, properties = trainer.given(trainer.write_module(**module), distribution=distribution)
    training_job.TrainingJob.of(inputs, properties).write(
        pathlib.Path(trainer.perf_metrics.uri, training_job.FILE_NAME)
    )
    now = datetime.datetime.now(datetime.timezone.utc)
    source = trainer.perf_metrics.uri
    return Run(run_id="blessed", time=now, environment={}, figures={}, source=source)


@pytest.mark.slow
def test_a_run_of_several_workers_is_trained_again_by_as_many(tmp_path):
    template = training_cases.MODULE.replace("MirroredStrategy()", "get_strategy()")
    run = untrained_run(tmp_path, distribution={"workers": 2}, template=template)
    found = measured(run, run, tmp_path / "logs", seconds=200)
    assert found.against == "blessed", found.reason
    assert 0.3 < found.ratio.value < 3  # a training compared with itself, on a busy machine
    assert {path.name for path in (tmp_path / "logs").iterdir()} == {
        f"in-turns-{which}-worker-{index}.log"
        for which in ("candidate", "baseline")
        for index in (0, 1)
    }


def test_missing_code_leaves_it_undecided(tmp_path):
    blessed = untrained_run(tmp_path)
    assert training_job.TrainingJob.read(pathlib.Path(blessed.source, "job.json")).is_unchanged
    gone = blessed.model_copy(update={"source": str(tmp_path / "examples")})
    found = measured(blessed, gone, tmp_path)
    assert found.ratio is None
    assert "no blessed run can be trained again" in str(found)


@pytest.mark.parametrize(
    "source",
    [
        None, "gs://bucket/root/OptimizedTrainer/perf_metrics/8", "unknown://a/b/c/perf_metrics/8",
        "/perf_metrics/8", "a/\0/b", "elsewhere/deeper/still/deeper/perf_metrics",
    ],
)  # fmt: skip
def test_no_code_from_outside_the_pipelines_root_is_run(tmp_path, source):
    """A ledger may be shared, and its entries may name places that cannot be read here."""
    blessed = untrained_run(tmp_path)
    if source and source.startswith("elsewhere"):
        source = str(tmp_path / source)
        shutil.copytree(blessed.source, source)
    found = measured(blessed, blessed.model_copy(update={"source": source}), tmp_path)
    assert "no blessed run can be trained again" in found.reason


@pytest.mark.slow
@pytest.mark.parametrize(
    ("module", "words"),
    [
        ({}, "Expected training examples. Received: none in "),
        ({"beginning": DIES, "layer": "Dies()"}, "train_in_turns crashed (SIGABRT). Log: {log}"),
    ],
    ids=["fails", "dies"],
)
def test_failing_code_and_a_dying_training_are_named(trainer_of, tmp_path, module, words):
    trainer = trained(tmp_path / "own", **module)
    if not module:
        for path in pathlib.Path(trainer.examples.uri).glob("*/*"):
            path.unlink()
    found = measured(run_of(trainer, "own"), run_of(trainer_of("blessed"), "blessed"), tmp_path)
    assert words.format(log=tmp_path / "in-turns-candidate.log") in found.reason


def judge(trainer, entries, folder, **settings):
    """Runs PerfEvaluator on a training whose environment is as simple as the ledger's."""
    ledger = artifact_in(folder / "ledger", types.PerfLedger)
    environment = trainer.record.environment
    entries = [run.model_copy(update={"environment": environment}) for run in entries]
    Ledger(entries=tuple(entries)).write(folder / "ledger" / "ledger.json")
    gate = {
        "use_defaults": False,
        "rules": {"step_time_seconds": {"tolerance": 0.5, "max_regression": 0.6}},
        "minimum_steps": 1, **settings,
    }  # fmt: skip
    executor.Executor().Do(
        {
            "model": [artifact_in(folder / "model", standard_artifacts.Model)],
            "ledger": [ledger], "perf_metrics": [trainer.perf_metrics],
        },
        gate_outputs(folder),
        {"config": PerfConfig.from_dict({"gate": gate}).to_json("gate")},
    )  # fmt: skip
    return GateRecord.read(folder / "evaluation" / "evaluation.json")


class Stream:
    """Answers like a training, and records the order in which all were asked."""

    def __init__(self, name, asked):
        self.name, self.asked = name, asked

    def write(self, text):
        self.asked.append(self.name)

    def flush(self):
        pass

    def readline(self):
        return "0.5\n"


@pytest.mark.parametrize("answers", range(2 * 12))
def test_a_round_that_runs_out_of_time_does_not_count(answers):
    left = iter([None] * answers)

    class Ending(Stream):
        def readline(self):
            if next(left, self) is self:
                raise TimeoutError
            return super().readline()

    streams, rounds = [Ending("a", []), Ending("b", [])], answers // 2

    def blocks():
        never = lambda found: False  # noqa: E731
        return in_turns._blocks_in_turns(
            streams, [], deadline=math.inf, decided=never, rounds=(8, 60)
        )

    if rounds < in_turns.MIN_ROUNDS:
        with pytest.raises(TimeoutError):
            blocks()
    else:
        assert [len(steps) for steps, _ in blocks()] == [rounds, rounds]


@pytest.mark.parametrize(
    ("rounds", "decided_at", "blocks"), [((8, 60), 10, 10), ((8, 12), 100, 12), ((20, None), 7, 20)]
)
def test_blocks_end_once_decided_or_at_the_maximum_and_alternate_in_order(
    rounds, decided_at, blocks
):
    asked = []
    found = in_turns._blocks_in_turns(
        [Stream("a", asked), Stream("b", asked)],
        [],
        deadline=math.inf,
        decided=lambda found: len(found[0]) >= decided_at,
        rounds=rounds,
    )
    assert [len(steps) for steps, _ in found] == [blocks, blocks]
    assert "".join(asked) == ("abba" * blocks)[: 2 * blocks]


class Ended:
    """A child that has ended, with or without an error; with `code` None it still runs."""

    def __init__(self, error, code=1):
        self.error, self.poll = error, lambda: code

    def result(self, *, timeout_seconds):
        if self.error:
            raise self.error


def test_a_worker_that_lost_another_worker_is_not_named_as_the_cause():
    lost = errors.ChildError("a", "raised UnavailableError: b")
    cause = errors.ChildError("a", "raised ValueError: c", may_pass=False)
    running, *ended = Ended(None, None), Ended(None, 0), Ended(lost), Ended(cause)
    with pytest.raises(errors.ChildError, match="ValueError: c"):
        in_turns._raise_errors([running, *ended])
    with pytest.raises(errors.ChildError, match="UnavailableError"):
        in_turns._raise_errors(ended[:2])
    in_turns._raise_errors(ended[:1])
