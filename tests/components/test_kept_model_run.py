"""What callbacks write is there when an interrupted training goes on."""

import csv
import pathlib
import shutil

import pytest

pytestmark = pytest.mark.each_choice

# Ends once after the fourth of six epochs; the best loss by its measure is the first.
# Such a training is too short for a save to be a small share of it.
TRAIN = """
    import os
    from tfx_perf.training.recovery import saver
    saver._SAVE_SHARE = 0
    class Fuse(keras.callbacks.Callback):
        def on_epoch_end(self, epoch, logs=None):
            if epoch == 3 and not os.path.exists({flag!r}):
                open({flag!r}, "w").close()
                raise RuntimeError("the fuse")
    {edit}
    folder = fn_args.model_run_dir
    model.fit(train, steps_per_epoch=10, epochs=6, verbose=0, callbacks=[
        keras.callbacks.CSVLogger(os.path.join(folder, "log.csv"), append=True),
        keras.callbacks.ModelCheckpoint(
            os.path.join(folder, "best.weights.h5"), monitor="loss", mode="max",
            save_best_only=True, save_weights_only=True),
        Fuse()])
"""


def run(trainer, number, *, line="keras", edit="", **settings):
    """Runs as TFX does: each execution has another folder."""
    trainer.model_run.uri = str(trainer.folder / "model_run" / str(number))
    pathlib.Path(trainer.model_run.uri).mkdir(parents=True)
    train = TRAIN.format(flag=str(trainer.folder / "blown"), edit=edit)
    trainer.run(module={"line": line, "train": train}, trial_budget_seconds=0, **settings)


def epochs_logged(trainer):
    with open(pathlib.Path(trainer.model_run.uri, "log.csv"), encoding="utf-8") as file:
        return [int(row["epoch"]) for row in csv.DictReader(file)]


@pytest.mark.slow
@pytest.mark.parametrize("line", ["keras", "tf_keras"])
def test_a_training_that_goes_on_has_the_files_of_its_callbacks(trainer, line):
    kept = {"checkpoint_folder": str(trainer.folder / "kept"), "checkpoint_steps": 5}
    with pytest.raises(RuntimeError, match="the fuse"):
        run(trainer, 1, line=line, **kept)
    shutil.rmtree(trainer.model_run.uri)  # as TFX does
    run(trainer, 2, line=line, **kept)
    assert trainer.record.resumed_step >= 20
    assert epochs_logged(trainer) == list(range(6))
    assert pathlib.Path(trainer.model_run.uri, "best.weights.h5").exists()
    assert not (trainer.folder / "kept").exists()


@pytest.mark.slow
def test_edited_code_begins_with_an_empty_folder(trainer):
    kept = {"checkpoint_folder": str(trainer.folder / "kept"), "checkpoint_steps": 5}
    with pytest.raises(RuntimeError, match="the fuse"):
        run(trainer, 1, **kept)
    run(trainer, 2, edit="model.compile('sgd', 'mae')", **kept)
    assert trainer.record.resumed_step is None
    assert epochs_logged(trainer) == list(range(6))


def test_without_checkpoints_it_is_the_artifacts_folder(trainer):
    (trainer.folder / "blown").touch()
    run(trainer, 1)
    assert epochs_logged(trainer) == list(range(6))
