"""docs/settings.md names every setting once, with its default, and nothing else."""

import json
import pathlib
import re
import typing
from collections.abc import Iterator
from typing import Any

import pydantic
import pytest

from tfx_perf.config import PerfConfig

_PAGE = (pathlib.Path(__file__).parent.parent / "docs" / "settings.md").read_text()
_REQUIRED = "required"
_SETTING_ROW = re.compile(r"^\| `([a-z_]+\.[\w.]+)` \| (.+?) \| (.+?) \| (.+) \|$", re.MULTILINE)
_TABLE = re.compile(r"^## `(\w+)`.*?(?=^## |\Z)", re.MULTILINE | re.DOTALL)


def _models(annotation: Any) -> Iterator[type[pydantic.BaseModel]]:
    """Yields the models that a value of this type is, or that the values of a mapping are."""
    if isinstance(annotation, type) and issubclass(annotation, pydantic.BaseModel):
        yield annotation
    for argument in typing.get_args(annotation):
        yield from _models(argument)


def _shown(field: pydantic.fields.FieldInfo) -> str:
    if field.is_required():
        return _REQUIRED
    default = field.get_default(call_default_factory=True)
    return f"`{default if isinstance(default, str) else json.dumps(default)}`"


def _settings(model: type[pydantic.BaseModel], prefix: str = "") -> Iterator[tuple[str, str]]:
    """Yields names and defaults; a section that is always there is no setting of its own."""
    for key, field in model.model_fields.items():
        below = list(_models(field.annotation))
        if below != [field.annotation]:
            yield prefix + key, _shown(field)
        of_each = "METRIC." if typing.get_origin(field.annotation) is dict else ""
        for section in below:
            yield from _settings(section, f"{prefix}{key}.{of_each}")


def test_every_setting_stands_there_once_with_its_default():
    assert [row[:2] for row in _SETTING_ROW.findall(_PAGE)] == list(_settings(PerfConfig))


def test_every_setting_stands_in_the_table_of_its_section():
    tables = {found[1]: found[0] for found in _TABLE.finditer(_PAGE)}
    assert list(tables) == list(PerfConfig.model_fields)
    for section, text in tables.items():
        assert {name.partition(".")[0] for name, *_ in _SETTING_ROW.findall(text)} == {section}


def test_every_row_of_a_table_is_a_setting():
    rows = re.findall(r"^\|(?! name |---).*", _PAGE, re.MULTILINE)
    assert [row for row in rows if not _SETTING_ROW.fullmatch(row)] == []


@pytest.mark.parametrize(
    ("name", "default"),
    [
        ("training.steps_per_execution", "`[10, 50]`"),
        ("distribution.job", "`null`"),
        ("distribution.job.worker_count", _REQUIRED),
        ("gate.rules", "`{}`"),
        ("gate.rules.METRIC.tolerance", "`null`"),
        ("gate.policy.incomparable", "`if quality holds`"),
    ],
)
def test_the_walk_finds_what_is_deep_inside(name, default):
    assert dict(_settings(PerfConfig))[name] == default
