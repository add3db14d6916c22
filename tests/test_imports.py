"""What may import what: docs/architecture.md's layers, and the engine's independence of TFX.

And what test files import or name, so that the tests of a module are found.
"""

import ast
import functools
import graphlib
import json
import pathlib
import re
from collections.abc import Iterator

import pytest

from tests import processes

ROOT = pathlib.Path(__file__).parents[1]
ENGINE = sorted(
    path for path in (ROOT / "tfx_perf").rglob("*.py") if "cli" not in path.relative_to(ROOT).parts
)
MAPPED = sorted(
    path
    for folder, pattern in (
        ("components", "**/*.py"),
        ("kubeflow", "**/*.py"),
        ("pipelines", "**/*.py"),
        ("templates", "*.py"),  # what is below becomes the users' own
    )
    for path in (ROOT / folder).glob(pattern)
)
CLI = sorted((ROOT / "tfx_perf" / "cli").rglob("*.py"))
COMPONENTS = sorted((ROOT / "components").glob("*/component.py"))
DISTRIBUTE = "tfx_perf.distribute"
TFX_PACKAGES = {"tfx", "tfx_bsl", "tensorflow_transform", "tensorflow_model_analysis"}


def module_name(path: pathlib.Path) -> str:
    parts = path.relative_to(ROOT).with_suffix("").parts
    parts = parts if parts[0] == "tfx_perf" else ("tfx_perf", *parts)
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


