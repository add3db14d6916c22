"""Every setting refuses every value of another type, in one line.

They are all those of `PerfConfig`, `AirflowSettings` and `KubeflowSettings`; what may stand there
follows from their annotations.
"""

import collections.abc
import datetime
import re
import types
import typing
from collections.abc import Iterator
from typing import Any, Literal, Union

import pydantic
import pytest

from tfx_perf.config import PerfConfig
from tfx_perf.config.base import PositiveInt
from tfx_perf.config.distribution import ClusterJob
from tfx_perf.core import errors
from tfx_perf.kubeflow import KubeflowSettings
from tfx_perf.kubeflow.settings import Quantity
from tfx_perf.pipelines.airflow import AirflowSettings, ContainerSettings

# Of each type that YAML and JSON have, a value that would pass for one of another type if it could.
_VALUES = {bool: True, int: 1, float: 1.5, str: "1", list: [], dict: {}, types.NoneType: None}
_OF_SCALARS = {
    bool: {bool},
    int: {int},
    float: {int, float},
    str: {str},
    datetime.timedelta: {int, float, str},
    datetime.datetime: {str},
    types.NoneType: {types.NoneType},
}
_REQUIRED = {
    ClusterJob: {"worker_count": 2, "shared_folder": "/shared"},
    ContainerSettings: {"operator": "docker", "image": "example/image:1"},
    KubeflowSettings: {"image": "example/image:1"},
}


def _accepted(annotation: Any) -> set[type]:
    """Returns the types of YAML values that an annotation means."""
    origin, arguments = typing.get_origin(annotation), typing.get_args(annotation)
    if annotation == Quantity:
        return {int, float, str}
    if annotation == tuple[PositiveInt, ...]:
        return {int, list}
    if origin in (Union, types.UnionType):
        return set().union(*map(_accepted, arguments))
    if origin is typing.Annotated:
        return _accepted(arguments[0])
    if origin is Literal:
        return set(map(type, arguments))
    if origin is tuple:
        return {list}
    if origin in (dict, collections.abc.Mapping) or _is_section(annotation):
        return {dict, types.NoneType}  # which is what YAML makes of a key alone
    return _OF_SCALARS[annotation]


def _is_section(annotation: Any) -> bool:
    return isinstance(annotation, type) and issubclass(annotation, pydantic.BaseModel)


def _wrong(annotation: Any, around: Any) -> Iterator[tuple[str, Any, Any]]:
    """Yields the name below a setting, the wrong value there, and all values with it in them.

    Args:
        annotation: of the setting.
        around: puts a value of it into all values.
    """
    for kind in _VALUES.keys() - _accepted(annotation):
        yield "", _VALUES[kind], around(_VALUES[kind])
    for name, below, inside in _below(annotation):
        yield from (
            (f".{name}{rest}", value, values)
            for rest, value, values in _wrong(below, lambda value, put=inside: around(put(value)))
        )


def _below(annotation: Any) -> Iterator[tuple[str, Any, Any]]:
    """Yields name and annotation of what is directly in a setting, and what puts it there."""
    arguments = typing.get_args(annotation)
    if typing.get_origin(annotation) is tuple:
        yield "0", arguments[0], lambda value: [value]
    elif typing.get_origin(annotation) in (dict, collections.abc.Mapping):
        if arguments[1] is not pydantic.JsonValue:  # which may be anything
            yield "KEY", arguments[1], lambda value: {"KEY": value}
    elif _is_section(annotation):
        for key, field in annotation.model_fields.items():
            given = _REQUIRED.get(annotation, {})
            yield key, field.annotation, lambda value, key=key, given=given: {**given, key: value}
    else:
        for argument in arguments if typing.get_origin(annotation) is not Literal else ():
            yield from _below(argument)


_CASES = [
    (settings, name[1:], value, values)
    for settings in (PerfConfig, AirflowSettings, KubeflowSettings)
    for name, value, values in _wrong(settings, lambda value: value)
    if name
]


@pytest.mark.parametrize("settings", [PerfConfig, AirflowSettings, KubeflowSettings])
def test_a_value_of_another_type_is_refused_in_one_line(settings):
    for of, name, value, values in _CASES:
        if of is not settings:
            continue
        with pytest.raises(errors.UserError) as caught:
            settings.from_dict(values)
            pytest.fail(f"{name}={value!r} was accepted")
        said = rf"Expected .+ in settings\. Received: {re.escape(f'{name}={value!r}')}\.( .+[.?])?"
        assert re.fullmatch(said, str(caught.value))
        assert not re.search(r"Input should|pydantic", str(caught.value))


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("memory.max_device_utilization", True),
        ("distribution.sharding_invariant_random", "1"),
        ("gate.rules.KEY.tolerance", True),
        ("training.steps_per_execution.0", 1.5),
        ("nodes.KEY.execution_timeout", True),
        ("container.image", None),
        ("defaults.image_pull_secrets.0", 1),
    ],
)
def test_the_walk_finds_deeply_nested_settings(name, value):
    assert (name, value, type(value)) in [(each, v, type(v)) for _, each, v, _ in _CASES]


@pytest.mark.parametrize("settings", [PerfConfig, AirflowSettings])
def test_every_default_is_a_value_of_its_setting(settings):
    assert settings.from_dict(settings().model_dump(mode="json")) == settings()
