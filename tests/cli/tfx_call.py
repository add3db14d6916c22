"""Calls the repaired `tfx` in this process, since TFX takes some ten seconds to import."""

import contextlib
import io

import pytest

from tfx_perf.cli import tfx


def call(*arguments: object) -> tuple[int, str, str]:
    out, err = io.StringIO(), io.StringIO()
    with (
        contextlib.redirect_stdout(out),
        contextlib.redirect_stderr(err),
        pytest.raises(SystemExit) as ended,
    ):
        tfx.main([str(argument) for argument in arguments])
    return ended.value.code or 0, out.getvalue(), err.getvalue()
