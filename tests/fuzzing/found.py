"""Cases that failed once, one a line."""

import pathlib

import pytest

_EVERY = 8


def found_once(path: pathlib.Path) -> list:
    """Returns what a test of them is parametrized with: all but every eighth are slow."""
    return [
        pytest.param(line, marks=[pytest.mark.slow] if number % _EVERY else [])
        for number, line in enumerate(path.read_text().splitlines())
    ]
