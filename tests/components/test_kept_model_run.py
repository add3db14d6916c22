"""Files that callbacks write are still there when an interrupted training resumes."""

import csv
import pathlib
import shutil

import pytest

pytestmark = pytest.mark.each_choice

# Ends once after the fourth of six epochs; the first epoch has the best monitored loss.
# Saves may take any share of the time, since the training is short.
TRAIN = """
    import os
    from tfx_perf.training.recovery import checkpoint_writer
    checkpoint_writer._SAVE_SHARE = 0
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


def run(trainer, number, *, line="keras", edit="", kept=True, **settings):
    """Runs as TFX does: each execution has another folder."""
    for name in ("model_run", "perf_metrics"):
        artifact = getattr(trainer, name)
        artifact.uri = str(trainer.folder / name / str(number))
        pathlib.Path(artifact.uri).mkdir(parents=True)
    train = TRAIN.format(flag=str(trainer.folder / "blown"), edit=edit)
    if kept:
        settings |= {"checkpoint_folder": str(trainer.folder / "kept"), "checkpoint_every_steps": 5}
    trainer.run(module={"line": line, "train": train}, steps_per_execution=(5,), **settings)


def epochs_logged(trainer):
    with open(pathlib.Path(trainer.model_run.uri, "log.csv"), encoding="utf-8") as file:
        return [int(row["epoch"]) for row in csv.DictReader(file)]


def had_trials(trainer):
    return pathlib.Path(trainer.perf_metrics.uri, "trials.log").exists()


@pytest.mark.slow
@pytest.mark.parametrize("line", ["keras", "tf_keras"])
def test_a_resumed_training_has_the_files_of_its_callbacks_and_no_trials(trainer, line):
    with pytest.raises(RuntimeError, match="the fuse"):
        run(trainer, 1, line=line)
    assert had_trials(trainer)
    shutil.rmtree(trainer.model_run.uri)  # as TFX does
    run(trainer, 2, line=line)
    record = trainer.record
    assert record.resumed_step >= 20
    assert record.resumed_step + record.train_step_count == 60
    assert not had_trials(trainer)
    assert epochs_logged(trainer) == list(range(6))
    assert pathlib.Path(trainer.model_run.uri, "best.weights.h5").exists()
    assert not (trainer.folder / "kept").exists()
    # The trained model is published, so that another run starts from scratch, with trials.
    run(trainer, 3, line=line)
    assert had_trials(trainer)
    assert trainer.record.resumed_step is None


@pytest.mark.slow
def test_edited_code_begins_with_an_empty_folder(trainer):
    with pytest.raises(RuntimeError, match="the fuse"):
        run(trainer, 1, tuning_seconds=0)
    run(trainer, 2, edit="model.compile('sgd', 'mae')", tuning_seconds=0)
    assert trainer.record.resumed_step is None
    assert epochs_logged(trainer) == list(range(6))


@pytest.mark.slow
def test_without_checkpoints_the_folder_is_the_artifacts(trainer):
    (trainer.folder / "blown").touch()
    run(trainer, 1, kept=False, tuning_seconds=0)
    assert epochs_logged(trainer) == list(range(6))
