"""Profiles of real steps, against bounds and counts by hand."""

import html

import keras
import pytest
import tensorflow as tf
import tf_keras

from tfx_perf import isolate
from tfx_perf.config import MemorySettings
from tfx_perf.core import errors, interception
from tfx_perf.memory import batches, footprint, largest_batch, peak, profile
from tfx_perf.memory.record import Footprint, ProfileRecord, StateSizes, StepMemory
from tfx_perf.report import memory as memory_report

pytestmark = pytest.mark.each_choice

LINES = pytest.mark.parametrize("line", [keras, tf_keras], ids=["keras", "tf_keras"])

CONVOLUTION_WEIGHTS = 4 * (9 * 3 * 16 + 16 + 9 * 16 * 16 + 16 + 16 + 1)
MAP_BYTES = 4 * 32 * 32 * 16  # one activation map of one example


def in_child(target, tmp_path, *, onednn=True, **arguments):
    # TensorFlow decides about oneDNN by the processor, and it decides about the workspace.
    return isolate.run(
        f"memory_cases:{target}",
        arguments,
        timeout_seconds=300,
        log_path=tmp_path / "log",
        environment={**peak.ENVIRONMENT, "TF_ENABLE_ONEDNN_OPTS": str(int(onednn))},
    )


@LINES
@pytest.mark.parametrize("drop_remainder", [True, False])
def test_a_step_is_traced_once_for_all_batch_sizes(line, drop_remainder):
    traced = []

    class Noted(line.layers.Layer):
        def call(self, x):
            traced.append(x.shape[0])
            return x

    model = line.Sequential([line.Input((4,)), Noted(), line.layers.Dense(1)])
    model.compile("sgd", "mse", jit_compile=False)
    data = tf.data.Dataset.from_tensors((tf.zeros(4), tf.zeros(1))).repeat()
    data = data.batch(8, drop_remainder=drop_remainder)
    call = interception.capture_fit(lambda: model.fit(data, steps_per_epoch=2))
    peak.run_steps(call, batches.batch_of(data, 4))
    traced.clear()
    for size in (8, 16, 32):
        peak.run_steps(call, batches.batch_of(data, size))
    assert not traced


def test_a_model_that_insists_on_its_batch_size_is_run_with_it():
    model = keras.Sequential(
        [keras.Input(batch_shape=(8, 3, 2)), keras.layers.LSTM(2, stateful=True)]
    )
    model.compile("sgd", "mse", jit_compile=False)
    data = tf.data.Dataset.from_tensors((tf.zeros([3, 2]), tf.zeros(2))).repeat()
    data = data.batch(8, drop_remainder=True)
    call = interception.capture_fit(lambda: model.fit(data, steps_per_epoch=2))
    peak.run_steps(call, batches.batch_of(data, 8), steps=2)
    assert int(model.optimizer.iterations) == 2


@pytest.mark.slow
@pytest.mark.parametrize("onednn", [True, False], ids=["onednn", "without_onednn"])
@pytest.mark.parametrize("line", ["keras", "tf_keras"])
def test_convolutions(line, onednn, tmp_path):
    result = in_child("convolutions", tmp_path, line=line, onednn=onednn)
    record = ProfileRecord.model_validate(result["record"])
    assert (record.keras, record.module_batch_size) == (line, 64)

    assert record.state.weights_bytes == CONVOLUTION_WEIGHTS
    assert record.state.gradients_bytes == CONVOLUTION_WEIGHTS
    slots = 2 * CONVOLUTION_WEIGHTS
    assert 0 < record.state.optimizer_state_bytes - slots <= 16  # counter, learning rate

    assert [step.batch_size for step in record.steps if step.plan == "xla"] == [64]
    xla = record.step("xla", 64)
    for size in (32, 64, 128):
        plain = record.step("plain", size)
        assert plain.input_batch_bytes == 4 * size * (32 * 32 * 3 + 1)
        # The backward step of the second convolution needs its input and its output's gradient;
        # there are four maps and as many gradients in all.
        activations = record.parts(plain)["activations and temporaries"]
        assert 2 * size * MAP_BYTES <= activations
        if onednn:  # else a workspace of up to 40 MB, whatever the batch, is among them
            assert activations <= 8 * size * MAP_BYTES
    assert xla.temp_bytes >= 2 * 64 * MAP_BYTES
    arguments = xla.peak_bytes - xla.temp_bytes
    least = CONVOLUTION_WEIGHTS + slots + record.step("plain", 64).input_batch_bytes
    assert least <= arguments <= least + 1024  # counters and metrics

    if onednn:
        peaks = [record.step("plain", size).peak_bytes for size in (32, 64, 128)]
        assert peaks == sorted(peaks)
    assert record.prediction.bytes_at(512) == pytest.approx(result["far_peak_bytes"], rel=0.25)
    assert record.trained_plan == "xla"  # as the model was compiled
    missing = {key for key, value in record.figures().items() if value is None}
    assert missing <= {key for key in missing if key.startswith(("largest_", "footprint_"))}

    assert 0 <= record.fragmentation_ratio < 1
    page = memory_report.report_on(record).render()
    assert "each further example takes" in page
    assert "fragmentation at the peak" in page


