"""The state of callbacks after an interruption, restored from files and from memory."""

import collections
import datetime
import math

import model_cases
import numpy as np
import pytest

from tfx_perf.training.recovery.callback_state import CallbackState

pytestmark = pytest.mark.each_choice


def mine_of(keras):
    class Mine(keras.callbacks.Callback):
        def __init__(self, given=None, rows=None, limit=3):
            super().__init__()
            self.given = {} if given is None else given
            self.rows = [] if rows is None else rows
            self.limit = limit
            self._private = 0
            self.when = None
            self.counts = collections.Counter()
            self.times = collections.defaultdict(list)
            self.last = collections.deque(maxlen=2)
            self.lock = object()

    return Mine


def advance(callback):
    callback.given["best"] = (1, {"loss": 0.5})
    callback.rows.append([1, np.float32(2.0)])
    callback._private += 1
    callback.when = datetime.datetime(2024, 2, 29)
    callback.counts["x"] += 2
    callback.times["y"].append(np.arange(3))
    callback.last.extend([1, 2, 3])
    callback.late = {1, 2}


def state_of(keras, *callbacks):
    state = CallbackState(list(callbacks), keras.callbacks)
    state.begin()
    return state


def put_into(keras, *callbacks, state, folder):
    """Returns the state of callbacks restored from the file of another state."""
    state.write(folder)
    restored = state_of(keras, *callbacks)
    restored.restore(CallbackState.read(folder))
    return restored


@pytest.mark.parametrize("in_file", [True, False])
def test_a_users_callback_gets_its_state_back(keras, in_file, tmp_path):
    Mine = mine_of(keras)
    one, other = Mine(), Mine()
    state = state_of(keras, one)
    advance(one)
    rows = other.rows
    if in_file:
        restored = put_into(keras, other, state=state, folder=tmp_path)
    else:
        restored = state_of(keras, other)
        restored.restore(state.snapshot())
    assert other.given == {"best": (1, {"loss": 0.5})}
    assert other.rows is rows  # changed in place, since other objects may hold it
    assert rows == [[1, 2.0]]
    assert type(rows[0][1]) is np.float32
    assert other._private == 1
    assert other.when == datetime.datetime(2024, 2, 29)
    assert other.counts == {"x": 2}
    assert other.times["y"][0].tolist() == [0, 1, 2]
    assert other.times["new"] == []
    assert other.last == collections.deque([2, 3], maxlen=2)
    assert other.late == {1, 2}
    assert restored.lost == []


def test_unchanged_attributes_are_as_the_code_now_sets_them(keras, tmp_path):
    one, other = mine_of(keras)(limit=3), mine_of(keras)(limit=5)
    state = state_of(keras, one)
    one._private = 4
    one.set_params({"epochs": 1})
    one.set_model(model_cases.dense(keras))
    other.set_params({"epochs": 9})
    other.set_model(None)
    put_into(keras, other, state=state, folder=tmp_path)
    assert (other.limit, other._private) == (5, 4)
    assert (other.params, other.model) == ({"epochs": 9}, None)  # set by the running fit


def test_a_rollback_reverts_later_changes(keras):
    one = mine_of(keras)()
    state = state_of(keras, one)
    start = state.snapshot()
    advance(one)
    state.restore(start)
    assert (one.given, one.rows, one._private, one.when) == ({}, [], 0, None)
    assert not hasattr(one, "late")
    advance(one)
    later = state.snapshot()
    advance(one)
    state.restore(later)
    assert one._private == 1
    assert len(one.rows) == 1


def test_only_attributes_that_cannot_be_saved_are_lost_and_named(keras, tmp_path):
    one = mine_of(keras)()
    state = state_of(keras, one)
    one.writer = object()
    one.rows.append(lambda: 0)
    one._private = 1
    other = mine_of(keras)()
    restored = put_into(keras, other, state=state, folder=tmp_path)
    assert (other._private, other.rows) == (1, [])
    assert sorted(restored.lost) == ["Mine.rows", "Mine.writer"]


def test_nested_and_unusual_values_of_the_history_are_restored(keras, tmp_path):
    state = state_of(keras)
    values = {
        "loss": [1.0, math.nan],
        "f1": [np.array([0.1, 0.2], "float32")] * 2,
        "nested": [{"a": np.float32(1)}],
        "odd": [object()],
    }
    state.history.epoch = [0, 1]
    state.history.history.update(values)
    state.write(tmp_path)
    other = state_of(keras)
    other.history.history["stale"] = [1]
    other.restore(CallbackState.read(tmp_path))
    assert other.history.epoch == [0, 1]
    found = other.history.history
    assert list(found) == list(values)
    assert found["odd"] == [None]  # one value per epoch
    assert other.lost == ["History"]
    np.testing.assert_array_equal(found["loss"], values["loss"])
    assert found["f1"][1].dtype == np.float32
    assert found["nested"] == values["nested"]


@pytest.mark.parametrize("data", [b"", b"no JSON\n", b"[]\n"])
def test_a_file_that_cannot_be_read_is_noted(keras, data, tmp_path):
    one = mine_of(keras)()
    state = state_of(keras, one)
    state.write(tmp_path)
    (file,) = tmp_path.iterdir()
    file.write_bytes(data)
    state.restore(CallbackState.read(tmp_path))
    assert state.lost == ["History"]
    assert (state.history.epoch, state.history.history) == ([], {})


