"""`trainer_args`: a module that TFX has packaged is imported without pip, in any process."""

import os
import pathlib
import pickle
import subprocess
import sys
import tempfile
import zipfile

import pytest
from tfx.components.util import udf_utils

from tfx_perf import isolate
from tfx_perf.components import trainer_args


def imported(module_path, folder):
    """Returns what a process of its own imports, which may start no other one for that."""

    def refused(*_, **__):
        raise AssertionError("a process was started")

    subprocess.Popen.__init__, tempfile.tempdir = refused, folder
    function = trainer_args.load_run_fn({"module_path": module_path})
    return [function(None), function.__module__, pickle.dumps(function).hex()]


@pytest.fixture
def module_path(tmp_path, monkeypatch):
    """Returns what TFX makes of a module with another one beside it."""
    (tmp_path / "sources").mkdir()
    (tmp_path / "sources" / "packaged_helper.py").write_text("VALUE = 7\n")
    main = tmp_path / "sources" / "packaged_module.py"
    main.write_text("import packaged_helper\ndef run_fn(_):\n    return packaged_helper.VALUE\n")
    _, path = udf_utils.package_user_module_file("Trainer", str(main), str(tmp_path / "root"))
    (tmp_path / "temporary").mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "temporary"))
    yield path
    for name in ("packaged_module", "packaged_helper"):
        sys.modules.pop(name, None)


@pytest.fixture
def installed(monkeypatch):
    """Returns what pip is asked to install."""
    asked = []
    install = udf_utils.install_to_temp_directory

    def installing(dependency, temp_dir=None):
        asked.append(dependency)
        return install(dependency, temp_dir)

    monkeypatch.setattr(udf_utils, "install_to_temp_directory", installing)
    return asked


def test_it_is_imported_without_pip_here_and_in_children_at_once(module_path, installed, tmp_path):
    path, variable = list(sys.path), os.environ.get("PYTHONPATH")
    given = {"module_path": module_path, "folder": tempfile.gettempdir()}
    asked = {"log_path": tmp_path / "log", "is_forked": True}
    with (
        isolate.started(f"{__name__}:{imported.__name__}", given, **asked) as one,
        isolate.started(f"{__name__}:{imported.__name__}", given, **asked) as other,
    ):
        function = trainer_args.load_run_fn({"module_path": module_path})
        assert (function(None), function.__module__) == (7, "packaged_module")
        assert pickle.loads(pickle.dumps(function)) is function  # noqa: S301 (its own)
        assert (sys.path, os.environ.get("PYTHONPATH")) == (path, variable)
        for child in (one, other):
            expected = [7, "packaged_module", pickle.dumps(function).hex()]
            assert child.result(timeout_seconds=300) == expected
    assert installed == []
    (folder,) = pathlib.Path(tempfile.gettempdir()).glob("tfx-perf-modules-*/*")
    assert pathlib.Path(sys.modules["packaged_module"].__file__).parent == folder


def test_what_was_cleared_away_is_unpacked_again(module_path):
    wheel = module_path.partition("@")[2]
    folder = trainer_args.unpacked(wheel)
    (folder / "packaged_helper.py").unlink()
    (folder / "packaged_module.py").write_text("")
    assert trainer_args.unpacked(wheel) == folder
    assert (folder / "packaged_helper.py").read_text() == "VALUE = 7\n"
    assert "run_fn" in (folder / "packaged_module.py").read_text()


def rewritten(wheel, *, file, old, new):
    """Changes one file in a wheel."""
    with zipfile.ZipFile(wheel) as archive:
        content = {name: archive.read(name).decode() for name in archive.namelist()}
    (name,) = [name for name in content if name.endswith(file)]
    assert old in content[name]
    content[name] = content[name].replace(old, new)
    with zipfile.ZipFile(wheel, "w") as archive:
        for each, text in content.items():
            archive.writestr(each, text)


@pytest.mark.parametrize(
    ("file", "old", "new"),
    [
        ("METADATA", "Summary", "Requires-Dist: pip\nSummary"),
        ("WHEEL", "Purelib: true", "Purelib: false"),
        ("WHEEL", "none-any", "cp311-linux_x86_64"),
    ],
)
def test_what_is_more_than_files_is_left_to_pip(file, old, new, module_path, monkeypatch):
    wheel = module_path.partition("@")[2]
    rewritten(wheel, file=file, old=old, new=new)
    assert trainer_args.unpacked(wheel) is None
    asked = []
    monkeypatch.setattr(
        udf_utils, "install_to_temp_directory", lambda name, temp_dir: asked.append(name)
    )
    with pytest.raises(Exception, match="can be imported"):
        trainer_args.load_run_fn({"module_path": module_path})
    assert asked == [wheel]


def test_a_folder_that_others_can_write_to_is_not_used(module_path):
    wheel = module_path.partition("@")[2]
    trainer_args.unpacked(wheel).parent.chmod(0o777)
    assert trainer_args.unpacked(wheel) is None
