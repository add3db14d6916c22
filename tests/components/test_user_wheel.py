"""`trainer_args`: a module that TFX has packaged is imported without pip, in any process."""

import os
import pickle
import subprocess
import sys

import pytest
from tfx.components.util import udf_utils

from tfx_perf import isolate
from tfx_perf.components import trainer_args

MODULE = """
import packaged_helper
import tensorflow as tf

@tf.function
def doubled_if_positive(value):
    if value > 0:
        value *= 2
    return value

def run_fn(_):
    return int(doubled_if_positive(tf.constant(packaged_helper.VALUE)))
"""


def imported(module_path):
    """Returns what a separate process imports; it may not start another process to do so."""

    def refused(*_, **__):
        raise AssertionError("a process was started")

    subprocess.Popen.__init__ = refused
    function = trainer_args.load_run_fn({"module_path": module_path})
    return [function(None), function.__module__, pickle.dumps(function).hex()]


@pytest.fixture
def module_path(tmp_path):
    """Returns the module path that TFX makes of a module with another one beside it."""
    (tmp_path / "sources").mkdir()
    (tmp_path / "sources" / "packaged_helper.py").write_text("VALUE = 7\n")
    main = tmp_path / "sources" / "packaged_module.py"
    main.write_text(MODULE)
    _, path = udf_utils.package_user_module_file("Trainer", str(main), str(tmp_path / "root"))
    yield path
    for name in ("packaged_module", "packaged_helper"):
        sys.modules.pop(name, None)


def test_it_is_imported_without_pip_here_and_in_children_at_once(
    module_path, tmp_path, monkeypatch
):
    monkeypatch.setattr(udf_utils, "install_to_temp_directory", pytest.fail)
    path, variable = list(sys.path), os.environ.get("PYTHONPATH")
    given = {"module_path": module_path}
    asked = {"log_path": tmp_path / "log", "is_forked": True}
    with (
        isolate.started(f"{__name__}:{imported.__name__}", given, **asked) as one,
        isolate.started(f"{__name__}:{imported.__name__}", given, **asked) as other,
    ):
        function = trainer_args.load_run_fn(given)
        assert (function(None), function.__module__) == (14, "packaged_module")
        assert pickle.loads(pickle.dumps(function)) is function  # noqa: S301 (its own)
        assert (sys.path, os.environ.get("PYTHONPATH")) == (path, variable)
        for child in (one, other):
            expected = [14, "packaged_module", pickle.dumps(function).hex()]
            assert child.result(timeout_seconds=300) == expected


def test_a_wheel_that_tfx_has_not_made_is_left_to_pip(module_path, monkeypatch):
    name, _, wheel = module_path.partition("@")
    other = wheel.replace("tfx_user_code", "of_users")
    os.rename(wheel, other)
    asked = []
    monkeypatch.setattr(
        udf_utils, "install_to_temp_directory", lambda name, temp_dir: asked.append(name)
    )
    with pytest.raises(Exception, match="can be imported"):
        trainer_args.load_run_fn({"module_path": f"{name}@{other}"})
    assert asked == [other]
