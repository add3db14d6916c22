"""Names in errors, docstrings and pages exist: functions, commands, settings, files."""

import ast
import functools
import importlib
import itertools
import pathlib
import re
from collections.abc import Iterator

import click
import pydantic
import pytest
import yaml

from tfx_perf.cli import main
from tfx_perf.config import PerfConfig
from tfx_perf.config.base import REMOVED

ROOT = pathlib.Path(__file__).parent.parent
SOURCES = ("benchmarks", "components", "kubeflow", "pipelines", "templates", "tfx_perf")
PAGES = [*ROOT.glob("*.md"), *ROOT.glob("docs/*.md"), *ROOT.glob("templates/**/*.md"),
         *ROOT.glob("tfx_perf/**/*.md")]  # fmt: skip

_NAME = re.compile(r"(?<![\w/.-])tfx_perf(?:\.[A-Za-z_]\w*)+(?![\w/])")
_COMMAND = re.compile(r"`(?:\.venv/bin/)?tfx-perf ([^`]+)`")
_COMMAND_LINE = re.compile(r"^ *(?:\$ )?(?:\.venv/bin/)?tfx-perf (.+)$", re.MULTILINE)
_KNOWN_COMMAND = re.compile(rf"\btfx-perf ((?:{'|'.join(main.SUBCOMMANDS)})\b[^`'\";:]*)")
_SETTING = re.compile(rf"`((?:{'|'.join(PerfConfig.model_fields)})(?:\.\w+)+)(?=`|: |=)", re.ASCII)
_TARGET = re.compile(r"`make ([a-z][a-z-]*)`|^make ([a-z][a-z-]*)", re.MULTILINE)
_FILE = re.compile(r"`((?:[\w.][\w./-]*/)?[\w.-]+\.(?:py|md|toml|sh)|[\w.][\w./-]*/)`")
_MEMBER = re.compile(r"`([A-Z]\w+)\.([a-z_]\w*)(?=[`(.])")
_BLOCK = re.compile(r"^```(\w*)\n(.*?)^```", re.MULTILINE | re.DOTALL)

# Files that exist only after a run, or belong to another project.
_ELSEWHERE = {
    ".uv/", "output/", "refused/", "evaluation.md", "pipeline.py", "scheduled.py",
    "pipeline/training_pipeline.py", "kubeflow_v2_run_executor.py",
    "tfx_perf/input/candidates/warm_start.py", "tfx_perf/training/speedups/uncollected.py",
}  # fmt: skip


def python_files() -> Iterator[pathlib.Path]:
    for folder in SOURCES:
        for path in sorted((ROOT / folder).rglob("*.py")):
            if not any(parent.is_symlink() for parent in path.parents):
                yield path


def strings(path: pathlib.Path) -> Iterator[str]:
    """Yields the literals of a module, in one piece where they are formatted."""
    tree = ast.parse(path.read_text())
    parts: set[int] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.JoinedStr):
            parts |= {id(value) for value in node.values}
            yield "".join(
                value.value if isinstance(value, ast.Constant) else "{}" for value in node.values
            )
        elif isinstance(getattr(node, "value", None), str) and id(node) not in parts:
            yield node.value


@functools.cache
def texts() -> list[tuple[str, str]]:
    found = [(str(page.relative_to(ROOT)), page.read_text()) for page in PAGES]
    for path in python_files():
        found += [(str(path.relative_to(ROOT)), text) for text in strings(path)]
    return found


def resolves(name: str) -> bool:
    """Whether a dotted name is a module, or can be got from one."""
    parts = name.split(".")
    for count in range(len(parts), 0, -1):
        try:
            found = importlib.import_module(".".join(parts[:count]))
        except ModuleNotFoundError:
            continue
        for part in parts[count:]:
            # A field of a record or settings has no attribute of its class.
            fields = {**getattr(found, "model_fields", {}), **getattr(found, "__annotations__", {})}
            if not hasattr(found, part) and part not in fields:
                return False
            found = getattr(found, part, None)
        return True
    return False


def command_problem(line: str) -> str | None:
    """Returns what is wrong with the words after `tfx-perf`, None if nothing is."""
    words = re.split(r"\s#|[|(&;\n]|\s{3,}", line)[0].replace("[", " ").replace("]", " ").split()
    command, context = main.cli, click.Context(main.cli)
    while isinstance(command, click.Group) and words and not words[0].startswith("-"):
        found = command.get_command(context, words[0])
        if found is None:
            return f"{words[0]} is no command of {command.name}"
        command, words = found, words[1:]
        context = click.Context(command, parent=context)
    if command.ignore_unknown_options or command.context_settings.get("ignore_unknown_options"):
        return None
    if not context.allow_interspersed_args:  # the rest is a script's
        words = list(itertools.takewhile(lambda word: not word.endswith(".py"), words))
    known = {name for each in command.get_params(context) for name in each.opts}
    known |= {name for each in command.get_params(context) for name in each.secondary_opts}
    unknown = [
        word for word in words if re.match(r"--\w", word)
        and re.match(r"--[\w-]+", word)[0] not in known
    ]  # fmt: skip
    return f"{command.name} has no {', '.join(unknown)}" if unknown else None


