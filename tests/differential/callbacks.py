"""The callbacks of the cases: Keras' and users' own."""

import pathlib
from typing import Any

import numpy as np

from .cases import Case
from .data import rows, targets_of

KERAS = (
    "early_stopping", "plateau", "csv", "csv_append", "checkpoint", "scheduler", "tensorboard",
    "backup", "terminate_on_nan",
)  # fmt: skip
OWN = (
    "record", "record_batches", "counters", "evaluates", "trains", "fits", "remakes",
    "stops_at_begin", "stops_at_end", "instance_hook", "instance_batch_hook", "has_callbacks",
    "sets_rate", "sets_weights", "lambda_epoch", "freezes_at_begin", "freezes_at_epoch",
    "freezes_later", "sets_rate_at_begin", "late_hook", "late_epoch_hook", "late_rate_hook",
)  # fmt: skip


def make(keras: Any, case: Case, folder: pathlib.Path, seen: dict[str, Any]) -> list[Any]:
    """Returns the case's callbacks.

    Args:
        keras: the line.
        case: the case.
        folder: for their files, kept by the next run.
        seen: where they leave what is to be compared, once training has ended.
    """
    return [_make(keras, case, name, folder, seen) for name in case.callbacks]


def _make(keras: Any, case: Case, name: str, folder: pathlib.Path, seen: dict[str, Any]) -> Any:
    made = keras.callbacks
    watched = "val_loss" if case.validation else "loss"
    if name == "early_stopping":
        return made.EarlyStopping(watched, patience=1, restore_best_weights=True, min_delta=0.05)
    if name == "plateau":
        return made.ReduceLROnPlateau(watched, patience=0, min_delta=10.0, factor=0.5)
    if name in ("csv", "csv_append"):
        return made.CSVLogger(str(folder / f"{name}.csv"), append=name == "csv_append")
    if name == "checkpoint":
        path = str(folder / "kept-{epoch}.weights.h5")
        return made.ModelCheckpoint(path, monitor="loss", save_weights_only=True)
    if name == "scheduler":
        return made.LearningRateScheduler(lambda epoch, rate: rate * 0.7)
    if name == "tensorboard":
        return made.TensorBoard(str(folder / "logs"), update_freq="epoch")
    if name == "backup":
        return made.BackupAndRestore(str(folder / "backup"))
    if name == "terminate_on_nan":
        return made.TerminateOnNaN()
    return _own(keras, case, name, seen)


def changing(base: type, name: str, case: Case, seen: dict[str, Any]) -> Any:
    """Returns a callback that changes the model, or gets hooks, as training or an epoch begins."""

    class Changing(base):
        def on_train_begin(self, logs=None):
            if name == "freezes_at_begin":
                self._freeze()
            if name == "sets_rate_at_begin":
                self.model.optimizer.learning_rate = 0.003
            if name == "late_hook":
                self.on_train_batch_end = self._note

        def on_epoch_begin(self, epoch, logs=None):
            place = epoch - case.initial_epoch
            if (name, place) in {("freezes_at_epoch", 0), ("freezes_later", 1)}:
                self._freeze()
            if name == "late_epoch_hook" and place == 1:
                self.on_train_batch_end = self._note
            if name == "late_rate_hook" and place == 0:
                self.on_train_batch_end = self._set_rate

        def _freeze(self):
            weighted = [layer for layer in self.model.layers if layer.trainable_weights]
            for layer in weighted[:-1][:1]:
                layer.trainable = False

        def _note(self, batch, logs=None):
            seen.setdefault("late", []).append(batch)

        def _set_rate(self, batch, logs=None):
            self._note(batch)
            self.model.optimizer.learning_rate = 0.02 / (1 + len(seen["late"]))

    return Changing()


