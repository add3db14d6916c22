"""Imports that begin with a run, beside the nodes before ours."""

import importlib
import inspect
import pathlib

import pytest
from tfx import types as tfx_types
from tfx.types import standard_artifacts
from tfx.utils import name_utils

from tfx_perf import isolate
from tfx_perf.components import InputTuner, MemoryProfiler, OptimizedTrainer, early_imports

MODULES = [(package, name) for package, found in early_imports._MODULES.items() for name in found]


@pytest.mark.parametrize("kind", [InputTuner, MemoryProfiler, OptimizedTrainer])
def test_it_knows_our_nodes_by_the_names_that_tfx_gives_them(kind, monkeypatch):
    asked = []
    note = lambda names, is_sure: asked.append((names, is_sure))  # noqa: E731
    monkeypatch.setattr(isolate, "import_early", note)
    early_imports.begin(name_utils.get_full_name(kind))
    early_imports.begin(name_utils.get_full_name(kind.EXECUTOR_SPEC.executor_class))
    kind(examples=tfx_types.Channel(type=standard_artifacts.Examples), run_fn="model.run_fn")
    package = kind.__module__.rpartition(".")[0]
    own = tuple(name for of, name in MODULES if of == package)
    assert asked == [(own, True), (own, True), (own, False)]


@pytest.mark.parametrize(("package", "name"), MODULES)
def test_what_it_imports_is_what_the_nodes_have_run_in_children(package, name):
    own = inspect.getsource(importlib.import_module(name))
    folder = pathlib.Path(inspect.getfile(importlib.import_module(package))).parent
    asks = f"{{{name.rpartition('.')[2]}.__name__}}:"
    asked = any(asks in path.read_text() for path in folder.glob("*.py"))
    assert asked or "{__name__}:" in own


def test_nothing_is_imported_for_pipelines_without_our_nodes(monkeypatch):
    asked = []
    monkeypatch.setattr(isolate, "import_early", asked.append)
    early_imports.begin("tfx.components.trainer.component.Trainer")
    early_imports.begin("")
    assert not asked
