"""Alarms that other tools would have raised, computed by their own code.

Run as a script by an interpreter that has asv and apache-otava, which cannot be installed with TFX:
`python rivals_job.py HISTORIES.npz`. Prints JSON: rule to share of histories with an alarm.
"""

import json
import sys

import numpy as np
from asv.commands import compare
from asv_runner import statistics
from otava import analysis
from scipy import stats

_FACTOR = 1.1  # `asv compare --factor` by default
_ALPHA = 0.05  # google/benchmark, tools/gbench/report.py: UTEST_COL_NAME and --alpha
_WINDOW, _P_VALUE = 50, 0.001  # otava.series.AnalysisOptions


def mean_over_last(runs: np.ndarray) -> bool:
    """Mean step more than 5% above the last run's."""
    return bool(np.mean(runs[-1]) > 1.05 * np.mean(runs[-2]))


def mean_over_all(runs: np.ndarray) -> bool:
    """Mean step more than 5% above the mean of all runs before."""
    return bool(np.mean(runs[-1]) > 1.05 * np.mean(runs[:-1]))


def mann_whitney(runs: np.ndarray) -> bool:
    """Calls scipy as compare.py of google-benchmark does, with steps as repetitions."""
    p_value = stats.mannwhitneyu(runs[-2], runs[-1], alternative="two-sided").pvalue
    return bool(p_value < _ALPHA and np.median(runs[-1]) > np.median(runs[-2]))


def asv_compare(runs: np.ndarray) -> bool:
    """`asv compare` of two revisions."""
    found = []
    for samples in (runs[-2].tolist(), runs[-1].tolist()):
        value, summary = statistics.compute_stats(samples, 1)
        found.append((value, (summary, samples)))
    (before, before_stats), (after, after_stats) = found
    return bool(compare._is_result_better(before, after, before_stats, after_stats, _FACTOR))


def otava(runs: np.ndarray) -> bool:
    """A change point for the worse at the last run, in the series of the runs' medians."""
    series = np.median(runs, axis=-1).tolist()
    points, _ = analysis.compute_change_points(series, window_len=_WINDOW, max_pvalue=_P_VALUE)
    last = len(series) - 1
    return any(point.index == last and series[-1] > np.mean(series[:-1]) for point in points)


RULES = {
    "mean > +5% over the last run": mean_over_last,
    "mean > +5% over all runs": mean_over_all,
    "Mann-Whitney on steps (google-benchmark)": mann_whitney,
    "asv compare": asv_compare,
    "apache-otava": otava,
}


def main(path: str) -> None:
    """Prints the shares."""
    steps = np.load(path)["steps"].astype(float)
    shares = {
        name: float(np.mean([any(rule(runs) for runs in history) for history in steps]))
        for name, rule in RULES.items()
    }
    print(json.dumps(shares))


if __name__ == "__main__":
    main(sys.argv[1])
