"""CallbackState: the state of the user's callbacks and the History, and the last logs."""

import collections
import contextlib
import dataclasses
import inspect
import logging
import os
import pathlib
from collections.abc import Iterator
from typing import Any

import numpy as np

from tfx_perf.training.keras_api import private_attributes
from tfx_perf.training.recovery import plain_data
from tfx_perf.training.recovery.plain_data import Packed, packed, unpacked

_FILE = "callbacks.data"
_KERAS = ("keras", "tf_keras")

_LOGGER = logging.getLogger(__name__)


@dataclasses.dataclass(frozen=True)
class CallbackSnapshot:
    """The callbacks' state at one moment, packed; see `plain_data`."""

    history: Packed  # the epochs of the History, and its values
    # Per callback: class, changed attributes, and the length in bytes of a CSV logger's file.
    callbacks: list[tuple[str, dict[str, Packed], int | None]]
    logs: Packed  # of the last call of the train function


class CallbackState:
    """Saves the attributes of callbacks that are plain data and have changed in the training.

    For Keras' own callbacks these are numbers, strings and lists of arrays (the best weights), but
    no constructor arguments. `lost` has those, as `Class.attribute`, that could not be restored.
    """

    def __init__(self, callbacks: list[Any], module: Any) -> None:
        self._callbacks = callbacks
        given = [callback for callback in callbacks if isinstance(callback, module.History)]
        self.history = given[0] if given else module.History()
        self.lost: list[str] = []
        self._appends: dict[int, bool] = {}  # the user's `append` of each CSV logger, by index
        self._module = module
        self._initial: list[dict[str, Packed]] = [{} for _ in callbacks]
        self._has_begun = False

    def begin(self) -> None:
        """Notes the attributes at the beginning of training, after every `on_train_begin`.

        Only the first call counts. `restore` uses them for attributes unchanged in a checkpoint.
        """
        if not self._has_begun:
            self._initial = [self._attributes(callback) for callback in self._callbacks]
        self._has_begun = True

    def snapshot(self, logs: Any = None) -> CallbackSnapshot:
        """Returns the callbacks' state, and the last call's logs, independent of later changes."""
        callbacks = []
        for callback, initial in zip(self._callbacks, self._initial, strict=True):
            attributes = self._attributes(callback).items()
            changed = {name: node for name, node in attributes if node != initial.get(name)}
            callbacks.append((type(callback).__name__, changed, self._log_bytes(callback)))
        history = packed((getattr(self.history, "epoch", []), self.history.history))
        return CallbackSnapshot(history, callbacks, packed(logs))

    def restore(self, snapshot: CallbackSnapshot) -> None:
        """Restores the callbacks' state, after every `on_train_begin`, which resets it."""
        self.history.epoch = []
        self.history.history.clear()
        with self.noting("History", snapshot.history):
            self.history.epoch, values = unpacked(snapshot.history)
            self.history.history.update(values)
        for callback, initial, (changed, _) in zip(
            self._callbacks, self._initial, self._saved(snapshot), strict=True
        ):
            for name, node in self._attributes(callback).items():
                if name in changed or not node.is_whole:  # an open file stays open
                    continue
                if name in initial:
                    self._restore_attribute(callback, name, initial[name])
                else:
                    del vars(callback)[name]
            for name, node in changed.items():
                self._restore_attribute(callback, name, node)

    def write(self, folder: pathlib.Path, logs: Any = None) -> None:
        """Writes a snapshot into a file in the folder."""
        (folder / _FILE).write_bytes(plain_data.dumped(vars(self.snapshot(logs))))

    @staticmethod
    def read(folder: pathlib.Path) -> CallbackSnapshot:
        """Returns the state that `write` wrote into a checkpoint's folder."""
        try:
            return CallbackSnapshot(**plain_data.loaded((folder / _FILE).read_bytes()))
        except Exception as error:
            _LOGGER.warning("the state of callbacks cannot be read: %s", error)
            nothing = packed(None)._replace(is_whole=False)
            return CallbackSnapshot(nothing, [], nothing)

    def continue_logs(self, snapshot: CallbackSnapshot) -> None:
        """Makes CSV loggers append to the snapshot's lines; call it before `on_train_begin`."""
        for index, (_, length) in enumerate(self._saved(snapshot)):
            callback = self._callbacks[index]
            if not isinstance(callback, self._module.CSVLogger):
                continue
            self._appends.setdefault(index, callback.append)
            callback.append = True
            if getattr(callback, "csv_file", None) is not None:  # left by an interrupted `fit`
                callback.csv_file.close()
                callback.writer = None
            if length is not None and (self._log_bytes(callback) or 0) > length:
                os.truncate(callback.filename, length)

    def restore_log_settings(self) -> None:
        """Makes the CSV loggers follow the user's setting again in the next `fit`."""
        for index, append in self._appends.items():
            callback = self._callbacks[index]
            callback.append = append
            callback.append_header = callback.append_header or not append
        self._appends.clear()

    def reset(self) -> None:
        """Restores the initial state of the callbacks and the History."""
        self.restore_log_settings()
        self.restore(CallbackSnapshot(packed(([], {})), [], packed({})))

    def _saved(self, snapshot: CallbackSnapshot) -> list[tuple[dict[str, Packed], int | None]]:
        """Returns the saved state of each callback, matched by class, since code may change."""
        saved = collections.defaultdict(list)
        for name, attributes, log_bytes in reversed(snapshot.callbacks):
            saved[name].append((attributes, log_bytes))
        names = [type(callback).__name__ for callback in self._callbacks]
        return [saved[name].pop() if saved[name] else ({}, None) for name in names]

    def _log_bytes(self, callback: Any) -> int | None:
        if not isinstance(callback, self._module.CSVLogger):
            return None
        is_overwritten = not callback.append and callback.writer is None  # by the first row
        if is_overwritten or not os.path.exists(callback.filename):
            return 0
        return os.path.getsize(callback.filename)

    def _attributes(self, callback: Any) -> dict[str, Packed]:
        cls = type(callback)
        # Keras sets these, and changes the arguments of its constructors.
        passed = {*vars(self._module.Callback()), *private_attributes.OF_EVERY_CALLBACK}
        attributes = {name: value for name, value in vars(callback).items() if name not in passed}
        if cls.__module__.partition(".")[0] in _KERAS:
            arguments = inspect.signature(cls.__init__).parameters  # a user's may change them
            only = private_attributes.ONLY_REMEMBERED.get(cls.__name__)
            also = private_attributes.ALSO_REMEMBERED.get(cls.__name__, ())
            attributes = {
                name: value
                for name, value in attributes.items()
                if name not in arguments
                and (name in only if only else name in also or _is_state_of_keras(name, value))
            }
        return {name: packed(value) for name, value in attributes.items()}

    def _restore_attribute(self, callback: Any, name: str, node: Packed) -> None:
        with self.noting(f"{type(callback).__name__}.{name}", node):
            if node.is_whole:
                vars(callback)[name] = unpacked(node, vars(callback).get(name))

    @contextlib.contextmanager
    def noting(self, what: str, node: Packed) -> Iterator[None]:
        """Notes a state as lost if it is not whole or raises, since the code may have changed."""
        try:
            yield
            if node.is_whole:
                return
        except Exception as error:
            _LOGGER.warning("%s is not what it was at the checkpoint: %s", what, error)
        if what not in self.lost:
            self.lost.append(what)


def _is_state_of_keras(name: str, value: Any) -> bool:
    if name.startswith("_"):
        return False
    is_list = isinstance(value, list) and bool(value)
    is_arrays = is_list and all(isinstance(item, np.ndarray | np.generic) for item in value)
    return is_arrays or isinstance(value, (int, float, complex, np.generic, str, type(None)))
