"""Several trainings in one script, each in a block of `optimized` or all in one: which goes on.

The blocks are `script`'s. Each case is held against Keras' `fit`.
"""

import contextlib
import importlib
import os

import numpy as np
import pytest
import tensorflow as tf

import tfx_perf
from tfx_perf import script
from tfx_perf.training.recovery import checkpoint_writer

pytestmark = [pytest.mark.each_choice, pytest.mark.usefixtures("quick_traces")]


class Killed(BaseException):
    """As a kill: nothing at the end of a block is done."""


@pytest.fixture(params=["keras", "tf_keras"])
def keras(request):
    return importlib.import_module(request.param)


@pytest.fixture(autouse=True)
def new_process(monkeypatch):
    monkeypatch.setattr(checkpoint_writer, "_SAVE_SHARE", 0)  # else too short for any checkpoint
    monkeypatch.setattr(script, "_ENDED", script._ENDED.copy())
    script._ENDED.clear()


def training(keras, by, index, *, is_killed=False):
    """Trains with another seed, or on other rows, for each index; returns the weights."""
    keras.utils.set_random_seed(index if by == "seeds" else 0)
    x = np.random.default_rng(1).random((240, 4), "float32")
    x = x[index::3] if by == "folds" else x[:80]
    model = keras.Sequential([keras.layers.Dense(8, "relu"), keras.layers.Dense(1)])
    model.compile("sgd", "mse")

    class Kill(keras.callbacks.Callback):
        def on_epoch_end(self, epoch, logs=None):
            if is_killed and epoch == 1:
                raise Killed

    data = tf.data.Dataset.from_tensor_slices((x, x[:, :1])).batch(8)
    model.fit(data, epochs=4, verbose=0, callbacks=[Kill()])
    return model.get_weights()


def settings(folder):
    given = {"checkpoint_folder": str(folder), "checkpoint_every_steps": 10, "tuning_seconds": 0}
    return {"training": given}


def gate(folder):
    return {"baseline_uri": str(folder), "minimum_steps": 1}


@pytest.mark.parametrize("by", ["seeds", "folds"])
@pytest.mark.parametrize("blocks", ["one", "each", "named"])
@pytest.mark.parametrize("again", [(0, 1, 2), (1, 2)], ids=["all again", "but what is done"])
def test_no_training_resumes_from_anothers_checkpoint(keras, by, blocks, again, tmp_path):
    def train(indices, killed=None):
        script._ENDED.clear()
        found = {}
        with contextlib.ExitStack() as around_all:
            if blocks == "one":
                around_all.enter_context(tfx_perf.optimized(settings(tmp_path)))
            for index in indices:
                with contextlib.ExitStack() as around:
                    if blocks != "one":
                        name = f"fold {index}" if blocks == "named" else ""
                        around.enter_context(tfx_perf.optimized(settings(tmp_path), name=name))
                    found[index] = training(keras, by, index, is_killed=index == killed)
        return found

    with pytest.raises(Killed):
        train((0, 1, 2), killed=1)
    assert [*tmp_path.rglob("checkpoint-*")]
    for index, weights in train(again).items():
        for one, other in zip(weights, training(keras, by, index), strict=True):
            np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("code", [None, 0])
def test_a_block_that_ends_by_an_exit_without_an_error_has_come_to_its_end(keras, code, tmp_path):
    """As `absl.app.run` and click end a program."""
    given = settings(tmp_path / "checkpoints") | {"gate": gate(tmp_path / "base")}
    with pytest.raises(SystemExit) as raised, tfx_perf.optimized(given) as run:
        training(keras, "seeds", 0)
        raise SystemExit(code)
    assert raised.value.code is code
    assert run.decision.blessed
    assert not [*tmp_path.rglob("checkpoint-*")]


def test_another_working_folder_changes_no_folder_of_the_block(keras, tmp_path, monkeypatch):
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path)
    given = settings("checkpoints") | {"gate": gate("base")}
    for _ in range(2):
        os.chdir(tmp_path)
        with tfx_perf.optimized(given, folder="perf") as run:
            training(keras, "seeds", 0)
            os.chdir("elsewhere")
    assert not [*(tmp_path / "elsewhere").iterdir()]
    assert not [*tmp_path.rglob("checkpoint-*")]
    assert (tmp_path / "perf" / "report.html").is_file()
    assert run.record.runs_before == 1
    assert run.decision.baseline_runs


@pytest.mark.parametrize("has_rows", [True, False], ids=["NaN", "diverging"])
def test_without_a_nan_check_a_training_continues_like_keras_fit(keras, has_rows):
    def train():
        keras.utils.set_random_seed(1)
        x = np.random.default_rng(1).random((80, 4), "float32")
        x[40] = np.nan if has_rows else x[40]
        model = keras.Sequential([keras.layers.Dense(1)])
        model.compile(keras.optimizers.SGD(0.1 if has_rows else 1e6), "mse")
        return model.fit(x, x[:, :1], batch_size=8, epochs=3, verbose=0).history["loss"]

    given = {"tuning_seconds": 0, "max_rollbacks": None}
    with tfx_perf.optimized({"training": given}) as run:
        losses = train()
    assert run.record.train_step_count == 30
    assert not np.isfinite(losses[-1])
    np.testing.assert_array_equal(losses, train())
