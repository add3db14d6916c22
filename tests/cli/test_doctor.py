"""The results of `doctor` in good and bad installations; `probe` loads TFX."""

import json
import sys
from importlib import metadata

import pytest
from click import testing

from tfx_perf.cli import doctor as checks
from tfx_perf.cli import main
from tfx_perf.core import errors
from tfx_perf.hardware import versions


@pytest.fixture(scope="module")
def findings():
    return {finding.item: finding for finding in checks.examine()}


def test_the_environment_of_the_tests_works(findings):
    assert [item.item for item in findings.values() if item.fatal] == []


def test_versions_are_those_installed(findings):
    for name in ("tfx", "tensorflow", "tf-keras", "ml-metadata", "numpy", "protobuf"):
        assert findings[name].value == metadata.version(name)
    assert findings["python"].value == ".".join(map(str, sys.version_info[:3]))


def test_looks_at_the_machine(findings):
    assert int(findings["CPU cores"].value) >= 1
    for item in ("glibc", "C++ compiler", "uv", "pip", "CPU", "CPU features", "memory limit",
                 "memory free", "disk free", "GPU", "airflow", "kfp", "loading TFX"):  # fmt: skip
        assert findings[item].value


def test_the_line_is_installed_by_one_rule_with_uv_or_with_pip(monkeypatch, tmp_path):
    def remark():
        (line,) = (each for each in checks.software() if each.item == "supported line")
        return line.remark

    monkeypatch.setattr(checks.sysconfig, "get_path", lambda name: str(tmp_path))
    by_uv, by_pip = versions.install_commands(".".join(map(str, sys.version_info[:3])))
    assert remark() == f"`{by_uv}` or `{by_pip}` installs it in a clone"
    # As a wheel leaves it.
    folder = tmp_path / "share" / "tfx-perf"
    folder.mkdir(parents=True)
    assert remark().endswith(f"a wheel takes the dot's place, and both files are in {folder}")
    assert "--ignore-requires-python" in versions.install_commands("3.11.4").pip


def test_users_of_pip_read_nothing_about_uv_or_make(monkeypatch):
    monkeypatch.setattr(checks, "_output_of", lambda *command: None)
    monkeypatch.setattr(versions, "installed", lambda *names: dict.fromkeys(names))
    tools = {finding.item: finding for finding in checks._tools()}
    assert (tools["uv"].value, tools["uv"].status) == ("none", "ok")
    assert tools["uv"].remark == "pip does as well"
    assert "python -m ensurepip" in tools["pip"].remark
    assert not any(word in each.remark for each in tools.values() for word in ("uv ", "make"))


def test_a_slow_check_is_not_called_broken(monkeypatch):
    def slow(target, arguments, **settings):
        raise errors.TimedOutError(target, "did not end in time")

    monkeypatch.setattr(checks.isolate, "run", slow)
    answer, finding = checks.load_tfx()
    assert (answer, finding.status, finding.fatal) == ({}, "warn", False)
    assert "run it again" in finding.remark
    monkeypatch.setattr(checks, "examine", lambda: iter([finding]))
    done = testing.CliRunner().invoke(main.cli, ["doctor"])
    assert done.exit_code == 1
    assert "Not known yet: loading TFX." in done.output
    done = testing.CliRunner().invoke(main.cli, ["doctor", "--json"])
    assert json.loads(done.stdout)["works"] is False


def test_missing_parts_are_named(monkeypatch):
    def nothing_installed(*names):
        return dict.fromkeys(names)

    monkeypatch.setattr(versions, "installed", nothing_installed)
    software = {finding.item: finding for finding in checks.software()}
    assert software["tfx"].fatal
    assert software["tfx"].status == "missing"
    assert not checks.optional("kfp", "kfp").fatal


def test_a_broken_installation_is_reported_and_raises_nothing(monkeypatch, tmp_path):
    (tmp_path / "tfx").mkdir()
    (tmp_path / "tfx" / "__init__.py").write_text("raise ImportError('no libfoo.so')\n")
    (tmp_path / "tensorflow.py").touch()  # the real one takes seconds
    monkeypatch.syspath_prepend(tmp_path)
    answer, finding = checks.load_tfx()
    assert answer == {}
    assert finding.fatal
    assert finding.remark == "raised ImportError: no libfoo.so"


def test_the_last_output_of_an_aborting_installation_is_shown(monkeypatch, tmp_path):
    (tmp_path / "tensorflow.py").write_text(
        "import os, sys\nprint('compiled to use AVX', file=sys.stderr, flush=True)\nos.abort()\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    _, finding = checks.load_tfx()
    assert finding.fatal
    assert "SIGABRT" in finding.remark
    assert finding.remark.endswith("compiled to use AVX")


@pytest.mark.slow
def test_command_writes_json_and_a_quiet_terminal(run_command):
    done = run_command("doctor", "--json")
    document = json.loads(done.stdout)
    assert done.returncode == 0
    assert done.stderr == ""
    assert document["works"] is True
    assert {"item", "value", "status", "remark", "required"} == set(document["findings"][0])


def test_exit_code_1_when_something_required_is_broken(monkeypatch):
    broken = checks.Finding("glibc", "2.36", "broken", "expected glibc>=2.39", required=True)
    optional = checks.Finding("kfp", "not installed", "missing")
    monkeypatch.setattr(checks, "examine", lambda: iter([broken, optional]))

    table = testing.CliRunner().invoke(main.cli, ["doctor"])
    document = testing.CliRunner().invoke(main.cli, ["doctor", "--json"])

    assert (table.exit_code, document.exit_code) == (1, 1)
    assert "Does not work: glibc." in table.stdout
    assert json.loads(document.stdout)["works"] is False