def setting_exists(key: str) -> bool:
    """Whether the settings have a key; below a mapping every key may be."""
    kind = PerfConfig
    for part in key.split("."):
        if not (isinstance(kind, type) and issubclass(kind, pydantic.BaseModel)):
            return True
        if part not in kind.model_fields:
            return False
        kind = kind.model_fields[part].annotation
    return True


def test_names_in_code_and_pages_resolve():
    found = texts()
    # Artifact types, schemas and properties have names of that kind, too.
    literals = {text.partition("/")[0] for _, text in found}
    missing = {
        f"{where}: {name}"
        for where, text in found
        for name in set(_NAME.findall(text)) - literals
        if not resolves(name)
    }
    assert not missing


def test_commands_and_their_options_exist():
    problems = set()
    for where, text in texts():
        lines = _COMMAND.findall(text) + _KNOWN_COMMAND.findall(text)
        if where.endswith(".md"):
            lines += [line for _, body in _BLOCK.findall(text) for line in
                      _COMMAND_LINE.findall(body)]  # fmt: skip
        problems |= {f"{where}: {problem}" for line in lines if (problem := command_problem(line))}
    assert not problems


def test_settings_exist():
    missing = {
        f"{where}: {key}"
        for where, text in texts()
        for key in _SETTING.findall(text)
        if not setting_exists(key)
        and key not in REMOVED  # which the changelog names
        and not resolves(f"tfx_perf.{key}")
        and key.rpartition(".")[2] not in ("py", "outputs")
    }
    assert not missing


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_settings_in_pages_are_valid(page):
    sections = {*PerfConfig.model_fields, "tensorflow_optimization"}
    for language, body in _BLOCK.findall(page.read_text()):
        if language == "yaml":
            values = yaml.safe_load(body)
            if isinstance(values, dict) and set(values) <= sections:
                PerfConfig.from_dict(values.get("tensorflow_optimization", values))


def test_members_of_classes_exist():
    members: dict[str, set[str]] = {}
    bases: dict[str, set[str]] = {}
    for path in python_files():
        tree = ast.parse(path.read_text())
        # Names of the whole module: members may be inherited, and set on instances.
        names = {getattr(node, "attr", getattr(node, "name", None)) for node in ast.walk(tree)}
        names |= {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}
        for node in ast.walk(tree):
            if isinstance(node, ast.ClassDef):
                members.setdefault(node.name, set()).update(names)
                names_of_bases = {ast.unparse(base).rpartition(".")[2] for base in node.bases}
                bases.setdefault(node.name, set()).update(names_of_bases)
    for name in members:
        for base in bases[name] & members.keys():
            members[name] |= members[base]
    missing = {
        f"{where}: {owner}.{name}"
        for where, text in texts()
        for owner, name in _MEMBER.findall(text)
        if owner in members and name not in members[owner]
    }
    assert not missing


def test_make_targets_exist():
    targets = set(re.findall(r"^([a-z][a-z-]*):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    missing = {
        f"{where}: make {name}"
        for where, text in texts()
        if where.endswith(".md") or "`make " in text
        for pair in _TARGET.findall(text)
        if (name := "".join(pair)) not in targets
    }
    assert not missing


def test_files_exist():
    folders = [ROOT / name for name in (*SOURCES, "docs", "tests")]
    known = {
        path.relative_to(ROOT).as_posix() + ("/" if path.is_dir() else "")
        for folder in folders
        for path in (folder, *folder.rglob("*"))
    }
    known |= {path.name for path in ROOT.iterdir() if path.is_file()}
    endings = {
        name.split("/", count)[count] for name in known for count in range(name.count("/") + 1)
    }
    missing = {
        f"{where}: {name}"
        for where, text in texts()
        for name in _FILE.findall(text)
        if name not in endings and name not in _ELSEWHERE
    }
    assert not missing


@pytest.mark.parametrize(
    "name", ["tfx_perf.fit", "tfx_perf.no_module.f", "tfx_perf.config.PerfConfig.nothing"]
)
def test_a_name_that_is_not_there_is_found(name):
    assert not resolves(name)


def test_the_patterns_find_names():
    every = "\n".join(text for _, text in texts())
    assert len(set(_NAME.findall(every))) > 30
    assert len(set(_COMMAND.findall(every))) > 10
    assert len(set(_KNOWN_COMMAND.findall(every))) > 10
    assert len(set(_SETTING.findall(every))) > 10
    assert len(set(_TARGET.findall(every))) > 5
    assert len(set(_FILE.findall(every))) > 50


def test_other_missing_names_are_found():
    assert command_problem("hstory SOURCE")
    assert command_problem("history SOURCE --metrics step_time_seconds")
    assert command_problem("template paste --model perf")
    assert not setting_exists("gate.baselines")
