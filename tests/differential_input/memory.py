"""How much memory a candidate takes, in a process of its own, against what it may and says."""

import dataclasses
import shutil
import statistics
from typing import Any

from hypothesis import strategies as st

from tests.fuzzing import failures, forks
from tests.fuzzing.differences import Difference
from tfx_perf.core import formatting

from .cases import VARIABLE, Call, Case, Feature, File
from .examples import Split
from .strategies import BASES

_SERVER = f"{__package__}.memory_server"
_TOLERANCE = 1.1
_MEGABYTE = 10**6
_BUDGETS = tuple(count * _MEGABYTE for count in (5, 10, 20, 40, 80, 300))

# Examples for which bytes in a file, parsed values and tensors differ in size; and their number.
_FAMILIES: tuple[tuple[tuple[Feature, ...], int], ...] = (
    ((Feature(dtype="bytes", value_bytes=20_000),), 2000),
    ((Feature(dtype="bytes", value_bytes=40_000, distinct=20),), 2000),
    ((Feature(shape=(1000,), value_bytes=1),), 5000),
    ((Feature(shape=(1000,), value_bytes=10),), 2000),
    ((Feature(dtype="float", shape=(1000,), has_default=True, missing=0.99), Feature()), 8000),
    ((Feature(dtype="bytes", shape=(200,), has_default=True, missing=0.99), Feature()), 8000),
    ((Feature(dtype="float", shape=(500,)),), 10_000),
    ((Feature(kind=VARIABLE, values=400, value_bytes=1),), 8000),
    ((Feature(dtype="bytes", kind=VARIABLE, values=40, value_bytes=30),), 8000),
    ((Feature(dtype="bytes", value_bytes=2, columns=40),), 5000),
    ((Feature(dtype="float", columns=60),), 5000),
)
# The first records are much smaller than the others.
_GROWING = (Feature(dtype="bytes", value_bytes=60),)


def cases() -> Any:
    """Returns a strategy for cases that take some MB, each for every candidate."""
    calls = st.builds(
        Call,
        batch_size=st.sampled_from((16, 64, 256)),
        shuffle=st.booleans(),
        shuffle_buffer_size=st.sampled_from((100, 1000, 10000)),
    )
    number = st.integers(0, len(_FAMILIES))
    budgets = st.sampled_from(_BUDGETS)
    drawn = st.tuples(number, calls, budgets, st.booleans(), st.booleans(), st.sampled_from((1, 2)))
    return drawn.map(_cases)


def _cases(drawn: tuple[Any, ...]) -> list[Case]:
    number, call, budget_bytes, is_ragged, is_gzip, times = drawn
    if number < len(_FAMILIES):
        features, count = _FAMILIES[number]
        growth, file = 1, File(records=count // 2 * times)
    else:
        features, growth = _GROWING, 1000
        file = File(records=300 + 500 * times, grows_from=300)
    case = Case(
        features=features,
        is_ragged=is_ragged,
        is_gzip=is_gzip,
        files=(file,),
        growth=growth,
        calls=(call,),
        memory_budget_bytes=budget_bytes,
    )
    return [dataclasses.replace(case, candidate=name).consistent() for name in BASES]


class MemoryChecker(failures.Checker):
    """Measures cases; remarks are the calls that were left to the default.

    Attributes:
        refused: cases that were left to the default, and why.
        measured: what was measured of each served case.
    """

    most_checks = 25

    def __init__(self) -> None:
        super().__init__()
        self.refused: list[tuple[Case, list[str]]] = []
        self.measured: list[tuple[Case, dict[str, Any]]] = []
        self._forks = forks.Forks(_SERVER)
        Split(Case(), self.folder / "small").write()
        self._written: Case | None = None

    def simplest(self, case: Case) -> Case:
        return Case(candidate=case.base, memory_budget_bytes=case.memory_budget_bytes)

    def check(self, case: Case) -> Difference | None:
        """Returns by how much the budget is exceeded; None if it is kept."""
        self.count += 1
        self._write(case)
        found = self._run(case)
        if found.signal or found.error:
            kind = found.error[0] if found.error else f"signal {found.signal}"
            return Difference(f"{case.base}: ends with {kind}", found.output[-1500:])
        values = found.values
        allowed_bytes = _TOLERANCE * case.memory_budget_bytes
        if values["reasons"]:
            self.remarks[f"{case.base} falls back"] += 1
            self.refused.append((case, values["reasons"]))
            default = self._run(dataclasses.replace(case, candidate="default")).values
            allowed_bytes = max(allowed_bytes, _TOLERANCE * default["peak_bytes"])
        else:
            self.measured.append((case, values))
        allowed_bytes += values["starting_bytes"]
        if values["peak_bytes"] <= allowed_bytes:
            return None
        state = "after it fell back" if values["reasons"] else "served"
        return Difference(
            f"{case.base}: more memory than the budget ({state})",
            ", ".join(f"{name} {_shown(value)}" for name, value in values.items())
            + f", budget {_shown(case.memory_budget_bytes)}, allowed {_shown(allowed_bytes)}",
        )

    def table(self) -> str:
        """Returns what candidates said to take and took at the peak, as shares.

        The peak is without what the process took to read a few small examples.
        """
        lines = [f"{'candidate':18}{'served':>8}{'default':>9}{'says / peak':>13}"
                 f"{'peak / budget':>15}{'highest':>9}  of"]  # fmt: skip
        for name in BASES:
            served = [one for one in self.measured if one[0].base == name]
            if not served:
                continue
            peaks = [
                max(1, values["peak_bytes"] - values["starting_bytes"]) for _, values in served
            ]
            claims = [
                values["claimed_bytes"] / peak
                for (_, values), peak in zip(served, peaks, strict=True)
            ]
            shares = [
                peak / case.memory_budget_bytes
                for (case, _), peak in zip(served, peaks, strict=True)
            ]
            case, values = served[shares.index(max(shares))]
            lines.append(
                f"{name:18}{len(served):8}{self.remarks[f'{name} falls back']:9}"
                f"{statistics.median(claims):13.2f}"
                f"{statistics.median(shares):15.2f}{max(shares):9.2f}"
                f"  {_shown(case.memory_budget_bytes)}, "
                f"{values['rows']} x {case.features[0].to_json()}"
            )
        return "\n".join(lines)

    def close(self) -> None:
        self._forks.close()
        super().close()

    def _write(self, case: Case) -> None:
        key = Case(features=case.features, files=case.files, is_gzip=case.is_gzip,
                   growth=case.growth)  # fmt: skip
        if self._written != key:
            shutil.rmtree(self.folder / "split", ignore_errors=True)
            Split(case, self.folder / "split").write()
            self._written = key

    def _run(self, case: Case) -> forks.Ended:
        shutil.rmtree(self.folder / "out", ignore_errors=True)
        request = {"case": case.to_json(), "small": str(self.folder / "small"),
                   "split": str(self.folder / "split")}  # fmt: skip
        return self._forks.run(request, self.folder / "out", name="reading")


def _shown(value: Any) -> str:
    return formatting.format_bytes(value) if isinstance(value, int | float) else str(value)
