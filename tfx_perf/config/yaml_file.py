"""YAML files: their values with line numbers, and one kind of error for unreadable files."""

import contextlib
import dataclasses
import pathlib
import re
from collections.abc import Iterator, Sequence
from typing import Any

import yaml

from tfx_perf.core import errors

_MERGE = "tag:yaml.org,2002:merge"


class _OnceLoader(yaml.SafeLoader):
    """Refuses a duplicate key; PyYAML's own loaders drop the first one."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        seen = set()
        for key_node, _ in node.value:
            if key_node.tag == _MERGE:
                continue
            key = self.construct_object(key_node, deep=True)
            if isinstance(key, str) and key in seen:
                raise yaml.constructor.ConstructorError(
                    problem=f"the key {key!r} is there twice", problem_mark=key_node.start_mark
                )
            seen.add(str(key))
        return super().construct_mapping(node, deep=deep)


# 1e-3 is a number in YAML 1.2 and JSON; PyYAML, which reads YAML 1.1, accepts only 1.0e-3 as one.
_OnceLoader.add_implicit_resolver(
    "tag:yaml.org,2002:float", re.compile(r"[-+]?\d+[eE][-+]?\d+$"), list("-+0123456789")
)


@dataclasses.dataclass(frozen=True)
class YamlFile:
    """The values of a YAML file's only document (None without one), and its nodes with lines."""

    path: str | pathlib.Path
    values: Any
    node: yaml.Node | None

    def place_of(self, location: Sequence[int | str]) -> str:
        """Returns file and line of a value, or of its missing parent, e.g. `perf.yaml, line 3`."""
        node, line = self.node, 0
        for part in location:
            entry = _entry(node, part)
            if entry is None:
                break
            key, node = entry
            line = key.start_mark.line + 1
        return f"{self.path}, line {line}" if line else str(self.path)


def read(path: str | pathlib.Path) -> YamlFile:
    """Reads a YAML file of one document; UserError if it cannot be read or is not YAML."""
    with _errors_of(path):
        loader = _OnceLoader(pathlib.Path(path).read_bytes())  # it detects the encoding
        loader.deep_construct = True  # refuses an alias within the node that it refers to
        node = loader.get_single_node()
        return YamlFile(path, node and loader.construct_document(node), node)


def read_documents(path: str | pathlib.Path) -> list[Any]:
    """Reads all documents of a YAML file; UserError if it cannot be read or is not YAML."""
    with _errors_of(path):
        text = pathlib.Path(path).read_bytes()
        return list(yaml.load_all(text, Loader=_OnceLoader))  # noqa: S506 (it is a SafeLoader)


def _entry(node: yaml.Node | None, part: int | str) -> tuple[yaml.Node, yaml.Node] | None:
    """Returns the node where a value begins, and the value; None if there is no such value."""
    if isinstance(node, yaml.MappingNode):
        # The last one, since merged keys (`<<`) come first.
        return next((pair for pair in reversed(node.value) if pair[0].value == str(part)), None)
    if isinstance(node, yaml.SequenceNode) and isinstance(part, int) and part < len(node.value):
        return node.value[part], node.value[part]
    return None


@contextlib.contextmanager
def _errors_of(path: str | pathlib.Path) -> Iterator[None]:
    try:
        yield
    except (OSError, ValueError, yaml.YAMLError) as error:  # ValueError: a date such as 2026-13-01
        remedy = "Give the path of another one" if isinstance(error, OSError) else "Fix it"
        raise errors.UserError(
            f"Expected a readable YAML file. Received: path={path} ({_reason(error)}). {remedy}."
        ) from error


def _reason(error: Exception) -> str:
    if isinstance(error, yaml.MarkedYAMLError) and error.problem_mark is not None:
        parts = (error.context, error.problem)
        return f"line {error.problem_mark.line + 1}: {', '.join(part for part in parts if part)}"
    return getattr(error, "strerror", None) or " ".join(str(error).split())
