"""Tests of what TensorFlow and Keras call private: that it is there, and does what we rely on."""

import functools
import importlib.metadata
from collections.abc import Callable
from typing import Any

PACKAGES = ("tensorflow", "keras", "tf_keras")
CHECKED_ON = {("2.16.2", "3.15.1", "2.16.0"), ("2.21.0", "3.15.1", "2.21.0")}
"""Versions of `PACKAGES` with which every contract test has passed."""


def contract(breaks: str) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Returns what makes a test's failure say what it means for who uses the software.

    Args:
        breaks: what no longer works; a sentence.
    """

    def decorated(test: Callable[..., None]) -> Callable[..., None]:
        @functools.wraps(test)
        def checked(*args: Any, **named: Any) -> None:
            try:
                test(*args, **named)
            except Exception as error:
                raise AssertionError(f"{breaks} {_on_versions()}") from error

        return checked

    return decorated


def _on_versions() -> str:
    installed = tuple(map(importlib.metadata.version, PACKAGES))
    versions = ", ".join(map(" ".join, zip(PACKAGES, installed, strict=True)))
    if installed in CHECKED_ON:
        return f"It was checked on these versions: {versions}."
    return f"It was never checked on these versions: {versions}; only on {sorted(CHECKED_ON)}."
