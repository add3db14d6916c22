"""Runs a case in all its processes and says what is wrong; makes a failing case smaller."""

import dataclasses
import shutil

import numpy as np

from tests.fuzzing import failures
from tests.fuzzing.differences import Difference, gist
from tests.fuzzing.forks import Ended

from . import promises
from .cases import Case
from .comparing import difference
from .interruption import IN_DATA, MESSAGE, SIGNALS
from .server import Trainings

_RAISING = ("raise", "read_error", "memory_error")


class Checker(failures.Checker):
    """Checks the cases of one Keras line; remarks are the errors that Keras' `fit` raised."""

    def __init__(self, package: str) -> None:
        super().__init__()
        self.package = package
        self._trainings = Trainings(package)
        self._oracles: dict[Case, Ended] = {}

    def simplest(self, case: Case) -> Case:
        return Case(package=case.package)

    def check(self, case: Case) -> Difference | None:
        self.count += 1
        expected = self._oracle(case)
        folder = self.folder / "under-test"
        shutil.rmtree(folder, ignore_errors=True)
        if not case.interruption:
            found = self._trainings.run(case, folder, role="whole")
            if ": rolled back to step" in found.output:
                self.remarks["tfx-perf left the plan without an interruption"] += 1
            return difference(case, expected, found, resumed=False)
        first = self._trainings.run(case, folder, role="first")
        wrong = self._first_is_wrong(case, first, expected)
        if wrong or _stays_finite(first):
            return wrong
        if not first.signal and not first.error:
            # It survived, or the interruption never came.
            went_back = ": rolled back to step" in first.output
            case = dataclasses.replace(case, edit="")  # which comes before the second run
            expected = self._oracle(case)
            return _prefixed("survived", difference(case, expected, first, resumed=went_back))
        found = self._trainings.run(case, folder, role="again")
        resumed = "resumes from step" in found.output
        wrong = difference(case, expected, found, resumed=resumed)
        if wrong:
            return _prefixed(f"rerun ({'resumed' if resumed else 'anew'})", wrong)
        return self._unlike_uninterrupted(case, found, resumed=resumed)

    def close(self) -> None:
        self._trainings.close()
        super().close()

    def _oracle(self, case: Case) -> Ended:
        key = dataclasses.replace(case, plan=(), has_folder=False, checkpoint_every_steps=4)
        resumes = case.interruption in SIGNALS and "backup" in case.callbacks
        if not resumes and case.interruption not in ("nan", "oom_in_step", *IN_DATA):
            key = dataclasses.replace(key, interruption="", at=1)
        if key not in self._oracles:
            folder = self.folder / "oracle"
            shutil.rmtree(folder, ignore_errors=True)
            if resumes:
                self._trainings.run(key, folder, role="plain first")
            role = "plain again" if resumes else "plain"
            found = self._trainings.run(key, folder, role=role)
            if found.signal:
                self.remarks["Keras fit: it hangs"] += 1
            if found.error:
                last = found.error[1].strip().splitlines()[-1][:150]
                self.remarks[f"Keras fit: {found.error[0]}: {last}"] += 1
            if len(self._oracles) > 3000:
                self._oracles.clear()
            self._oracles[key] = found
        return self._oracles[key]

    def _first_is_wrong(self, case: Case, first: Ended, expected: Ended) -> Difference | None:
        kind = case.interruption
        if first.signal and first.signal == SIGNALS.get(kind):
            return None
        if first.signal:
            return Difference(f"first run: signal {first.signal}", first.output[-1500:])
        if not first.error or expected.error:
            return None
        if kind == "nan" and _stays_finite(first):  # reliability.md: where Keras' `fit` trains on
            return None if _is_spoiled(expected) else _unexpected(first)
        if kind in _RAISING and MESSAGE in first.error[1]:
            return None
        if kind == "oom_in_step" and "no micro-batches are possible" in first.output:
            return None  # as under Keras' `fit`
        if kind == "oom_in_step" and case.source == "once":
            return None if "gives each element once" in first.error[1] else _unexpected(first)
        return _unexpected(first)

    def _unlike_uninterrupted(
        self, case: Case, found: Ended, *, resumed: bool
    ) -> Difference | None:
        """Compares with tfx-perf's own uninterrupted training where Keras' `fit` is no measure.

        reliability.md: "bit for bit those of a training that was not interrupted".
        """
        plan_used = found.values.get("told", {}).get("plan", "Keras fit")
        level, _ = promises.numbers(case, plan_used=plan_used, resumed=False)
        inexact = promises.inexact_resumption(case, plan_used=plan_used)
        if not resumed or level == promises.EXACT or inexact or found.error or case.edit:
            return None
        folder = self.folder / "whole"
        shutil.rmtree(folder, ignore_errors=True)
        whole = self._trainings.run(case, folder, role="whole")
        plain = dataclasses.replace(case, plan=())
        return _prefixed(
            "rerun against uninterrupted", difference(plain, whole, found, resumed=True)
        )


def _is_spoiled(expected: Ended) -> bool:
    weights = expected.values["weights"].values()
    return any(w.dtype.kind == "f" and not np.isfinite(w).all() for w in weights)


def _stays_finite(first: Ended) -> bool:
    return bool(first.error) and "training to stay finite" in first.error[1]


def _unexpected(first: Ended) -> Difference:
    kind, message = first.error
    return Difference(f"first run raises {kind}: {gist(message)}", first.output[-2500:])


def _prefixed(prefix: str, found: Difference | None) -> Difference | None:
    return found and Difference(f"{prefix}: {found.signature}", found.detail)
