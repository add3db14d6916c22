"""The digest of the user's code among the properties, by which TFX's cache sees an edit."""

import importlib
import zipfile

import pytest
from tfx import types as tfx_types
from tfx import v1 as tfx
from tfx.types import standard_artifacts

from tfx_perf.components import InputTuner, MemoryProfiler, OptimizedTrainer, trainer_args
from tfx_perf.core import cache_key

COMPONENTS = [InputTuner, MemoryProfiler, OptimizedTrainer]


@pytest.fixture
def module(tmp_path, monkeypatch):
    """A user package on PYTHONPATH; yields the file beside the one with `run_fn`."""
    package = tmp_path / "code" / "digested"
    package.mkdir(parents=True)
    for name in ("__init__", "model", "features"):
        (package / f"{name}.py").write_text("KEYS = 1\n")
    monkeypatch.syspath_prepend(str(package.parent))
    importlib.invalidate_caches()
    return package / "features.py"


def digest_in(component, **arguments):
    examples = tfx_types.Channel(type=standard_artifacts.Examples)
    return component(examples=examples, **arguments).exec_properties.get("source_digest")


@pytest.mark.parametrize("component", COMPONENTS)
def test_an_edit_anywhere_in_the_package_changes_the_properties(component, module):
    before = digest_in(component, run_fn="digested.model.run_fn")
    assert before == digest_in(component, run_fn="digested.model.run_fn")
    module.write_text("KEYS = 2\n")
    after = digest_in(component, run_fn="digested.model.run_fn")
    assert len(before) == len(after) < 100  # ML Metadata indexes it as a short text
    assert before != after


@pytest.mark.parametrize("component", COMPONENTS)
@pytest.mark.parametrize(
    "arguments",
    [
        {"run_fn": "nowhere_at_all.model.run_fn"},
        {"run_fn": ".model.run_fn"},
        {"run_fn": tfx.dsl.experimental.RuntimeParameter(name="code", ptype=str)},
        {"module_file": "module.py"},  # packaged by TFX, with a digest in the wheel's name
    ],
    ids=["elsewhere", "no path", "of the run", "module_file"],
)
def test_unknown_code_has_no_digest(component, arguments):
    assert digest_in(component, **arguments) is None


def test_a_namespace_without_modules_has_a_digest_too(tmp_path, monkeypatch):
    (tmp_path / "only_a_folder").mkdir()
    monkeypatch.syspath_prepend(str(tmp_path))
    importlib.invalidate_caches()
    assert cache_key.of_source("only_a_folder.run_fn")


def _archived(archive, files):
    with zipfile.ZipFile(archive, "w") as zipped:
        for name, text in files.items():
            zipped.writestr(name, text)


@pytest.mark.parametrize(
    ("files", "edited"),
    [
        ({"zipped/__init__.py": "", "zipped/sub/model.py": "A = 1\n"}, "zipped/sub/model.py"),
        ({"zipped.py": "A = 1\n"}, "zipped.py"),
        ({"zipped/": "", "zipped/model.py": "A = 1\n"}, "zipped/model.py"),
    ],
    ids=["package", "module", "namespace"],
)
def test_an_edit_of_code_in_an_archive_changes_the_digest(tmp_path, monkeypatch, files, edited):
    archive, given = tmp_path / "code.zip", {"run_fn": "zipped.model.run_fn"}

    def digests(**changes):
        _archived(archive, files | changes)
        return digest_in(InputTuner, **given), trainer_args.code_digest(given)

    _archived(archive, files)
    monkeypatch.syspath_prepend(str(archive))
    before = digests()
    assert before == digests()
    assert before[0] == digests(**{"unrelated.py": "A = 2\n"})[0]
    after = digests(**{edited: "A = 2000\n"})
    assert None not in before + after
    assert before[0] != after[0]
    assert before[1] != after[1]


def test_a_package_has_the_same_digest_in_an_archive(module, tmp_path, monkeypatch):
    in_folder = cache_key.of_source("digested.model.run_fn")
    files = {f"digested/{file.name}": file.read_text() for file in module.parent.glob("*.py")}
    _archived(tmp_path / "code.zip", files)
    monkeypatch.syspath_prepend(str(tmp_path / "code.zip"))
    module.write_text("KEYS = 2\n")
    assert cache_key.of_source("digested.model.run_fn") == in_folder


def test_code_that_moves_to_the_next_module_changes_the_digest(module):
    (module.parent / "features.py").write_text("A = 1\nB = 2\n")
    (module.parent / "model.py").write_text("C = 3\n")
    before = cache_key.of_source("digested.model.run_fn")
    (module.parent / "features.py").write_text("A = 1\n")
    (module.parent / "model.py").write_text("B = 2\nC = 3\n")
    moved = cache_key.of_source("digested.model.run_fn")
    (module.parent / "model.py").rename(module.parent / "models.py")
    assert len({before, moved, cache_key.of_source("digested.model.run_fn")}) == 3
