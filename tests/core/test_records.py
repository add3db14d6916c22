"""Records on disk: lossless, and what is foreign is refused."""

import json
from typing import ClassVar

import pydantic
import pytest

from tfx_perf.core import errors, records
from tfx_perf.core.statistics import Interval


class Example(records.Record):
    SCHEMA: ClassVar[str] = "tfx_perf.example/1"

    name: str
    interval: Interval | None = None
    points: tuple[tuple[int, float], ...] = ()


RECORD = Example(
    name="grüße", interval=Interval(value=0.1, low=1e-17, high=1 / 3), points=((1, 0.1), (2, 1e300))
)


def test_a_round_trip_loses_nothing(tmp_path):
    RECORD.write(tmp_path / "record.json")
    assert Example.read(tmp_path / "record.json") == RECORD
    document = json.loads((tmp_path / "record.json").read_text(encoding="utf-8"))
    assert document["schema"] == "tfx_perf.example/1"


def test_a_record_cannot_be_changed():
    with pytest.raises(pydantic.ValidationError):
        RECORD.name = "other"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (None, "Expected a JSON file of schema tfx_perf.example/1"),
        ("{", "Expected a JSON file of schema tfx_perf.example/1"),
        ("[]", "schema=None"),
        ('{"schema": "tfx_perf.example/2", "name": "a"}', "schema=tfx_perf.example/2"),
        ('{"schema": "tfx_perf.example/1"}', "name="),
        ('{"schema": "tfx_perf.example/1", "name": "a", "extra": 1}', "extra=1"),
    ],
)
def test_an_unreadable_record_is_refused(tmp_path, text, words):
    path = tmp_path / "record.json"
    if text is not None:
        path.write_text(text)
    with pytest.raises(errors.UserError) as caught:
        Example.read(path)
    assert words in str(caught.value)
    assert str(path) in str(caught.value)
    assert "\n" not in str(caught.value)


class Later(Example):
    REMOVED = frozenset({"extra"})


def test_a_field_that_earlier_versions_wrote_is_left_out():
    text = '{"schema": "tfx_perf.example/1", "name": "a", "extra": 1}'
    assert Later.from_text(text, source="old").name == "a"
