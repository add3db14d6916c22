"""CallbackState: what the user's callbacks and the History have to remember."""

import inspect
import json
import numbers
import pathlib
from typing import Any

import numpy as np

_FILE, _ARRAYS = "callbacks.json", "callbacks.npz"
_PLAIN = (numbers.Number, np.generic, str, type(None))  # bool is a number


class CallbackState:
    """Saves attributes of callbacks: numbers, words, and lists of arrays (the best weights).

    Only what has changed since the training began is saved, and nothing that has the name of an
    argument of the constructor: a callback keeps what it was given.

    Attributes:
        history: the History that `fit` is to fill.
    """

    def __init__(self, callbacks: list[Any], module: Any) -> None:
        """Finds the History among the callbacks or makes one.

        Args:
            callbacks: the user's.
            module: the `callbacks` module of the model's Keras line.
        """
        self._callbacks = callbacks
        given = [callback for callback in callbacks if isinstance(callback, module.History)]
        self.history = given[0] if given else module.History()
        self._module = module
        self._initial: list[dict[str, Any]] = [{} for _ in callbacks]

    def begin(self, folder: pathlib.Path | None) -> None:
        """Notes the attributes at the beginning and puts back what a checkpoint holds.

        To be called after every `on_train_begin`: callbacks forget there what they knew.

        Args:
            folder: of the checkpoint to go on from; None: the training begins.
        """
        self._initial = [_attributes(callback) for callback in self._callbacks]
        if folder is None:
            return
        saved = json.loads((folder / _FILE).read_text())
        self.history.epoch = saved["epochs"]
        self.history.history.clear()
        self.history.history.update(saved["history"])
        # By their classes: the code may have got another callback, or lost one, in between.
        unclaimed = list(enumerate(saved["classes"]))
        with np.load(folder / _ARRAYS) as arrays:
            for callback in self._callbacks:
                of_class = [pair for pair in unclaimed if pair[1] == type(callback).__name__]
                if not of_class:
                    continue
                unclaimed.remove(of_class[0])
                index = of_class[0][0]
                for name, value in saved["attributes"][index].items():
                    setattr(callback, name, value)
                for name, count in saved["arrays"][index].items():
                    kept = [arrays[f"{index}/{name}/{item}"] for item in range(count)]
                    setattr(callback, name, kept)

    def write(self, folder: pathlib.Path) -> None:
        """Writes the attributes into files."""
        attributes, counts, arrays = [], [], {}
        for index, callback in enumerate(self._callbacks):
            changed = {
                name: value
                for name, value in _attributes(callback).items()
                if isinstance(value, list) or value != self._initial[index].get(name, self)
            }
            lists = {name: value for name, value in changed.items() if isinstance(value, list)}
            attributes.append({k: v for k, v in changed.items() if k not in lists})
            counts.append({name: len(value) for name, value in lists.items()})
            for name, value in lists.items():
                arrays |= {f"{index}/{name}/{item}": array for item, array in enumerate(value)}
        np.savez(folder / _ARRAYS, **arrays)
        document = {
            "epochs": getattr(self.history, "epoch", []),
            "history": self.history.history,
            "classes": [type(callback).__name__ for callback in self._callbacks],
            "attributes": attributes,
            "arrays": counts,
        }
        (folder / _FILE).write_text(json.dumps(document, default=_plain))

    def keep_logs(self, epoch: int) -> None:
        """Has the CSV loggers go on with their files, after the rows of the epochs before.

        To be called before every `on_train_begin`.

        Args:
            epoch: the first one that will run.
        """
        for callback in self._callbacks:
            if isinstance(callback, self._module.CSVLogger):
                callback.append = True
                _cut(pathlib.Path(callback.filename), callback.sep, epoch)


def _cut(path: pathlib.Path, separator: str, epoch: int) -> None:
    """Removes the rows of epochs that will be run again."""
    if not path.exists():
        return
    lines = path.read_text().splitlines(keepends=True)
    columns = lines[0].rstrip().split(separator) if lines else []
    if "epoch" in columns:
        place = columns.index("epoch")
        kept = [line for line in lines[1:] if int(line.split(separator)[place]) < epoch]
        path.write_text("".join([lines[0], *kept]))


def _attributes(callback: Any) -> dict[str, Any]:
    """Returns what may be state: not what the constructor was given, which Keras may change."""
    given = {"params"}
    for cls in type(callback).__mro__[:-1]:
        given.update(inspect.signature(cls.__init__).parameters)
    return {
        name: value
        for name, value in vars(callback).items()
        if not name.startswith("_") and name not in given
        if isinstance(value, _PLAIN) or _is_arrays(value)
    }


def _is_arrays(value: Any) -> bool:
    is_list = isinstance(value, list) and bool(value)
    return is_list and all(isinstance(item, np.ndarray) for item in value)


def _plain(value: Any) -> Any:
    return value.item() if isinstance(value, np.generic) else float(value)
