"""The versions that tfx-perf supports, named here only, and the check of installed ones."""

import contextlib
import dataclasses
import importlib.util
import platform
import sys
from importlib import metadata
from typing import NamedTuple

from packaging import specifiers


@dataclasses.dataclass(frozen=True)
class Line:
    """Version specifiers that belong together: interpreter, packages, and C library of wheels."""

    name: str
    python: str
    packages: dict[str, str]
    glibc: str


LINES = (
    Line(
        name="TFX 1.16",
        python=">=3.10,<3.12",
        packages={"tfx": "==1.16.*", "tensorflow": "==2.16.*", "tf-keras": "==2.16.*"},
        glibc=">=2.17",
    ),
    Line(
        name="TFX 1.21",
        python=">=3.12,<3.14",
        packages={"tfx": "==1.21.*", "tensorflow": "==2.21.*", "tf-keras": "==2.21.*"},
        glibc=">=2.39",  # the wheels of ml-metadata and tensorflow-data-validation
    ),
)


# Versions that the engine works with if TFX is not installed.
WITHOUT_TFX = {"tensorflow": ">=2.16,<2.22", "tf-keras": ">=2.16,<2.22"}

# tfx 1.16 declares Python < 3.11, but works on 3.11. uv ignores such upper bounds; pip needs this
# option. The constraints then keep pip from packages that really need a later version.
_PIP_OPTIONS = {"3.11": "--ignore-requires-python "}


@dataclasses.dataclass(frozen=True)
class Check:
    """One comparison of a version with its specifier; `found` is None if nothing is there."""

    name: str
    found: str | None
    expected: str
    passed: bool


def installed(*names: str) -> dict[str, str | None]:
    """Returns the versions of distributions, None for those that are not installed."""
    by_name: dict[str, str | None] = dict.fromkeys(names)
    for name in names:
        with contextlib.suppress(metadata.PackageNotFoundError):
            by_name[name] = metadata.version(name)
    return by_name


def has_tfx() -> bool:
    """Returns whether TFX is installed, without importing it; Keras scripts do not need it."""
    return importlib.util.find_spec("tfx") is not None


def line_of(python: str) -> Line | None:
    """Returns the line of a Python version, e.g. `3.11.4`; None if none supports it."""
    return next((line for line in LINES if _satisfies(python, line.python)), None)


class InstallCommands(NamedTuple):
    """How uv and how pip install tfx-perf and TFX from a clone, with a line's versions."""

    uv: str
    pip: str


def install_commands(python: str) -> InstallCommands:
    """Returns the commands for a Python version, e.g. `3.11.4`."""
    options = _PIP_OPTIONS.get(".".join(python.split(".")[:2]), "")
    return InstallCommands(
        uv="uv pip install -c requirements.lock '.[tfx]'",
        pip=f"pip install {options}-c constraints.txt '.[tfx]'",
    )


def check() -> list[Check]:
    """Compares interpreter, C library and packages with the supported line, without imports."""
    python = ".".join(map(str, sys.version_info[:3]))
    line = line_of(python)
    if line is None:
        expected = " or ".join(line.python for line in LINES)
        return [Check("python", python, expected, passed=False)]
    library, glibc = platform.libc_ver()
    checks = [_check("python", python, line.python)]
    if library == "glibc" and has_tfx():
        checks.append(_check("glibc", glibc, line.glibc))
    packages = line.packages if has_tfx() else WITHOUT_TFX
    present = installed(*packages)
    checks.extend(_check(name, present[name], wanted) for name, wanted in packages.items())
    return checks


def _check(name: str, actual: str | None, expected: str) -> Check:
    return Check(name, actual, expected, passed=actual is not None and _satisfies(actual, expected))


def _satisfies(version: str, expected: str) -> bool:
    return specifiers.SpecifierSet(expected).contains(version, prereleases=True)
