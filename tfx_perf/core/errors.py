"""The exceptions that tfx-perf raises on purpose, and descriptions of any errors in one line."""

import contextlib
import difflib
import json
import re
import sys
from collections.abc import Iterable, Iterator
from typing import Any

# Beginnings of lines that Keras and TensorFlow put before the error; tracebacks are indented.
_PREFACES = (
    "Graph execution error", "Detected at node", "Exception encountered when calling",
    "Could not automatically infer", " ",
)  # fmt: skip
_LONGEST_LINE = 1000  # characters of a message: some contain a whole array
_LONGEST_REASON = 500  # characters of a server's reason
_CAUSE = re.compile(r"\s+\w*(Error|Exception)\w*: ")
_COLORS = re.compile(r"\x1b\[\d*m")
# Classes of `tf.errors` that libraries raise if another process or the network is at fault.
_OF_CONNECTIONS = ("UnavailableError", "AbortedError", "CancelledError", "DeadlineExceededError")

INSTALL_TFX = "Install it: pip install 'tfx-perf[tfx]'."
"""The remedy if TFX or a package that comes with it is missing."""

TOLERATED = Exception, SystemExit
"""Caught from code that is only tried: fit continues whatever it raises, except for Ctrl-C."""


class UserError(ValueError):
    """Something the user gave is wrong; the message says what and how to fix it.

    The message is one line: what was expected, `Received: name=value`, the remedy.
    The command line prints it without a traceback and exits with code 2.
    """


class NoFitError(UserError):
    """The training code ended without calling Keras' `Model.fit`."""


class MeasurementError(RuntimeError):
    """A measurement could not be made, or its result is impossible (e.g. MFU > 1)."""


class ChildError(MeasurementError):
    """A process that this one started gave no result.

    `cause` says what happened to it: a phrase that begins with a verb, without a period. If it
    `may_pass`, another try may give a result, for example after the process was killed.
    """

    def __init__(self, target: str, cause: str, *, log: str = "", may_pass: bool = True) -> None:
        """Takes what the process was asked to do, and the path of its output if it has its own."""
        self.cause, self.may_pass = cause, may_pass
        super().__init__(f"{target} {cause}.{log and f' Log: {log}'}")


class TimedOutError(ChildError):
    """A process did not end in time."""


class ProcessEndedError(ChildError):
    """A process was killed, crashed, or was ended by the code that it ran."""


class TerminatedError(ProcessEndedError):
    """A process was told to end, which says nothing about the code that it ran."""


class TrainingError(RuntimeError):
    """The user's training failed, or its process was killed."""


class StepCountError(RuntimeError):
    """The number of steps differs from the recorded one: the training is not what was asked for."""


class RefusalError(RuntimeError):
    """The gate refused a run and is configured to fail the pipeline then."""


@contextlib.contextmanager
def writing_to(name: str, path: object) -> Iterator[None]:
    """Raises a UserError for an OSError in the context; it calls the path `name`."""
    try:
        yield
    except OSError as error:
        raise UserError(
            "Expected a file or folder that can be written. "
            f"Received: {name}={path} ({error.strerror or error})."
        ) from error


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """Returns `Did you mean NAME?` for the nearest known name; empty if none is near."""
    spelled = {each.casefold(): each for each in known}
    name = name.casefold()
    longer = [each for each in spelled if name in each and len(name) > 2]
    cutoff = 0.0 if longer else 0.6  # a part of a known name is near at any length
    near = difflib.get_close_matches(name, longer or spelled, n=1, cutoff=cutoff)
    return f"Did you mean {spelled[near[0]]}?" if near else ""


def in_one_line(error: BaseException) -> str:
    """Returns the type of the error and the most telling line of its message, or its start."""
    try:
        message = str(error)
    except Exception:  # the error's class may be the user's
        message = ""
    lines = [line for line in _COLORS.sub("", message).splitlines() if line.strip()]
    kind = type(error).__name__
    if lines and lines[0].startswith("in user code"):  # AutoGraph's nested tracebacks
        causes = [number for number, line in enumerate(lines) if _CAUSE.match(line)]
        if causes:
            kind, _, cause = lines[causes[-1]].strip().partition(":")
            following = [line.strip() for line in lines[causes[-1] + 1 :]]
            lines = [cause.strip(), *following] if cause.strip() else following
    telling = [line for line in lines if not line.startswith(_PREFACES)] or lines
    first = "".join(telling[:1]).strip()
    shown = first if len(first) <= _LONGEST_LINE else f"{first[: _LONGEST_LINE - 1]}…"
    return f"{kind}: {shown}" if telling else kind


def is_of_connection(error: BaseException) -> bool:
    """Returns whether another process or the network, rather than the code, caused an error."""
    return isinstance(error, (ConnectionError, *_of_tensorflow(*_OF_CONNECTIONS)))


def is_short_of_memory(error: BaseException) -> bool:
    """Returns whether TensorFlow or Python raised an error for lack of memory."""
    return isinstance(error, (MemoryError, *_of_tensorflow("ResourceExhaustedError")))


def _of_tensorflow(*names: str) -> list[type[Exception]]:
    """Returns classes of `tf.errors`; none before TensorFlow is imported, as it raised nothing."""
    module = getattr(sys.modules.get("tensorflow"), "errors", None)
    return [getattr(module, name) for name in names] if module else []


def of_server(error: Any) -> str:
    """Returns the reason in an `ApiException` of `kubernetes` or `kfp_server_api`, in one line."""
    try:
        document = json.loads(error.body)
        text = document.get("message") or document.get("error") or error.reason
    except (AttributeError, TypeError, ValueError):
        text = error.body or error.reason or "no reason given"
    return " ".join(str(text).split())[:_LONGEST_REASON].rstrip(".")