def test_callbacks_are_matched_by_their_classes(keras, tmp_path):
    Mine = mine_of(keras)
    first, second = Mine(), Mine()
    state = state_of(keras, first, keras.callbacks.TerminateOnNaN(), second)
    first._private, second._private = 1, 2
    others = keras.callbacks.EarlyStopping(), Mine(), Mine(), Mine()
    put_into(keras, *others, state=state, folder=tmp_path)
    assert [other._private for other in others[1:]] == [1, 2, 0]


OF_KERAS = {
    "EarlyStopping": {"monitor": "loss", "restore_best_weights": True, "patience": 1},
    "ReduceLROnPlateau": {"monitor": "loss", "patience": 0, "min_delta": 10.0, "cooldown": 3},
    "ModelCheckpoint": {"filepath": "x.weights.h5", "save_weights_only": True, "save_freq": 3},
    "TensorBoard": {"log_dir": "logs", "write_graph": False},
    "SwapEMAWeights": {},
    "TerminateOnNaN": {},
    "LearningRateScheduler": {"schedule": lambda epoch, rate: rate * 0.5},
}
# The state that later steps depend on; the rest are files, clocks and settings.
REMEMBERED = {
    "EarlyStopping": ("wait", "best", "best_epoch", "best_weights", "stopped_epoch"),
    "ReduceLROnPlateau": ("wait", "best", "cooldown_counter"),
    "ModelCheckpoint": ("best", "_batches_seen_since_last_saving", "_last_batch_seen"),
    "TensorBoard": ("_global_train_batch",),
    "SwapEMAWeights": ("_ema_weights_in_model",),
}


@pytest.mark.parametrize("name", OF_KERAS)
def test_the_state_of_keras_own_callbacks_is_restored(keras, name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    if not hasattr(keras.callbacks, name):
        pytest.skip("this Keras line has none")
    make = lambda: getattr(keras.callbacks, name)(**OF_KERAS[name])  # noqa: E731
    model = model_cases.dense(keras)
    model.compile(optimizer=keras.optimizers.SGD(0.01, use_ema=True), loss="mse")
    one, other = make(), make()
    state = CallbackState([one], keras.callbacks)
    begun = keras.callbacks.LambdaCallback(on_train_begin=lambda logs=None: state.begin())
    model.fit(model_cases.regression(), verbose=0, callbacks=[one, begun], epochs=2)
    other.set_params(one.params)
    other.set_model(model)
    other.on_train_begin()
    assert put_into(keras, other, state=state, folder=tmp_path).lost == []
    for attribute in REMEMBERED.get(name, ()):
        np.testing.assert_equal(getattr(other, attribute), getattr(one, attribute), attribute)


def test_best_weights_may_include_plain_numbers(keras, tmp_path):
    """As the count of `Normalization` is in tf_keras."""
    one, other = (keras.callbacks.EarlyStopping(restore_best_weights=True) for _ in range(2))
    state = state_of(keras, one)
    one.best_weights = [np.ones(2, "float32"), np.int32(3)]
    put_into(keras, other, state=state, folder=tmp_path)
    np.testing.assert_equal(other.best_weights, one.best_weights)


def test_arguments_that_keras_changes_are_left_alone(keras, tmp_path):
    one = keras.callbacks.EarlyStopping(min_delta=0.1, patience=3)
    state = state_of(keras, one)
    one.min_delta, one.patience = -0.1, 4
    other = keras.callbacks.EarlyStopping(min_delta=0.2, patience=5)
    expected = other.min_delta
    put_into(keras, other, state=state, folder=tmp_path)
    assert (other.min_delta, other.patience) == (expected, 5)


@pytest.mark.parametrize("in_memory", [True, False])
@pytest.mark.parametrize("append", [True, False])
@pytest.mark.parametrize("rows", [0, 1])
def test_a_csv_log_continues_after_the_rows_of_its_checkpoint(
    keras, append, in_memory, rows, tmp_path
):
    file = tmp_path / "log.csv"
    file.write_text("epoch,loss\n" + "0,9.0\n" * 100)  # of an earlier training that has ended

    def logger():
        return keras.callbacks.CSVLogger(str(file), append=append)

    one = logger()
    one.on_train_begin()
    one.set_model(model_cases.dense(keras))
    state = state_of(keras, one)
    for row in range(rows):
        one.on_epoch_end(row, {"loss": 1.0})
    state.write(tmp_path)
    expected = file.read_text() if rows or append else ""
    one.on_epoch_end(rows, {"loss": 2.0})
    one.csv_file.write("2,half of a ro")

    other, again = one, state
    if not in_memory:
        one.csv_file.close()
        other = logger()
        again = CallbackState([other], keras.callbacks)
    again.continue_logs(again.read(tmp_path))
    other.on_train_begin()
    other.set_model(one.model)
    if not in_memory:
        again.begin()
    again.restore(CallbackState.read(tmp_path))
    other.on_epoch_end(rows, {"loss": 3.0})
    other.on_train_end()
    *before, last = file.read_text().splitlines()
    # tf_keras makes room for a validation that may come later.
    header = "epoch,loss,val_loss" if keras.__name__ == "tf_keras" else "epoch,loss"
    assert before == (expected.splitlines() or [header])
    assert last.startswith(f"{rows},3.0")
