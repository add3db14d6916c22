"""What `tfx-perf demo` says of bad input before it starts long work, and of the pipeline then."""

import pathlib
import subprocess
import sys

import pytest

from tfx_perf.cli import demo

_CALL = [sys.executable, "-c", "from tfx_perf.cli.main import main; main()", "demo"]


@pytest.mark.one_case
@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["--output", "{file}/below"], "Expected a folder that can be written"),
        (["--output", "{folder}", "--config", "{folder}/none.yaml"], "readable YAML file"),
        (["--output", "{folder}", "--config", "{wrong}"], "Received: training.trial_bugdet=3"),
        (["--output", "{folder}", "--batch-size", "0"], "--batch-size"),
        (["--output", "{folder}", "--steps", "many"], "--steps"),
    ],
)
def test_bad_input_is_one_line_and_exit_code_2(
    tmp_path: pathlib.Path, arguments: list[str], expected: str
) -> None:
    names = {"folder": tmp_path, "file": tmp_path / "file", "wrong": tmp_path / "wrong.yaml"}
    names["file"].touch()
    names["wrong"].write_text("training: {trial_bugdet: 3}\n")
    done = subprocess.run(
        [*_CALL, *(argument.format(**names) for argument in arguments)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 2  # noqa: PLR2004
    assert expected in done.stderr
    assert len(done.stderr.splitlines()) == 1


def test_lines_are_shown_as_they_come_and_pulses_only_as_the_status(capfd):
    with demo._nodes_shown() as show:
        show("  Choose                   0.1 s  from cache\n")
        assert capfd.readouterr().err == "  Choose                   0.1 s  from cache\n"
        show("  Work                     1.0 s  ... [half] done\n")
        show("    remark: [all] was well\n")
    assert capfd.readouterr().err == "    remark: [all] was well\n"