def test_xla_is_not_asked_where_it_would_not_be_used():
    model = keras.Sequential([keras.layers.Input((4,)), keras.layers.Dense(1)])
    model.compile("sgd", "mse", jit_compile=False)
    call = interception.capture_fit(lambda: model.fit(tf.zeros((8, 4)), tf.zeros((8, 1))))
    record = profile.completed(
        profile.profile(call, settings=MemorySettings(), why_no_xla="it is slow")
    )
    xla = record.step("xla", record.module_batch_size)
    assert (xla.status, xla.peak_bytes, xla.reason) == ("not run", None, "it is slow")


@pytest.mark.parametrize(
    ("steps", "seconds", "is_asked"),
    [(1000, 3.0, False), (1000, 0.5, True), (10_000, 3.0, True), (None, 3.0, True)],
)
def test_xla_is_not_asked_if_it_would_prolong_a_short_training(steps_of, steps, seconds, is_asked):
    rows = steps_of(plan="xla", steps=steps, seconds=seconds, step_seconds=0.01)
    assert (rows[8].peak_bytes is not None) is is_asked
    assert is_asked or "memory.batch_sizes asks it anyway" in rows[8].reason


@pytest.mark.slow
def test_strings_have_a_plain_figure_only(tmp_path):
    record = ProfileRecord.model_validate(in_child("strings", tmp_path))
    assert record.step("plain", 4).peak_bytes > 0
    xla = record.step("xla", 4)
    assert xla.peak_bytes is None
    assert xla.reason
    assert record.figures()["xla_peak_bytes"] is None
    assert xla.reason in html.unescape(memory_report.report_on(record).render())


@LINES
def test_a_default_allocator_gives_a_reason_instead_of_a_figure(line):
    model = line.Sequential([line.layers.Input((4,)), line.layers.Dense(2)])
    model.compile(optimizer="adam", loss="mse")
    dataset = tf.data.Dataset.from_tensors((tf.zeros((8, 4)), tf.zeros((8, 2))))
    call = interception.capture_fit(lambda: model.fit(dataset))
    plan = "xla" if model.jit_compile else "plain"  # Keras 3 settles `auto` by the devices
    progress = profile.profile(call, settings=MemorySettings(batch_sizes=(2,)))
    record = profile.completed(progress)
    assert record.trained_plan == plan
    assert [(step.plan, step.batch_size) for step in record.steps] == [
        ("plain", 2),
        ("xla", 2),
        ("plain", 8),
        ("xla", 8),
    ]
    plain, xla = record.step("plain", 8), record.step("xla", 8)
    assert plain.peak_bytes is None
    assert "TF_CPU_ALLOCATOR_USE_BFC" in plain.reason
    assert xla.peak_bytes > xla.temp_bytes
    assert record.figures()["largest_batch_size"] is None
    assert "fewer than two" in record.reason
    assert "could not be measured" not in memory_report.report_on(record).verdict
    assert plain.status == "failed"


@LINES
def test_state_sizes_under_mirrored_strategy_are_those_of_one_device(line):
    with tf.distribute.MirroredStrategy(["CPU:0"]).scope():
        model = line.Sequential(
            [line.layers.Input((4,)), line.layers.BatchNormalization(), line.layers.Dense(2)]
        )
        model.compile(optimizer=line.optimizers.SGD(momentum=0.9), loss="mse")
        model.fit(tf.zeros((8, 4)), tf.zeros((8, 2)), verbose=0)
    sizes = peak.state_sizes(model)
    trainable = 4 * (4 * 2 + 2 + 2 * 4)
    assert sizes.weights_bytes == trainable + 4 * 2 * 4  # moving mean and variance
    assert sizes.gradients_bytes == trainable
    assert 0 < sizes.optimizer_state_bytes - trainable <= 16


