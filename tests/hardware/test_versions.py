"""The supported lines and the check of what is installed."""

import pytest

from tfx_perf.hardware import versions


def test_this_environment_passes_its_own_check():
    checks = versions.check()
    assert {"python", "tfx", "tensorflow", "tf-keras"} <= {check.name for check in checks}
    assert versions.problems(checks) == []


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


def test_every_problem_is_a_sentence_with_what_was_found():
    checks = [
        versions.Check("tfx", "1.15.0", "==1.16.*", passed=False),
        versions.Check("tf-keras", None, "==2.16.*", passed=False),
        versions.Check("python", "3.11.7", ">=3.10,<3.12", passed=True),
    ]
    assert versions.problems(checks) == [
        "Expected tfx==1.16.*. Received: 1.15.0.",
        "Expected tf-keras==2.16.*. Received: not installed.",
    ]


def test_a_missing_or_older_package_does_not_pass(monkeypatch):
    found = versions.installed("tensorflow") | {"tfx": "1.15.1", "tf-keras": None}
    monkeypatch.setattr(versions, "installed", lambda *names: found)
    failed = [check.name for check in versions.check() if not check.passed]
    assert failed == ["tfx", "tf-keras"]


def test_a_package_that_is_not_installed_has_no_version():
    assert versions.installed("no-such-distribution") == {"no-such-distribution": None}
