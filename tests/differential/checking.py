"""Runs a case in all its processes and says what is wrong; makes a failing case smaller."""

import collections
import dataclasses
import pathlib
import shutil
import signal
import tempfile

import numpy as np

from tests.fuzzing import shrinking
from tests.fuzzing.differences import Difference, gist
from tests.fuzzing.forks import Ended

from . import promises
from .cases import Case, consistent
from .comparing import difference
from .interruption import IN_DATA, MESSAGE
from .server import Trainings

# What the first run may end with, by interruption; otherwise it must come to its end.
_SIGNALS = {
    "sigkill": signal.SIGKILL,
    "sigkill_in_validation": signal.SIGKILL,
    "sigkill_after_epoch": signal.SIGKILL,
    "sigterm": signal.SIGTERM,
}
_CHECKS_TO_SHRINK = 30
_RAISING = ("raise", "read_error", "memory_error")


class Checker:
    """Checks the cases of one Keras line.

    Attributes:
        package: the line.
        count: cases that were run.
        remarks: cases whose plain `fit` raised, by the error.
    """

    def __init__(self, package: str, folder: pathlib.Path | None = None) -> None:
        """Starts the process that trainings are forks of."""
        self.package = package
        self.count = 0
        self.remarks: collections.Counter[str] = collections.Counter()
        self._trainings = Trainings(package)
        self._folder = folder or pathlib.Path(tempfile.mkdtemp(prefix="differential-"))
        self._oracles: dict[Case, Ended] = {}

    def check(self, case: Case) -> Difference | None:
        """Returns what is wrong; None if all promises are kept."""
        self.count += 1
        expected = self._oracle(case)
        folder = self._folder / "under-test"
        shutil.rmtree(folder, ignore_errors=True)
        if not case.interruption:
            found = self._trainings.run(case, folder, role="whole")
            return difference(case, expected, found, resumed=False)
        first = self._trainings.run(case, folder, role="first")
        wrong = self._first_is_wrong(case, first, expected)
        if wrong or _stays_finite(first):
            return wrong
        if not first.signal and not first.error:
            # It survived, or the interruption never came.
            went_back = ": went back to step" in first.output
            return _prefixed("survived", difference(case, expected, first, resumed=went_back))
        found = self._trainings.run(case, folder, role="again")
        resumed = "goes on from step" in found.output
        wrong = difference(case, expected, found, resumed=resumed)
        if wrong:
            return _prefixed(f"rerun ({'resumed' if resumed else 'anew'})", wrong)
        return self._unlike_uninterrupted(case, found, resumed=resumed)

    def shrunk(self, case: Case, signature: str) -> Case:
        """Returns a simpler case with the same signature."""

        def fails(smaller: Case) -> bool:
            found = self.check(smaller)
            return found is not None and found.signature == signature

        simplest = Case(package=case.package)
        return shrinking.shrunk(
            case, fails, simplest=simplest, consistent=consistent, limit=_CHECKS_TO_SHRINK
        )

    def close(self) -> None:
        """Ends the process and removes its files."""
        self._trainings.close()
        shutil.rmtree(self._folder, ignore_errors=True)

    def _oracle(self, case: Case) -> Ended:
        key = dataclasses.replace(case, plan=(), has_folder=False, checkpoint_steps=4)
        resumes = case.interruption in _SIGNALS and "backup" in case.callbacks
        if not resumes and case.interruption not in ("nan", "oom_in_step", *IN_DATA):
            key = dataclasses.replace(key, interruption="", at=1)
        if key not in self._oracles:
            folder = self._folder / "oracle"
            shutil.rmtree(folder, ignore_errors=True)
            if resumes:
                self._trainings.run(key, folder, role="plain first")
            role = "plain again" if resumes else "plain"
            found = self._trainings.run(key, folder, role=role)
            if found.signal:
                self.remarks["plain fit: it hangs"] += 1
            if found.error:
                last = found.error[1].strip().splitlines()[-1][:150]
                self.remarks[f"plain fit: {found.error[0]}: {last}"] += 1
            if len(self._oracles) > 3000:
                self._oracles.clear()
            self._oracles[key] = found
        return self._oracles[key]

    def _first_is_wrong(self, case: Case, first: Ended, expected: Ended) -> Difference | None:
        kind = case.interruption
        if first.signal and first.signal == _SIGNALS.get(kind):
            return None
        if first.signal:
            return Difference(f"first run: signal {first.signal}", first.output[-1500:])
        if not first.error or expected.error:
            return None
        if kind == "nan" and _stays_finite(first):  # recovery.md: where plain `fit` trains on
            return None if _is_spoiled(expected) else _unexpected(first)
        if kind in _RAISING and MESSAGE in first.error[1]:
            return None
        if kind == "oom_in_step" and "no micro-batches are possible" in first.output:
            return None  # as under plain `fit`
        if kind == "oom_in_step" and case.source == "once":
            return None if "gives each element once" in first.error[1] else _unexpected(first)
        return _unexpected(first)

    def _unlike_uninterrupted(
        self, case: Case, found: Ended, *, resumed: bool
    ) -> Difference | None:
        """Compares with tfx-perf's own uninterrupted training where plain `fit` is no measure.

        recovery.md: "bit for bit those of a training that was not interrupted".
        """
        plan_used = found.values.get("told", {}).get("plan", "plain fit")
        level, _ = promises.numbers(case, plan_used=plan_used, resumed=False)
        inexact = promises.inexact_resumption(case, plan_used=plan_used)
        if not resumed or level == promises.EXACT or inexact or found.error or case.edit:
            return None
        folder = self._folder / "whole"
        shutil.rmtree(folder, ignore_errors=True)
        whole = self._trainings.run(case, folder, role="whole")
        plain = dataclasses.replace(case, plan=())
        return _prefixed(
            "rerun against uninterrupted", difference(plain, whole, found, resumed=True)
        )


def _is_spoiled(expected: Ended) -> bool:
    """Whether NaN or Inf is in the weights."""
    weights = expected.values["weights"].values()
    return any(w.dtype.kind == "f" and not np.isfinite(w).all() for w in weights)


def _stays_finite(first: Ended) -> bool:
    return bool(first.error) and "training to stay finite" in first.error[1]


def _unexpected(first: Ended) -> Difference:
    kind, message = first.error
    return Difference(f"first run raises {kind}: {gist(message)}", first.output[-2500:])


def _prefixed(prefix: str, found: Difference | None) -> Difference | None:
    return found and Difference(f"{prefix}: {found.signature}", found.detail)