def test_tensor_bytes_of_strings_and_ragged():
    assert batches.tensor_bytes({"a": tf.constant(["ab", "c"]), "b": tf.zeros((2, 3))}) == 3 + 24
    ragged = tf.ragged.constant([[1, 2], [3]], dtype=tf.int32)
    assert batches.tensor_bytes(ragged) == 3 * 4 + 3 * 8  # values and row splits


def test_a_scalar_beside_the_rows_is_no_batch_size():
    assert batches.batch_size_of({"a scalar": tf.constant(0.5), "rows": tf.zeros((3, 2))}) == 3


def test_arrays_are_rebatched_with_their_weights():
    model = keras.Sequential([keras.layers.Input((4,)), keras.layers.Dense(2)])
    model.compile(optimizer="sgd", loss="mse")
    arrays = (tf.zeros((10, 4)), tf.zeros((10, 2)))
    call = interception.capture_fit(
        lambda: model.fit(*arrays, batch_size=5, sample_weight=tf.ones(10))
    )
    dataset = batches.dataset_of(call)
    assert batches.batch_size_of(batches.first_batch(dataset)) == 5
    x, y, weights = batches.batch_of(dataset, 25)
    assert (x.shape, y.shape, weights.shape) == ((25, 4), (25, 2), (25,))


@pytest.mark.parametrize(
    "data", [(pair for pair in ()), tf.data.Dataset.range(0).batch(2)], ids=["generator", "empty"]
)
def test_data_that_cannot_be_profiled(data):
    model = keras.Sequential([keras.layers.Input((4,)), keras.layers.Dense(2)])
    model.compile(optimizer="sgd", loss="mse")
    call = interception.capture_fit(lambda: model.fit(data))
    with pytest.raises(errors.UserError, match="Received"):
        profile.profile(call, settings=MemorySettings())


@LINES
@pytest.mark.parametrize("steps_per_execution", [1, 5])
def test_time_of_a_fit_beside_its_steps_is_no_time_of_a_step(
    line, steps_per_execution, monkeypatch
):
    seconds, hidden = [0.0], 100.0

    class Slow(line.callbacks.Callback):
        def on_epoch_begin(self, epoch, logs=None):
            seconds[0] += hidden

    model = line.Sequential([line.layers.Input((4,)), line.layers.Dense(1)])
    model.compile("sgd", "mse", steps_per_execution=steps_per_execution)
    call = interception.capture_fit(lambda: model.fit(tf.zeros((8, 4)), tf.zeros((8, 1))))
    monkeypatch.setattr(peak.time, "perf_counter", lambda: seconds[0])
    made = peak.StepWatch.callback

    def callback(watch, call):
        own = made(watch, call)

        class Both(Slow):
            def on_train_batch_begin(self, batch, logs=None):
                own.on_train_batch_begin(batch)
                seconds[0] += 0.001

            def on_train_batch_end(self, batch, logs=None):
                own.on_train_batch_end(batch)

        return Both()

    monkeypatch.setattr(peak.StepWatch, "callback", callback)
    meter = footprint.FootprintMeter(call, max_utilization=0.9, note=pytest.fail)
    measured = meter.take(8)
    assert measured.footprint.step_seconds == pytest.approx(0.001)
    assert measured.footprint.seconds == pytest.approx(largest_batch.STEPS * (hidden + 0.001))
    assert len(measured.rises_bytes) == largest_batch.STEPS - 1