@functools.cache
def tree(path: pathlib.Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"), str(path))


def imported_names(path: pathlib.Path, *, top_level: bool = False) -> Iterator[str]:
    """Yields `a.b` for `import a.b`, and `a.b` for `from a import b`."""
    for node in tree(path).body if top_level else ast.walk(tree(path)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative import"
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def modules_after(*statements: str) -> list[set[str]]:
    """Returns the modules that a fresh interpreter has loaded after each of the statements."""
    tell = "print(); print('LOADED', json.dumps(sorted(sys.modules)))"
    code = "\n".join(["import json, sys", *(f"{each}\n{tell}" for each in statements)])
    child = processes.python("-c", code, cwd=ROOT)
    assert child.returncode == 0, child.stderr[-4000:]
    lines = [line.split(" ", 1) for line in child.stdout.splitlines() if line[:7] == "LOADED "]
    return [set(json.loads(modules)) for _, modules in lines]


@functools.cache
def layers() -> dict[str, int]:
    """Returns the layer of every name in the table of docs/architecture.md."""
    text = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    return {
        name: int(layer)
        for layer, names in re.findall(r"^\| (\d) \| (.*?) \|", text, flags=re.MULTILINE)
        for name in re.findall(r"`(\w+)/?`", names)
    }


def test_only_modules_that_an_import_needs_are_loaded():
    package, under_launch, comparisons, scripts, engine = modules_after(
        "import tfx_perf",
        # A script under `launch` is run before TensorFlow is imported.
        "import tfx_perf.distribute.launch, tfx_perf.isolate.serving",
        "from tfx_perf.report import step_parts",
        "import tfx_perf.script",
        f"import {', '.join(map(module_name, ENGINE))}",
    )
    assert not package & {*TFX_PACKAGES, "tensorflow", "keras", "tf_keras", "numpy"}
    assert "tensorflow" not in under_launch
    assert "matplotlib" not in comparisons
    assert "ml_metadata" not in scripts
    assert set(map(module_name, ENGINE)) <= engine
    assert not engine & TFX_PACKAGES


def test_engine_does_not_name_tfx():
    for path in ENGINE:
        names = {name.split(".")[0] for name in imported_names(path)}
        assert not names & TFX_PACKAGES, module_name(path)


@pytest.mark.skipif(not COMPONENTS, reason="there are no components")
def test_components_do_not_load_tensorflow_parts_of_the_engine():
    # TFX imports TensorFlow itself; ours would come on top in every runner and compiler.
    heavy = {
        module_name(path)
        for path in ENGINE
        if any(name.split(".")[0] == "tensorflow" for name in imported_names(path, top_level=True))
    }
    assert heavy, "the engine has TensorFlow modules, the search for them is wrong"
    for path in COMPONENTS:
        assert not heavy & set(imported_names(path)), module_name(path)


def test_imports_point_to_lower_layers():
    """But in functions of `training`, which import `distribute` where there are several."""
    layer_of = layers()
    assert layer_of, "docs/architecture.md has no table of layers"
    for path in (*ENGINE, *MAPPED, *CLI):
        parts = module_name(path).split(".")
        if parts == ["tfx_perf"]:
            continue  # loads everything lazily, by name
        assert parts[1] in layer_of, f"docs/architecture.md has no layer for {parts[1]}"
        at_the_top = set(imported_names(path, top_level=True))
        for name in imported_names(path):
            if parts[1] == "training" and name.startswith(DISTRIBUTE) and name not in at_the_top:
                continue
            target = name.split(".")
            if target[0] == "tfx_perf" and len(target) > 1 and target[1] in layer_of:
                is_above = layer_of[target[1]] > layer_of[parts[1]]
                assert not is_above, f"{module_name(path)} imports {name}"


def imported_packages(path: pathlib.Path) -> Iterator[tuple[str, str]]:
    """Yields (own package, imported package), side by side in one folder, of what runs."""
    own = module_name(path).split(".")
    for name in run_time_imports(tree(path)):
        if name.startswith(f"{DISTRIBUTE}.") and "training" in own:
            continue  # in functions only, see `test_imports_point_to_lower_layers`
        other = name.split(".")
        depth = next((i for i, (a, b) in enumerate(zip(own, other, strict=False)) if a != b), None)
        if depth is not None:
            yield ".".join(own[: depth + 1]), ".".join(other[: depth + 1])


def run_time_imports(node: ast.AST) -> Iterator[str]:
    """Yields what `imported_names` yields, without what only type checkers import."""
    if isinstance(node, ast.ImportFrom):
        yield from (f"{node.module}.{alias.name}" for alias in node.names)
    for child in ast.iter_child_nodes(node):
        if not (isinstance(child, ast.If) and "TYPE_CHECKING" in ast.unparse(child.test)):
            yield from run_time_imports(child)


def test_packages_side_by_side_import_one_another_in_no_circle():
    sources = [*ENGINE, *MAPPED, *CLI]
    packages = {module_name(path) for path in sources if path.name == "__init__.py"}
    graph: dict[str, set[str]] = {}
    for path in sources:
        for own, other in imported_packages(path):
            if own in packages and other in packages:
                graph.setdefault(own, set()).add(other)
    assert graph, "no package imports another, the search for them is wrong"
    graphlib.TopologicalSorter(graph).prepare()  # raises CycleError


PRIVATE_MODULES = re.compile(r"(tensorflow\.(python|core|compiler|tsl)|(tf_)?keras\.src)\b")
# See docs/architecture.md.
BEHIND = ("tfx_perf.tf_internals.", "tfx_perf.training.keras_api.", "tfx_perf.distribute.")
# Modules of Python itself, and of TFX and Kubeflow Pipelines.
OTHERS_PRIVATE = {
    "_clear", "_run_exitfuncs",  # of atexit, as multiprocessing uses them
    "_shutdown",  # of threading, likewise
    "_asdict", "_exit", "_replace",
    "_GetFnArgs", "_connection_config", "_get_url_prefix", "_mlmd_connection", "_output_dir",
    "_output_filename", "_pipeline_node", "_resolve_pip_dependencies", "_run_driver",
}  # fmt: skip


def private_attributes(path: pathlib.Path) -> set[str]:
    """Returns the private attributes of other objects than those of the module's own classes."""
    own, used = set(), set()
    for node in ast.walk(tree(path)):
        if isinstance(node, ast.FunctionDef):
            own.add(node.name)
        elif isinstance(node, ast.Attribute):
            of_self = getattr(node.value, "id", "") in {"self", "cls"}
            (own if of_self else used).add(node.attr)
        elif isinstance(node, ast.Call) and getattr(node.func, "id", "") in {"getattr", "hasattr"}:
            used.add(str(getattr(node.args[1], "value", "")))
    return {name for name in used - own if name.startswith("_") and not name.startswith("__")}


def test_private_parts_of_tensorflow_and_keras_are_used_in_two_packages_only():
    sources = [*ENGINE, *MAPPED, *CLI]
    behind = [path for path in sources if module_name(path).startswith(BEHIND)]
    assert any(map(private_attributes, behind)), "the search for them is wrong"
    for path in set(sources) - set(behind):
        modules = list(filter(PRIVATE_MODULES.match, imported_names(path)))
        attributes = private_attributes(path) - OTHERS_PRIVATE
        assert not modules and not attributes, f"{module_name(path)}: {modules} {attributes}"


def names_in_test(path: pathlib.Path) -> set[str]:
    """Returns the modules that a test file is named after, imports, or says that it is about."""
    names = {path.stem.removeprefix("test_")}
    names.update(re.findall(r"`([\w.]+)`", ast.get_docstring(tree(path)) or ""))
    for name in run_time_imports(tree(path)):
        if name.startswith("tfx_perf."):
            names |= {name, name.rpartition(".")[0]}  # a module, or what is in one
    return names


def test_tests_of_every_module_are_found_by_its_name():
    named = set().union(*map(names_in_test, (ROOT / "tests").rglob("test_*.py")))
    modules = [module_name(path) for path in (*ENGINE, *MAPPED, *CLI) if path.stem != "__init__"]
    hidden = [
        module
        for module in modules
        if not any(module == name or module.endswith(f".{name}") for name in named)
    ]
    assert not hidden, f"no test file imports or names (in its docstring, in backticks): {hidden}"


def test_a_training_on_one_device_loads_nothing_of_several():
    (loaded,) = modules_after("""
import keras, numpy, tfx_perf
model = keras.Sequential([keras.layers.Input((4,)), keras.layers.Dense(1)])
model.compile("adam", "mse")
with tfx_perf.optimized():
    model.fit(numpy.zeros((64, 4)), numpy.zeros(64), verbose=0)
import tfx_perf.components.optimized_trainer.child
""")
    assert "tfx_perf.training.loop.fit_loop" in loaded
    assert not [name for name in loaded if name.startswith("tfx_perf.distribute")]
