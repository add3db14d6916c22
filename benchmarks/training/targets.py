"""Whether the figures meet the targets."""

from collections.abc import Sequence

import numpy as np
from scipy import stats

from benchmarks.training import results
from benchmarks.training.workloads import WORKLOADS

_TAXI = {"taxi-40": 6.0, "taxi-1024": 25.0}
_MEAN, _LEAST, _REGRET = 1.3, 0.97, 0.03


def verdicts(cells: Sequence[results.CellResult]) -> tuple[str, ...]:
    """Returns a sentence for each target that was measured."""
    found = []
    for cell in cells:
        least = _TAXI.get(cell.cell.workload)
        if least:
            ratio = cell.steady_ratio(results.TUNED).value
            found.append(_verdict(f"{cell.cell}: >= {least:g}", ratio, least))
    rest = [cell for cell in cells if cell.cell.workload in WORKLOADS]
    for kind in (results.OPTIMIZED, results.TUNED) if rest else ():
        ratios = [cell.steady_ratio(kind).value for cell in rest]
        found.append(
            _verdict(f"{kind}, geometric mean of the rest >= {_MEAN}", stats.gmean(ratios), _MEAN)
        )
        found.append(_verdict(f"{kind}, no cell below {_LEAST}", min(ratios), _LEAST))
    regrets = [cell.regret.regret_ratio for cell in rest if cell.regret]
    if regrets:
        middle = float(np.median(regrets))
        word = "met" if middle <= _REGRET else "MISSED"
        found.append(f"regret <= {_REGRET:.0%} in the median: {word} ({middle:.1%})")
    return tuple(found)


def _verdict(target: str, ratio: float, least: float) -> str:
    return f"{target}: {'met' if ratio >= least else 'MISSED'} ({ratio:.3g})"
