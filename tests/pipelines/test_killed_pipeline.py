"""A whole pipeline is killed while it trains; run again, it ends as if nothing had happened."""

import os
import signal
import subprocess
import sys
import time

import numpy as np
import pytest
import training_cases

pytestmark = pytest.mark.slow

_STEPS, _START_SECONDS = 120, 180
_MODULE = training_cases.MODULE.replace("batch_size=10,", "batch_size=10, shuffle_seed=3,")
_LAYERS = "[keras.layers.Dropout(0.3), keras.layers.BatchNormalization()]"
# Waits once in the middle; there have been checkpoints by then.
_TRAIN = """import os, time
    from tfx_perf.training.recovery import saver
    saver._SAVE_SHARE = 0

    class Waits(keras.callbacks.Callback):
        def on_epoch_begin(self, epoch, logs=None):
            if epoch == 3 and not os.path.exists({flag!r}):
                open({flag!r}, "w").close()
                time.sleep(600)

    model.fit(train, steps_per_epoch=20, epochs=6, verbose=0, callbacks=[Waits()])"""
# A plan without trials, so that every run has the same.
_SCRIPT = """
import pathlib, sys
import training_cases
from tests.local_pipeline import LocalPipeline
from tfx import v1 as tfx
from tfx_perf.components import OptimizedTrainer

folder, name = pathlib.Path(sys.argv[1]), sys.argv[2]
examples, schema = training_cases.imported(folder)
training = {"seed": 1, "trial_budget_seconds": 0, "recompute": 2, "checkpoint_steps": 10}
trainer = OptimizedTrainer(
    run_fn=f"{name}.run_fn",
    examples=examples.outputs["result"], schema=schema.outputs["result"],
    train_args=tfx.proto.TrainArgs(), eval_args=tfx.proto.EvalArgs(num_steps=1),
    config={"training": training},
)
LocalPipeline(folder).run([examples, schema, trainer])
"""


class Pipeline:
    """One in a folder, whose model has dropout and BatchNorm."""

    def __init__(self, folder, line):
        folder.mkdir()
        self.trainer = training_cases.Trainer(folder)
        self.module = self.trainer.write_module(
            line=line, template=_MODULE, layer=f"keras.Sequential({_LAYERS})",
            train=_TRAIN.format(flag=str(folder / "waited")),
        )  # fmt: skip
        self.node = folder / "artifacts" / "OptimizedTrainer"
        self.log = folder / "log.txt"

    def start(self):
        folder = self.trainer.folder
        path = os.pathsep.join([str(folder), *sys.path])
        command = [sys.executable, "-c", _SCRIPT, str(folder), self.module.stem]
        with self.log.open("ab") as log:
            return subprocess.Popen(
                command, stdout=log, stderr=log, env={**os.environ, "PYTHONPATH": path}
            )

    def run(self):
        assert self.start().wait(timeout=300) == 0, self.log.read_text(errors="replace")[-3000:]

    def checkpoints(self):
        return self.node.glob(".system/training_checkpoints/*/*/checkpoint-*")

    def outcome(self):
        """Returns the weights and the record."""
        (model,) = self.node.glob("model/*/Format-Serving")
        (metrics,) = self.node.glob("perf_metrics/*/metrics.json")
        self.trainer.model.uri = str(model.parent)
        self.trainer.perf_metrics.uri = str(metrics.parent)
        return self.trainer.variables(), self.trainer.record


@pytest.mark.parametrize("line", ["keras", "tf_keras"])
def test_a_killed_pipeline_goes_on_where_it_was(line, tmp_path):
    whole, killed = Pipeline(tmp_path / "whole", line), Pipeline(tmp_path / "killed", line)
    (tmp_path / "whole" / "waited").touch()
    whole.run()
    expected, undisturbed = whole.outcome()
    assert undisturbed.resumed_step is None

    process, limit = killed.start(), time.monotonic() + _START_SECONDS
    while not (tmp_path / "killed" / "waited").exists():
        assert process.poll() is None and time.monotonic() < limit, killed.log.read_text()[-3000:]
        time.sleep(0.1)
    process.kill()
    assert process.wait(timeout=60) == -signal.SIGKILL, killed.log.read_text()[-3000:]
    assert not list(killed.node.glob("model/*/Format-Serving"))
    killed.run()
    found, resumed = killed.outcome()

    assert 0 < resumed.resumed_step < _STEPS
    assert resumed.train_step_count == _STEPS - resumed.resumed_step
    assert resumed.plan == undisturbed.plan
    assert found.keys() == expected.keys() != set()
    for name, value in expected.items():
        np.testing.assert_array_equal(found[name], value, err_msg=name)
    assert not list(killed.checkpoints())  # nothing is left to go on from
