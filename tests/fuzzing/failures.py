"""Failures: hundreds of failures of one cause, shown as one."""

import collections
import json
import pathlib
import sys
from typing import Protocol

from tests.fuzzing.cases import JsonCase
from tests.fuzzing.differences import Difference


class Checker(Protocol):
    """Checks cases.

    Attributes:
        count: cases that were checked.
        remarks: what was seen beside failures, and how often.
    """

    count: int
    remarks: collections.Counter[str]

    def check(self, case: JsonCase) -> Difference | None:
        """Returns what is wrong; None if all promises are kept."""

    def shrunk(self, case: JsonCase, signature: str) -> JsonCase:
        """Returns a simpler case with the same signature."""


class Failures:
    """Checks cases and groups what fails by its signature.

    Attributes:
        groups: the failures, by signature.
    """

    def __init__(
        self, checker: Checker, *, title: str = "", out: pathlib.Path | None = None
    ) -> None:
        """Begins without failures.

        Args:
            checker: of the cases.
            title: what was checked.
            out: a file that every failure is added to as a line of JSON.
        """
        self.groups: dict[str, list[tuple[JsonCase, Difference]]] = collections.defaultdict(list)
        self._checker = checker
        self._title = title
        self._out = out

    def add(self, case: JsonCase) -> None:
        """Checks a case."""
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
                case = self._checker.shrunk(case, signature)
            lines += [f"\n{len(failures):4} {signature}", f"     {case.to_json()}"]
            lines += [f"     {found.detail.strip()[-300:]!r}"]
        for remark, count in self._checker.remarks.most_common():
            lines.append(f"\n{remark}: {count} times")
        return "\n".join(lines)
