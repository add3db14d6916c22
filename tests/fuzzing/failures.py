"""Failures: hundreds of failures of one cause, shown as one; drawn, shrunk and printed."""

import argparse
import collections
import json
import os
import pathlib
import random
import shutil
import sys
import tempfile
from collections.abc import Iterable
from typing import Any

from tests.fuzzing import drawing, shrinking
from tests.fuzzing.cases import JsonCase
from tests.fuzzing.differences import Difference


class Checker:
    """Checks cases, and says towards what a failing one is shrunk, in at most how many checks.

    Attributes:
        count: cases that were checked.
        remarks: what was seen beside failures, and how often.
        folder: for its files.
    """

    most_checks = 30

    def __init__(self) -> None:
        self.count = 0
        self.remarks: collections.Counter[str] = collections.Counter()
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="differential-"))

    def check(self, case: Any) -> Difference | None:
        """Returns what is wrong; None if all promises are kept."""
        raise NotImplementedError

    def simplest(self, case: Any) -> Any:
        """Returns what a failing case is shrunk towards."""
        raise NotImplementedError

    def close(self) -> None:
        shutil.rmtree(self.folder, ignore_errors=True)


class Failures:
    """Checks cases and groups what fails by its signature.

    Attributes:
        groups: the failures, by signature.
    """

    def __init__(
        self, checker: Checker, *, title: str = "", out: pathlib.Path | None = None
    ) -> None:
        """Begins without failures; each is added to `out` as a line of JSON."""
        self.groups: dict[str, list[tuple[JsonCase, Difference]]] = collections.defaultdict(list)
        self._checker, self._title, self._out = checker, title, out

    def add(self, cases: JsonCase | Iterable[JsonCase]) -> None:
        for case in [cases] if isinstance(cases, JsonCase) else cases:
            self._add(case)

    def _add(self, case: JsonCase) -> None:
        found = self._checker.check(case)
        if self._checker.count % 25 == 0:
            failed = sum(map(len, self.groups.values()))
            print(f"{self._checker.count} cases, {failed} failed", file=sys.stderr, flush=True)
        if found is None:
            return
        self.groups[found.signature].append((case, found))
        if self._out:
            line = {"signature": found.signature, "case": case.to_json(), "detail": found.detail}
            with self._out.open("a") as file:
                file.write(json.dumps(line) + "\n")

    def table(self, *, shrink: bool = True) -> str:
        """Returns the groups as text, the largest first, each with its smallest case.

        Args:
            shrink: make that case smaller still, which takes some dozens of checks.
        """
        failed = sum(map(len, self.groups.values()))
        lines = [f"{self._checker.count} cases, {failed} failed; {self._title}"]
        for signature, failures in sorted(self.groups.items(), key=lambda item: -len(item[1])):
            case, found = min(failures, key=lambda failure: len(failure[0].to_json()))
            if shrink:
                case = shrinking.shrunk(self._checker, case, signature)
            lines += [f"\n{len(failures):4} {signature}", f"     {case.to_json()}"]
            lines += [f"     {found.detail.strip()[-300:]!r}"]
        for remark, count in self._checker.remarks.most_common():
            lines.append(f"\n{remark}: {count} times")
        return "\n".join(lines)


def of_drawn(checker: Checker, strategy: Any, *, count: int, seed: int) -> Failures:
    failures = Failures(checker, title=f"seed {seed}")
    drawing.drawn(strategy, count=count, seed=seed, act=failures.add)
    return failures


def of_many(checker: Checker, strategy: Any, variable: str, *, count: int) -> Failures:
    """Returns the same of as many as `variable`_CASES says, drawn with `variable`_SEED."""
    seed = int(os.environ.get(f"{variable}_SEED", random.randrange(10**6)))
    print(f"{variable}_SEED={seed}")
    count = int(os.environ.get(f"{variable}_CASES", count))
    return of_drawn(checker, strategy, count=count, seed=seed)


def parser(**settings: Any) -> argparse.ArgumentParser:
    """Returns a parser of what all programs that draw cases take."""
    made = argparse.ArgumentParser(**settings)
    made.add_argument("--cases", type=int, default=200, help="at most so many")
    made.add_argument("--seed", type=int, default=random.randrange(10**6))
    made.add_argument("--case", help="one case as JSON, instead of drawn ones")
    made.add_argument("--shrink", action="store_true", help="the smallest case of each group")
    made.add_argument("--out", type=pathlib.Path, help="a file for every failure, as JSON lines")
    return made
