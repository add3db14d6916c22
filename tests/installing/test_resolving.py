"""pip and uv, asked as the docs say, choose the supported line for every Python."""

import glob
import json
import os
import re
import shlex
import shutil
import subprocess

import pytest
import wheels
from packaging import specifiers, utils

from tests import processes
from tfx_perf.hardware import versions

pytestmark = pytest.mark.slow

_PYTHONS = ("3.10", "3.11", "3.12", "3.13")
# Later lines need a newer C library than the machine may have; pip takes what Python says of it.
_NEW_GLIBC = """import os
_confstr = os.confstr
os.confstr = lambda name: "glibc 2.39" if name == "CS_GNU_LIBC_VERSION" else _confstr(name)
"""


def _interpreter(python: str) -> str | None:
    """Returns a Python of that version, on PATH or pyenv's."""
    root = os.environ.get("PYENV_ROOT", os.path.expanduser("~/.pyenv"))
    found = [shutil.which(f"python{python}"), *glob.glob(f"{root}/versions/{python}.*/bin/python")]
    for path in filter(None, found):  # what pyenv has on PATH may not run
        if subprocess.run([path, "-V"], capture_output=True, check=False).returncode == 0:
            return path
    return None


@pytest.fixture(scope="module")
def pip_of(uv, tmp_path_factory):
    """Returns pip's command for a version of Python, in an environment of its own."""
    folder = tmp_path_factory.mktemp("pip")
    made: dict[str, list[str]] = {}

    def command(python: str) -> list[str]:
        if python not in made:
            interpreter = _interpreter(python)
            if not interpreter:
                pytest.skip(f"there is no Python {python}")
            environment = folder / python
            subprocess.run(
                [uv, "venv", "--quiet", "--seed", "--python", interpreter, str(environment)],
                check=True,
            )
            made[python] = [str(environment / "bin" / "python"), "-m", "pip"]
        return made[python]

    return command


@pytest.fixture
def resolve_with_pip(pip_of, wheel, tmp_path):
    """Returns what `pip install` answers, without installing anything."""
    (tmp_path / "glibc").mkdir()
    (tmp_path / "glibc" / "sitecustomize.py").write_text(_NEW_GLIBC)
    report = tmp_path / "report.json"

    def resolve(python, *arguments, extra="[tfx]"):
        done = processes.run(
            *pip_of(python), "install", "--dry-run", "--ignore-installed",
            "--use-feature=fast-deps", f"--report={report}", *arguments, f"{wheel}{extra}",
            cwd=tmp_path, environment={"PYTHONPATH": str(tmp_path / "glibc")},
        )  # fmt: skip
        if done.returncode:
            return done, {}
        chosen = [item["metadata"] for item in json.loads(report.read_text())["install"]]
        return done, {utils.canonicalize_name(item["name"]): item["version"] for item in chosen}

    return resolve


def _check(python: str, chosen: dict[str, str]) -> None:
    """Asserts that what was chosen is the line of a Python."""
    for name, expected in versions.line_of(python).packages.items():
        assert specifiers.SpecifierSet(expected).contains(chosen[name]), (name, chosen[name])


def _arguments(command: str) -> list[str]:
    """Returns a documented command's options, with the files of this repository."""
    return [
        str(wheels.ROOT / part) if (wheels.ROOT / part).is_file() else part
        for part in shlex.split(command.partition(" install ")[2])
        if part != ".[tfx]"
    ]


@pytest.mark.parametrize("python", _PYTHONS)
def test_pip_as_documented(resolve_with_pip, python):
    done, chosen = resolve_with_pip(python, *_arguments(versions.install_commands(python).pip))
    assert done.returncode == 0, done.stderr
    _check(python, chosen)


@pytest.mark.parametrize("python", ["3.10", "3.12", "3.13"])
def test_pip_without_constraints(resolve_with_pip, python):
    done, chosen = resolve_with_pip(python)
    assert done.returncode == 0, done.stderr
    _check(python, chosen)


@pytest.mark.parametrize("python", _PYTHONS)
def test_pip_without_tfx(resolve_with_pip, python):
    done, chosen = resolve_with_pip(python, extra="")
    assert done.returncode == 0, done.stderr
    assert "tfx" not in chosen
    for name, expected in versions.WITHOUT_TFX.items():
        assert specifiers.SpecifierSet(expected).contains(chosen[name]), (name, chosen[name])


def test_pip_on_3_11_stops_at_tfx(resolve_with_pip):
    done, _ = resolve_with_pip("3.11")
    assert done.returncode != 0
    assert "No matching distribution found for tfx<1.17,>=1.16" in done.stderr
    assert re.search(r"1\.16\.0 Requires-Python \S*<3\.11", done.stderr)


@pytest.fixture
def resolve_with_uv(uv, wheel, tmp_path):
    """Returns what `uv pip install` answers for a version of Python and of the C library."""

    def resolve(python, *arguments, glibc="2_39"):
        return processes.run(
            uv, "pip", "install", "--dry-run", "--no-config", "--python-version", python,
            "--python-platform", f"x86_64-manylinux_{glibc}", "--target", tmp_path / "target",
            *arguments, f"{wheel}[tfx]", cwd=tmp_path,
        )  # fmt: skip

    return resolve


@pytest.mark.parametrize("constrained", [True, False])
@pytest.mark.parametrize("python", _PYTHONS)
def test_uv(resolve_with_uv, python, constrained):
    options = _arguments(versions.install_commands(python).uv) if constrained else ()
    done = resolve_with_uv(python, *options)
    assert done.returncode == 0, done.stderr
    _check(python, dict(re.findall(r"^ \+ (\S+)==(\S+)", done.stderr, re.M)))


@pytest.mark.parametrize("python", ["3.12", "3.13"])
def test_an_old_c_library_is_reported(resolve_with_uv, python):
    done = resolve_with_uv(python, glibc="2_36")
    assert done.returncode != 0
    assert "no wheels with a matching platform tag" in " ".join(done.stderr.split())
