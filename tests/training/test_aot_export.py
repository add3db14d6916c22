"""Saved models become object files; those that cannot be compiled are refused with the reason."""

import pathlib

import model_cases
import pytest
import tensorflow as tf

from tests import processes
from tfx_perf.core import errors
from tfx_perf.xla import aot_export

pytestmark = pytest.mark.one_case


@pytest.mark.slow_where("keras-2", "tf_keras-None")
@pytest.mark.parametrize("rows", [2, None])
def test_a_saved_model_is_compiled(keras, rows, tmp_path):
    model = model_cases.dense(keras)
    model(tf.zeros([1, 4]))
    call = tf.function(lambda x: {"y": model(x)}, autograph=False)
    spec = tf.TensorSpec([rows, 4], tf.float32, name="x")
    tf.saved_model.save(model, str(tmp_path), call.get_concrete_function(spec))

    folder = pathlib.Path(aot_export.export(str(tmp_path), signature="serving_default"))
    assert folder == tmp_path / "assets.extra" / "aot_cpu"
    header = (folder / "model.h").read_text()
    assert "class Model final : public tensorflow::XlaCompiledCpuFunction" in header
    assert f"f32[{rows or 1},4]" in header  # an open dimension becomes 1
    assert f"f32[{rows or 1},1]" in header
    symbols = processes.run("nm", "--defined-only", *folder.glob("*.o"), check=True).stdout
    assert " T " in symbols  # code, not only data
    tf.saved_model.load(str(tmp_path))  # still loads


@pytest.mark.slow
def test_a_model_that_cannot_be_compiled_is_refused(tmp_path):
    module = tf.Module()
    module.parse = tf.function(
        lambda text: {"y": tf.strings.to_number(text)},
        input_signature=[tf.TensorSpec([None], tf.string, name="text")],
    )
    module.count = tf.function(
        lambda x: {"y": tf.strings.length(tf.strings.as_string(x))},
        input_signature=[tf.TensorSpec([2], tf.float32, name="x")],
    )
    tf.saved_model.save(
        module, str(tmp_path), signatures={"parse": module.parse, "count": module.count}
    )
    for signature, reason in (
        ("parse", "its input text is a string"),
        ("other", "the model has the signatures count, parse"),
        ("count", "aot_signature=count, but "),
    ):
        with pytest.raises(errors.MeasurementError, match=reason):
            aot_export.export(str(tmp_path), signature=signature)
    assert not (tmp_path / "assets.extra").exists()
