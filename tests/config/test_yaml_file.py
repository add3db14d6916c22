"""What YAML files hold, on which line, and what is said of those that cannot be read."""

import re

import pytest

from tfx_perf.config import yaml_file
from tfx_perf.core import errors


def _written(folder, text):
    path = folder / "perf.yaml"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (None, "No such file or directory"),
        (b"a: [", "line 1: .*<stream end>"),
        (b"a: 1\nb: c: d", "line 2: mapping values"),
        ("a: Grüße".encode("latin-1"), "position|character"),
        (b"a: 1\n---\nb: 2\n", "line 2: expected a single document"),
        (b"a: 2026-13-01", "month must be in 1..12"),
        (b"a: 1\nb: {c: 3, d: 4, c: 5}\n", "line 2: the key 'c' is there twice"),
    ],
)
def test_a_file_that_is_no_yaml_is_refused_in_one_line(tmp_path, text, reason):
    path = tmp_path / "perf.yaml" if text is None else _written(tmp_path, text)
    with pytest.raises(errors.UserError) as caught:
        yaml_file.read(path)
    start = rf"Expected a readable YAML file\. Received: path={path} "
    assert re.fullmatch(rf"{start}\(.*({reason}).*\)\. \w.+\.", str(caught.value))
    if text is None or b"---" not in text:
        with pytest.raises(errors.UserError, match=start):
            yaml_file.read_documents(path)


def test_an_alias_within_what_it_stands_for_is_refused(tmp_path):
    with pytest.raises(errors.UserError, match="line 1: found unconstructable recursive node"):
        yaml_file.read(_written(tmp_path, "training: &x {seed: *x}"))


def test_all_documents_of_a_file_are_read(tmp_path):
    path = _written(tmp_path, "a: 1\n---\n[2]\n")
    assert yaml_file.read_documents(path) == [{"a": 1}, [2]]


@pytest.mark.parametrize("text", ["1e-3", "1E-3", "+1e-3", "1.0e-3"])
def test_a_number_in_powers_of_ten_is_one_as_in_yaml_1_2(tmp_path, text):
    assert yaml_file.read(_written(tmp_path, f"a: {text}\nb: {text}x\n")).values == {
        "a": 0.001,
        "b": f"{text}x",
    }


def test_an_empty_file_holds_nothing(tmp_path):
    file = yaml_file.read(_written(tmp_path, ""))
    assert file.values is None
    assert file.place_of(("a",)) == str(file.path)


@pytest.mark.parametrize(
    ("location", "line"),
    [
        (("a",), 1),
        (("a", "b", 0), 3),
        (("a", "b", 1), 4),
        (("a", "b", 2), 2),  # there is none such: its list
        (("a", "nothing"), 1),
        (("c", "own"), 7),
        (("c", "merged"), 5),
        (("c", "both"), 8),
    ],
)
def test_the_line_of_a_value(tmp_path, location, line):
    text = """a:
  b:
  - 1
  - 2
base: &base {merged: 1, both: 1}
c:
  own: 1
  both: 2
  <<: *base
"""
    file = yaml_file.read(_written(tmp_path, text))
    assert file.values["c"] == {"own": 1, "both": 2, "merged": 1}
    assert file.place_of(location) == f"{file.path}, line {line}"