@pytest.fixture
def steps_of(monkeypatch):
    """Profiles with steps that are not run; returns the rows of those that were, by size."""

    def profiled(
        *, jit_compile=False, rise=lambda size: 100, steps=250, seconds=9.0, step_seconds=0.0,
        plan="plain", **given,
    ):  # fmt: skip
        def take(self, size, *, may_end):
            rises = rise(size), rise(size) - 10
            found = Footprint(
                batch_size=size, taken_bytes=8, limit_bytes=2**40,
                seconds=seconds, step_seconds=step_seconds,
            )  # fmt: skip
            return footprint.Measured(found, 8, rises)

        def nothing(run):
            raise errors.MeasurementError("not looked at")

        monkeypatch.setattr(footprint.FootprintMeter, "take", take)
        monkeypatch.setattr(peak, "gap", lambda device: "")
        monkeypatch.setattr(peak, "fragmentation", nothing)
        model = keras.Sequential([keras.layers.Input((4,)), keras.layers.Dense(1)])
        model.compile("sgd", "mse", jit_compile=jit_compile)
        data = tf.data.Dataset.from_tensors((tf.zeros(4), tf.zeros(1))).repeat().batch(8)
        call = interception.capture_fit(lambda: model.fit(data, steps_per_epoch=steps))
        progress = profile.profile(call, settings=MemorySettings(), **given)
        return {step.batch_size: step for step in progress.steps if step.plan == plan}

    return profiled


def test_the_steps_of_a_batch_say_how_much_its_peak_varies(steps_of):
    steps = steps_of(jit_compile=False)
    assert {size: step.scatter_bytes for size, step in steps.items()} == {
        4: 10, 8: 10, 16: 10, 128: 10,
    }  # fmt: skip


@pytest.mark.parametrize(
    ("example_count", "sizes"), [(None, [4, 8, 16, 128]), (60, [4, 8, 16, 60])]
)
def test_no_larger_batch_than_the_split_has_examples_is_trained_on(example_count, sizes, steps_of):
    assert [*steps_of(jit_compile=False, example_count=example_count)] == sizes


@pytest.mark.parametrize(
    ("rise", "example_count", "sizes"),
    [
        (lambda size: 100, None, [4, 8, 16, 64, 256, 1024]),
        (lambda size: 100, 100, [4, 8, 16, 64]),
        (lambda size: max(1000, 10 * size), None, [4, 8, 16, 64, 256]),  # from there it grows
        (lambda size: 1000 * size, None, [4, 8, 16]),
    ],
)
def test_without_footprints_sizes_grow_until_the_peak_does(rise, example_count, sizes, steps_of):
    assert [*steps_of(jit_compile=True, rise=rise, example_count=example_count)] == sizes


STATE = StateSizes(weights_bytes=10, optimizer_state_bytes=20, gradients_bytes=10)
STEPS = (
    StepMemory(plan="plain", batch_size=8, input_batch_bytes=10, peak_bytes=1000),
    StepMemory(plan="xla", batch_size=8, input_batch_bytes=10, reason="none"),
)
RECORD = ProfileRecord(
    module_batch_size=8, device="CPU:0", replica_count=1, keras="keras", state=STATE, steps=STEPS,
    memory_limit_bytes=1500, limit_source="for the test",
)  # fmt: skip


def test_activations_that_fill_the_memory_get_advice():
    (advice,) = RECORD.advice
    assert advice.code == "activations"
    assert "950 B of 1000 B" in advice.message
    assert advice.message in html.unescape(memory_report.report_on(RECORD).render())
    assert not RECORD.model_copy(update={"memory_limit_bytes": 3000}).advice
    heavy = STATE.model_copy(update={"weights_bytes": 600})
    assert not RECORD.model_copy(update={"state": heavy}).advice


def test_the_report_names_the_basis_of_the_claim():
    claim = {
        "trained_plan": "xla", "largest_batch_size": 8, "largest_is_lower_bound": True,
        "largest_remark": "a batch of 8 was trained on and took 1.00 GiB",
        "footprints": (
            Footprint(batch_size=8, taken_bytes=2**30, seconds=1.0),
            Footprint(batch_size=64, status="killed", reason="its process was killed"),
        ),
    }  # fmt: skip
    record = RECORD.model_copy(update=claim)
    assert record.endings == {8: "measured", 64: "killed"}
    assert record.figures()["largest_batch_is_lower_bound"] == 1
    assert record.figures()["largest_trained_batch_size"] == 8
    assert record.figures()["footprint_bytes"] == 2**30
    page = html.unescape(memory_report.report_on(record).render())
    assert "at least 8 fit" in page
    assert "trained with XLA" in page
    assert "batch 64 was killed" in page
    assert record.largest_remark in page
