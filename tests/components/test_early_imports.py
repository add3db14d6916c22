"""Imports that begin with a run, while the nodes before ours execute."""

import importlib
import inspect
import pathlib

import pytest
from tfx import types as tfx_types
from tfx.types import standard_artifacts
from tfx.utils import name_utils

from tfx_perf import isolate
from tfx_perf.components import InputTuner, MemoryProfiler, OptimizedTrainer, early_imports


@pytest.mark.parametrize("kind", [InputTuner, MemoryProfiler, OptimizedTrainer])
def test_our_nodes_are_known_by_the_names_that_tfx_gives_them(kind, monkeypatch):
    asked = []
    monkeypatch.setattr(isolate, "import_early", lambda names=(): asked.append(names))
    early_imports.begin(name_utils.get_full_name(kind))
    early_imports.begin(name_utils.get_full_name(kind.EXECUTOR_SPEC.executor_class))
    kind(examples=tfx_types.Channel(type=standard_artifacts.Examples), run_fn="model.run_fn")
    package = kind.__module__.rpartition(".")[0]
    assert asked == [[f"{package}.child"], [f"{package}.child"], ()]


@pytest.mark.parametrize("name", early_imports._WITH_CHILDREN)
def test_the_early_imports_are_those_that_the_nodes_run_in_children(name):
    package = f"tfx_perf.components.{name}"
    own = inspect.getsource(importlib.import_module(f"{package}.child"))
    folder = pathlib.Path(inspect.getfile(importlib.import_module(package))).parent
    asked = any("{child.__name__}:" in path.read_text() for path in folder.glob("*.py"))
    assert asked or "{__name__}:" in own


def test_nothing_is_imported_for_pipelines_without_our_nodes(monkeypatch):
    asked = []
    monkeypatch.setattr(isolate, "import_early", asked.append)
    early_imports.begin("tfx.components.trainer.component.Trainer")
    early_imports.begin("")
    assert not asked
