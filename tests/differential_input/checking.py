"""Serves a case with its candidate and with TFXIO, and says what is wrong."""

import collections
import dataclasses
import gc
import itertools
import re
import shutil
from typing import Any

from tests.fuzzing import failures
from tests.fuzzing.differences import Difference, gist
from tfx_perf.input import candidates

from . import promises, reading, serving
from .cases import Call, Case
from .comparing import difference
from .examples import Split


@dataclasses.dataclass(frozen=True)
class _Expected:
    """What TFXIO gives for a call; see `comparing.difference`."""

    reading: reading.Reading
    epoch: collections.Counter[bytes]


class Checker(failures.Checker):
    """Checks cases in this process.

    Remarks are calls that were left to the default, and those on which TFXIO itself raised.
    """

    most_checks = 60

    def __init__(self) -> None:
        super().__init__()
        gc.freeze()  # what is imported need not be visited with every graph
        self._numbers = itertools.count()
        self._oracle: tuple[Case, list[_Expected]] | None = None

    def simplest(self, case: Case) -> Case:
        return Case(candidate=case.base)

    def check(self, case: Case) -> Difference | None:
        self.count += 1
        expected = self._expected(case)
        split = self._split(case)
        factory = serving.factory_of(case, candidates.make(case.candidate))
        fell_back = None
        try:
            for call, one in zip(case.calls, expected, strict=True):
                with serving.Fallbacks() as reasons:
                    wrong = self._call(case, call, split=split, factory=factory, expected=one)
                if wrong:
                    return _of(case, wrong)
                fell_back = fell_back or self._unexcused(case, call, reasons, expected=one)
        finally:
            shutil.rmtree(split.folder.parent)
        return fell_back and _of(case, fell_back)

    def _split(self, case: Case) -> Split:
        # A path that no case before has had.
        split = Split(case, self.folder / str(next(self._numbers)) / "split")
        split.write()
        return split

    def _expected(self, case: Case) -> list[_Expected]:
        key = dataclasses.replace(case, candidate="default")
        if self._oracle is None or self._oracle[0] != key:
            split = self._split(case)
            self._oracle = key, [self._of_default(case, call, split) for call in case.calls]
            shutil.rmtree(split.folder.parent)
        return self._oracle[1]

    def _of_default(self, case: Case, call: Call, split: Split) -> _Expected:
        if call.content:
            split.replace(call.content)
        factory = serving.default_factory()
        epoch: collections.Counter[bytes] = collections.Counter()
        if not call.is_ordered or call.is_endless:
            whole = dataclasses.replace(
                call, shuffle=False, num_epochs=1, drop_final_batch=False, batch_size=50
            )
            epoch = reading.epoch(serving.reader(case, whole, split, factory=factory))
        found = serving.reader(case, call, split, factory=factory, epoch_rows=epoch.total()).read()
        if found.error:
            self.remarks[f"TFXIO raises {found.error[0]}: {gist(found.error[1])}"] += 1
        elif not epoch:  # what is read in order is compared with itself
            epoch.update(row for batch in found.streams["first"] for row in batch.rows)
        return _Expected(found, epoch)

    def _call(
        self, case: Case, call: Call, *, split: Split, factory: Any, expected: _Expected
    ) -> Difference | None:
        if call.content:
            split.replace(call.content)
        rows = expected.epoch.total()
        found = serving.reader(case, call, split, factory=factory, epoch_rows=rows).read()
        return difference(call, expected.reading, found, expected.epoch)

    def _unexcused(
        self, case: Case, call: Call, reasons: list[str], *, expected: _Expected
    ) -> Difference | None:
        """Counts what was left to the default, and says if it ought to have been served."""
        if expected.reading.error:
            return None
        excuse = promises.excuse(case, call, epoch_rows=expected.epoch.total())
        for reason in dict.fromkeys(reasons):
            self.remarks[f"{case.base} falls back: {gist(reason)}"] += 1
            is_error = re.match(r"\w*(Error|Exception|Iteration)\b", reason)
            if not excuse or (is_error and excuse != "damaged files"):
                where = f" [{excuse}]" if excuse else ""
                return Difference(f"falls back{where}: {gist(reason)}", reason)
        return None


def _of(case: Case, wrong: Difference) -> Difference:
    return dataclasses.replace(wrong, signature=f"{case.base}: {wrong.signature}")
