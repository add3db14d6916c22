"""Imports that begin with a run, beside the nodes before ours."""

import importlib
import inspect
import pathlib

from tfx.utils import name_utils

from tfx_perf.components import InputTuner, MemoryProfiler, OptimizedTrainer, early_imports
from tfx_perf.components.processes import child


def test_it_knows_our_nodes_by_the_type_that_tfx_gives_them():
    kinds = InputTuner, MemoryProfiler, OptimizedTrainer
    ours = {name_utils.get_full_name(kind) for kind in kinds}
    assert set(early_imports._MODULES) == ours


def test_what_it_imports_is_what_the_nodes_have_run_in_children():
    modules = [(kind, module) for kind, found in early_imports._MODULES.items() for module in found]
    for node_type, module in modules:
        own = inspect.getsource(importlib.import_module(module))
        package = importlib.import_module(node_type.rpartition(".")[0].rpartition(".")[0])
        sources = [path.read_text() for path in _files(package)]
        name = module.rpartition(".")[2]
        asks = any(f"{{{name}.__name__}}:" in source for source in sources)
        assert asks or "{__name__}:" in own, module


def _files(package):
    return pathlib.Path(inspect.getfile(package)).parent.glob("*.py")


def test_nothing_is_imported_for_pipelines_without_our_nodes(monkeypatch):
    asked = []
    monkeypatch.setattr(child, "import_early", asked.append)
    early_imports.begin(["tfx.components.trainer.component.Trainer", ""])
    assert not asked
    early_imports.begin([*early_imports._MODULES, ""])
    assert asked == [[module for found in early_imports._MODULES.values() for module in found]]
