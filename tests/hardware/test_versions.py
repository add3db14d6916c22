"""The supported lines and the check of what is installed."""

import pytest

from tfx_perf.hardware import versions


def test_this_environment_passes_its_own_check():
    checks = versions.check()
    assert {"python", "tfx", "tensorflow", "tf-keras"} <= {check.name for check in checks}
    assert [check for check in checks if not check.passed] == []


@pytest.mark.parametrize(
    ("python", "line"),
    [
        ("3.9.18", None),
        ("3.10.0", "TFX 1.16"),
        ("3.11.7", "TFX 1.16"),
        ("3.12.1", "TFX 1.21"),
        ("3.13.5", "TFX 1.21"),
        ("3.14.0", None),
    ],
)
def test_python_decides_on_the_line(python, line):
    found = versions.line_of(python)
    assert (found and found.name) == line


def test_a_missing_or_older_package_does_not_pass(monkeypatch):
    found = versions.installed("tensorflow") | {"tfx": "1.15.1", "tf-keras": None}
    monkeypatch.setattr(versions, "installed", lambda *names: found)
    failed = [check.name for check in versions.check() if not check.passed]
    assert failed == ["tfx", "tf-keras"]


def test_a_package_that_is_not_installed_has_no_version():
    assert versions.installed("no-such-distribution") == {"no-such-distribution": None}
