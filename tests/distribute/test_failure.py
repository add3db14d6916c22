"""The cause of the end of workers, and whether they restart."""

import subprocess
import sys

import pytest

from tfx_perf.core import errors
from tfx_perf.distribute import failure as failure_lib
from tfx_perf.distribute.failure import WorkerFailure


def failure(worker, seconds, message="it broke", **others):
    return WorkerFailure(name=f"worker {worker}", seconds=seconds, message=message, **others)


def failed(*failures, endings=(), exited=(), message="it failed", log=None):
    cause = failure_lib.cause_of(
        {each.name: each for each in failures},
        {f"worker {index}": how for index, how in dict(endings).items()},
        exited=[f"worker {index}" for index in exited],
        message=message,
    )
    return failure_lib.failed("the job", cause, log=log)


LOST = "UnavailableError: connection reset"


@pytest.mark.parametrize(
    ("failures", "endings", "cause", "may_pass"),
    [
        ([failure(1, 2.0, "first"), failure(0, 3.0)], {0: "1", 1: "1"}, "worker 1: first", False),
        # Who has lost another one may have said so before that one has.
        (
            [failure(0, 1.0, LOST, may_pass=True), failure(1, 2.0, "its own")],
            {0: "exit code 1", 1: "exit code 1"},
            "worker 1: its own",
            False,
        ),
        (
            [failure(0, 1.0, LOST, may_pass=True)],
            {0: "exit code 1", 1: "was ended by SIGKILL"},
            "worker 1: was ended by SIGKILL",
            True,
        ),
        (
            [failure(2, 2.0, "x", may_pass=True), failure(1, 1.0, LOST, may_pass=True)],
            {1: "exit code 1", 2: "exit code 1"},
            f"worker 1: {LOST}",
            True,
        ),
        ([], {}, "it failed", True),
    ],
)
def test_the_worker_that_failed_first_of_itself_is_named(failures, endings, cause, may_pass):
    error = failed(*failures, endings=endings)
    assert (str(error.cause), error.cause.may_pass) == (cause, may_pass)
    assert str(error).startswith(f"Expected the workers of the job to succeed. Received: {cause}.")


@pytest.mark.parametrize(
    ("failures", "endings", "cause", "may_pass"),
    [
        ([], {0: "exit code 2", 1: "exit code 2"}, "worker 0: exit code 2", False),
        # It has lost the one that exits.
        ([failure(0, 1.0, LOST, may_pass=True)], {1: "exit code"}, "worker 1: exit code", False),
        ([], {0: "exit code 2", 1: "SIGKILL"}, "worker 1: SIGKILL", True),
    ],
)
def test_an_exit_would_come_again_and_a_signal_may_not(failures, endings, cause, may_pass):
    exited = [index for index, how in endings.items() if how.startswith("exit")]
    found = failed(*failures, endings=endings, exited=exited).cause
    assert (str(found), found.may_pass) == (cause, may_pass)


def test_a_user_error_is_reported_unchanged():
    found = failed(failure(1, 2.0, "Expected a file.", is_users=True), endings={1: "2"})
    assert type(found) is errors.UserError
    assert str(found) == "Expected a file."


def test_the_end_of_the_log_is_quoted():
    log = "\n".join(str(number) for number in range(100))
    assert str(failed(endings={1: "killed"}, log=log)).endswith("its log:\n" + log[-59:])
    assert str(failed(endings={1: "killed"})).endswith("It does not exist.")
    assert str(failed(log=log)).endswith("Received: it failed.")


def of_attempts(*outcomes, restarts, folder):
    """Returns notes, or the error, and how often the workers began again."""
    left, begun = list(outcomes), []

    def train():
        outcome = left.pop(0)
        assert not failure_lib.left_in(folder)
        if outcome is not None:
            failure(1, 1.0).leave_in(folder)
            cause = failure(1, 1.0, "x", may_pass=outcome)
            raise failure_lib.WorkersFailedError("all", cause=cause)

    try:
        found = failure_lib.until_done(
            train, folder=folder, restarts=restarts, end=lambda: begun.append(len(left))
        )
    except errors.MeasurementError as error:
        found = error
    return found, len(begun)


def test_they_begin_again_while_there_are_restarts(tmp_path_factory):
    def attempts(*outcomes, restarts):
        return of_attempts(*outcomes, restarts=restarts, folder=tmp_path_factory.mktemp("run"))

    note = "the workers were started again after worker 1: x"
    assert attempts(None, restarts=3) == ((), 0)
    assert attempts(True, True, None, restarts=2) == ((note, note), 2)
    error, count = attempts(True, True, True, restarts=2)
    assert (str(error), count) == ("all", 2)
    error, count = attempts(False, None, restarts=2)
    assert (str(error), count) == ("all", 0)


_FAILING = """
import threading
def work():
    raise KeyError("absent")
for name in ("writer", "reader"):
    thread = threading.Thread(target=work, name=name)
    thread.start()
    thread.join()
"""


def test_threads_whose_tracebacks_are_in_a_log_are_named_with_it(tmp_path):
    for name, code in (("worker-0", "print('fine')"), ("worker-1", _FAILING)):
        with (tmp_path / f"{name}.log").open("wb") as log:
            subprocess.run([sys.executable, "-c", code], check=True, stdout=log, stderr=log)
    (note,) = failure_lib.failed_threads(tmp_path, names=["worker 0", "worker 1"])
    log = tmp_path / "worker-1.log"
    assert note == f"threads of worker 1 have failed (reader, writer); see {log}"
