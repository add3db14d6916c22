"""The answers of `tfx-perf demo` to bad input, before it starts long work."""

import pathlib
import subprocess
import sys

import pytest

_CALL = [sys.executable, "-c", "from tfx_perf.cli.main import main; main()", "demo"]


@pytest.mark.one_case
@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["--output", "{file}/below"], "Expected a file or folder that can be written"),
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