def _own(keras: Any, case: Case, name: str, seen: dict[str, Any]) -> Any:
    base = keras.callbacks.Callback
    x, y = rows(case, count=8, seed=2)
    y = targets_of(case, y)

    def plain(logs: Any) -> dict[str, Any]:
        return {key: np.array(value).tolist() for key, value in (logs or {}).items()}

    def noting(*hooks: str) -> dict[str, Any]:
        def hook_of(hook: str) -> Any:
            is_numbered = "epoch" in hook or "batch" in hook

            def note(self, *arguments, logs=None):
                *number, logs = (*arguments, logs)[: is_numbered + 1]
                seen.setdefault("events", []).append((hook, *number, plain(logs)))

            return note

        return {f"on_{hook}": hook_of(hook) for hook in hooks}

    of_all = noting(
        "train_begin", "train_end", "epoch_begin", "epoch_end", "test_begin", "test_end"
    )  # fmt: skip
    of_batches = noting("train_batch_begin", "train_batch_end", "test_batch_end")
    Record = type("Record", (base,), of_all)
    RecordBatches = type("RecordBatches", (Record,), of_batches)

    class Counters(base):
        """Keeps state in attributes of all kinds."""

        def __init__(self):
            super().__init__()
            self.number, self._hidden, self.best = 0, 0, np.inf
            self.items, self.table, self.array = [], {}, np.zeros(2)
            seen["counters"] = self.__dict__  # looked at when training has ended

        def on_epoch_end(self, epoch, logs=None):
            self.number += 1
            self._hidden += 1
            self.best = min(self.best, float((logs or {}).get("loss", 0.0)))
            self.items.append(epoch)
            self.table[str(epoch)] = self.number
            self.array = self.array + 1

    class OnEpochEnd(base):
        def on_epoch_end(self, epoch, logs=None):
            _actions[name](self.model, epoch)

    class OnEpochBegin(base):
        def on_epoch_begin(self, epoch, logs=None):
            if name == "stops_at_begin" and epoch == case.initial_epoch + 1:
                self.model.stop_training = True
            if name == "sets_rate":
                self.model.optimizer.learning_rate = 0.02 / (1 + epoch)

    def sets_weights(model: Any, epoch: int) -> None:
        model.set_weights([w * 1.1 if w.dtype.kind == "f" else w for w in model.get_weights()])

    def stops(model: Any, epoch: int) -> None:
        model.stop_training = epoch == case.initial_epoch + 1

    def notes_evaluation(model: Any, epoch: int) -> None:
        found = model.evaluate(x, y, batch_size=4, verbose=0, return_dict=True)
        seen.setdefault("evaluated", []).append(plain(found))

    def notes_epoch(*arguments: Any) -> None:
        seen.setdefault("noted", []).append(arguments[0])

    def notes_batch(batch: int, logs: Any = None) -> None:
        seen.setdefault("batches", []).append(batch)

    _actions = {
        "evaluates": notes_evaluation,
        "trains": lambda model, epoch: model.train_on_batch(x, y),
        "fits": lambda model, epoch: model.fit(x, y, batch_size=4, verbose=0, shuffle=False),
        "remakes": lambda model, epoch: model.make_train_function(force=True),
        "stops_at_end": stops,
        "sets_weights": sets_weights,
    }
    if name in _actions:
        return OnEpochEnd()
    if name in ("stops_at_begin", "sets_rate"):
        return OnEpochBegin()
    if name in ("record", "record_batches"):
        return Record() if name == "record" else RecordBatches()
    if name == "counters":
        return Counters()
    if name == "lambda_epoch":
        return keras.callbacks.LambdaCallback(
            on_epoch_end=lambda epoch, logs=None: notes_epoch(epoch)
        )
    if name.startswith(("freezes", "late", "sets_rate_at")):
        return changing(base, name, case, seen)
    own = base()
    if name == "instance_hook":
        own.on_epoch_end = lambda epoch, logs=None: notes_epoch(epoch)
    if name == "instance_batch_hook":
        own.on_train_batch_end = notes_batch
    if name == "has_callbacks":
        own = Record()
        own.callbacks = [Counters()]
    return own
