"""Requirements, constraints, docs and the check say the same of each Python."""

import pathlib
import re
import runpy

import pytest
from packaging import markers, requirements, specifiers

from tfx_perf.hardware import versions

_ROOT = pathlib.Path(__file__).parents[2]
_PYTHONS = ("3.10", "3.11", "3.12", "3.13")
_LINED = ("tfx", "tensorflow", "tf-keras")  # what a line names


@pytest.fixture(scope="module")
def declared():
    """The arguments that setup.py gives to setuptools."""
    given = {}
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(_ROOT)
        patch.setattr("setuptools.setup", lambda **arguments: given.update(arguments))
        runpy.run_path("setup.py")
    return given


def _environment(python: str) -> dict[str, str]:
    return {
        "python_version": python, "python_full_version": f"{python}.5", "extra": "",
        "platform_machine": "x86_64", "sys_platform": "linux",
    }  # fmt: skip


def _for_python(lines: list[str], python: str) -> dict[str, specifiers.SpecifierSet]:
    """Returns what is required on a Python, by name."""
    found = map(requirements.Requirement, lines)
    return {
        item.name: item.specifier
        for item in found
        if not item.marker or item.marker.evaluate(_environment(python))
    }


@pytest.mark.parametrize("python", _PYTHONS)
def test_the_requirements_choose_the_line(declared, python):
    assert "tfx" not in _for_python(declared["install_requires"], python)
    chosen = _for_python(declared["extras_require"]["tfx"], python)
    series = versions.line_of(python).packages["tfx"].removeprefix("==").removesuffix(".*")
    others = {line.packages["tfx"] for line in versions.LINES} - {f"=={series}.*"}
    assert chosen["tfx"].contains(f"{series}.0")
    for other in others:
        assert not chosen["tfx"].contains(other.removeprefix("==").removesuffix(".*") + ".9")
    pinned = _for_python((_ROOT / "constraints.txt").read_text().splitlines(), python)
    if "protobuf" in chosen:  # named for one line only
        (version,) = pinned["protobuf"]
        assert chosen["protobuf"].contains(version.version)


@pytest.mark.parametrize("python", _PYTHONS)
def test_the_requirements_without_tfx_are_what_doctor_expects(declared, python):
    required = _for_python(declared["install_requires"], python)
    for name, expected in versions.WITHOUT_TFX.items():
        assert required[name] == specifiers.SpecifierSet(expected)


@pytest.mark.parametrize("python", _PYTHONS)
def test_the_constraints_pin_the_line(python):
    pinned = _for_python((_ROOT / "constraints.txt").read_text().splitlines(), python)
    for name in _LINED:
        (version,) = pinned[name]
        expected = versions.line_of(python).packages[name]
        assert specifiers.SpecifierSet(expected).contains(version.version), name


def test_constraints_are_the_lock_without_hashes():
    lock = (_ROOT / "requirements.lock").read_text().splitlines()
    kept = [re.sub(r" \\$", "", line) for line in lock if not re.match(r" *(#|--hash=)", line)]
    assert (_ROOT / "constraints.txt").read_text().splitlines() == kept


def test_the_package_and_uv_know_the_same_pythons(declared):
    supported = specifiers.SpecifierSet(declared["python_requires"])
    (environments,) = re.findall(r'^environments = \["(.+)"\]', _text("pyproject.toml"), re.M)
    for minor in range(9, 16):
        python = f"3.{minor}"
        is_supported = versions.line_of(python) is not None
        assert supported.contains(f"{python}.0") is is_supported
        if is_supported or minor > 10:  # noqa: PLR2004  (uv has no lower bound of its own)
            assert markers.Marker(environments).evaluate(_environment(python)) is is_supported


def test_the_docs_tell_the_lines():
    row = r"^\| (3\.\d+), (3\.\d+) \| ([\d.]+) \| ([\d.]+) \|"
    rows = re.findall(row, _text("docs/architecture.md"), re.M)
    told = {python: row[2:] for row in rows for python in row[:2]}
    assert told == {
        python: tuple(
            versions.line_of(python).packages[name].removeprefix("==").removesuffix(".*")
            for name in ("tfx", "tensorflow")
        )
        for python in _PYTHONS
    }


def test_the_commands_of_both_tools_are_shown():
    page = _text("docs/architecture.md")
    told = re.findall(r"^((?:uv )?pip install .*?) +# (.+)$", page, re.M)
    for python in _PYTHONS:
        commands = {command for command, remark in told if python in remark or "each" in remark}
        assert commands == set(versions.install_commands(python))
        assert versions.install_commands(python).uv in _text("README.md").splitlines()


def test_the_projects_tests_run_where_pip_needs_telling_nothing():
    workflow = _text("templates/perf/.github/workflows/ci.yml")
    (python,) = re.findall(r'python-version: "([\d.]+)"', workflow)
    assert "pip install -r requirements.txt" in workflow
    assert "--" not in versions.install_commands(python).pip
    assert versions.line_of(python) is not None


def _text(name: str) -> str:
    return (_ROOT / name).read_text()
