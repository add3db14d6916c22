"""How large the product is. No figure may rise; a change that lowers one lowers its limit, too."""

import collections
import pathlib
import traceback
import typing

import numpy as np
import pytest

from tfx_perf.config import PerfConfig
from tfx_perf.core import interception
from tfx_perf.tf_internals.graphs import QuickFunction
from tfx_perf.training import model_flops
from tfx_perf.training.session import TrainingSession
from tfx_perf.training.speedups.plan import TrainingPlan
from tfx_perf.training.tuning.choice import PlanChoice

from .test_imports import CLI, ENGINE, MAPPED, ROOT, imported_names, module_name

LIMITS = {
    "product lines": 48_107,
    "product files": 315,
    "settings": 62,
    "loose modules in training": 8,
    "loose modules in gate": 12,
    "loose modules in tfx_perf": 2,
    "packages that import each other": 0,
    "importers of distribute": 3,
    "words in the glossary": 24,
    "words in the docs": 25_000,
    "pages of docs": 16,
    "attributes replaced while fit runs": 4,
    "own frames from fit to the graph": 15,
}
# By how much a limit may stand above its figure, so that it is lowered.
SLACK = collections.defaultdict(int, {"product lines": 100, "words in the docs": 1_000})
FOLDERS = ("tfx_perf", "components", "kubeflow", "pipelines", "templates")


def holds(name, figure):
    limit = LIMITS[name]
    assert figure <= limit, f"{name} rose from {limit} to {figure}"
    assert figure >= limit - SLACK[name], f"{name} fell from {limit} to {figure}: lower the limit"


def sources():
    found = {path: path.read_text(encoding="utf-8") for name in FOLDERS
             for path in (ROOT / name).rglob("*.py")}  # fmt: skip
    return {path: text.splitlines() for path, text in found.items() if text}


def test_lines_and_files():
    holds("product lines", sum(map(len, sources().values())))
    holds("product files", len(sources()))


def settings_of(section):
    """Yields the settings of a section and of those in it, also of ones that may be left out."""
    for field in section.model_fields.values():
        annotation = field.annotation
        kinds = [annotation, *typing.get_args(annotation)]
        nested = [kind for kind in kinds if hasattr(kind, "model_fields")]
        yield from settings_of(nested[0]) if nested else [field]


def test_settings():
    holds("settings", len(list(settings_of(PerfConfig))))


@pytest.mark.parametrize("folder", ["tfx_perf/training", "tfx_perf/gate", "tfx_perf"])
def test_loose_modules(folder):
    modules = [path for path in sources() if path.parent == ROOT / folder]
    name = pathlib.Path(folder).name
    holds(f"loose modules in {name}", sum(path.name != "__init__.py" for path in modules))


def test_packages_that_import_each_other():
    folders = {module_name(path): path.parent for path in (*ENGINE, *MAPPED, *CLI)}
    pairs = set()
    for path in (*ENGINE, *MAPPED, *CLI):
        for name in imported_names(path):
            other = folders.get(name) or folders.get(name.rpartition(".")[0])
            if other and other != path.parent:
                pairs.add((path.parent, other))
    assert pairs, "no package imports another, the search for them is wrong"
    holds("packages that import each other", sum(pair[::-1] in pairs for pair in pairs) // 2)


def test_importers_of_distribute():
    package = "tfx_perf.distribute"
    importers = [
        path
        for path in (*ENGINE, *MAPPED, *CLI)
        if not module_name(path).startswith(package)
        and any(name.startswith(package) for name in imported_names(path))
    ]
    holds("importers of distribute", len(importers))


def test_words_in_the_glossary():
    text = (ROOT / "docs" / "quickstart.md").read_text(encoding="utf-8")
    _, _, glossary = text.partition("## Glossary")
    rows = [line for line in glossary.splitlines() if line.startswith("| ")]
    holds("words in the glossary", len(rows) - 1)  # without the heading


def test_the_docs_are_short():
    pages = [*ROOT.glob("docs/*.md"), ROOT / "CONTRIBUTING.md"]
    holds("pages of docs", len(pages))
    texts = [page.read_text(encoding="utf-8") for page in (*pages, ROOT / "README.md")]
    holds("words in the docs", sum(len(text.split()) for text in texts))


@pytest.fixture
def counted(monkeypatch, tmp_path):
    """Trains with checkpoints on one device; counts what is replaced and on the stack meanwhile."""
    keras = pytest.importorskip("keras")
    flops = model_flops.Flops(None, None, None)
    monkeypatch.setattr(model_flops, "count_flops", lambda model, batch: flops)  # takes a second
    replaced, depths = collections.Counter(), collections.Counter()
    open_now = collections.Counter()
    replacing, call = interception.replacing, QuickFunction.__call__

    def counting(owner, name, make):
        def made(before):
            open_now[id(owner), name] += 1
            return make(before)

        return replacing(owner, name, made)

    def deep(self, *args):
        own = [frame for frame in traceback.extract_stack() if "/tfx_perf/" in frame.filename]
        depths[len(own) + 1] += 1
        replaced["most"] = max(replaced["most"], len(open_now))
        return call(self, *args)

    monkeypatch.setattr(interception, "replacing", counting)
    monkeypatch.setattr(QuickFunction, "__call__", deep)
    model = keras.Sequential([keras.layers.Input((4,)), keras.layers.Dense(1)])
    model.compile("adam", "mse")
    settings = {"training": {"checkpoint_folder": str(tmp_path), "checkpoint_every_steps": 1000}}
    session = TrainingSession(PerfConfig.from_dict(settings))
    plan = TrainingPlan(steps_per_execution=4)
    session._choose = lambda call, loop: PlanChoice(plan=plan, plan_reason="given")
    x, y = np.zeros((320, 4), "float32"), np.zeros((320, 1), "float32")
    with interception.intercepting_fit(session.fit):
        model.fit(x, y, batch_size=4, epochs=2, verbose=0, validation_data=(x[:16], y[:16]))
    assert session.record.plan == plan
    return replaced["most"], depths.most_common(1)[0][0]


def test_the_path_of_a_step(counted):
    replaced, frames = counted
    holds("attributes replaced while fit runs", replaced)
    holds("own frames from fit to the graph", frames)
