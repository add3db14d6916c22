"""`python -m benchmarks.gate.picture FILE`: tolerance, max_regression and noise in a picture."""

import pathlib

import click
from matplotlib import figure

from tfx_perf.config.gate import GateSettings
from tfx_perf.config.rule import Rule
from tfx_perf.gate.change import Change

_KEY = "step_time_seconds"
_RULE = Rule(tolerance=0.03)
_LEVEL = GateSettings().false_alarm_rate  # of a single rule
# Step times of a noisy machine.
_BLESSED = (0.100, 0.092, 0.106, 0.098, 0.106, 0.093, 0.102, 0.103)
_NEW = (0.102, 0.1065, 0.117)
_COLORS = {"pass": "#1b7f4b", "inconclusive": "#d98c2b", "regression": "#b3261e"}
_WHY = {
    "pass": "even the end of its\ninterval is within\nmax_regression",
    "inconclusive": "noise may hide\na change beyond\nmax_regression",
    "regression": "beyond the tolerance,\nand noise does not\nexplain it",
}
_INK = "#30506e"
_RIGHT = len(_BLESSED) + 11.2  # where the lines end
_ON_LINES = {"facecolor": "white", "edgecolor": "none", "pad": 1.0}


@click.command()
@click.argument("path", type=click.Path(path_type=pathlib.Path))
def main(path: pathlib.Path) -> None:
    """Draws blessed runs and three new ones with the gate's own answers, as PNG."""
    drawing = figure.Figure(figsize=(10, 4.8), layout="constrained")
    axes = drawing.subplots()
    changes = [_change(seconds) for seconds in _NEW]
    _blessed(axes, changes[0])
    for place, change in enumerate(changes):
        _new(axes, change, x=len(_BLESSED) + 2.6 + 3.2 * place)
    axes.text(len(_BLESSED) + 5.8, 87, "three new runs, one at a time", ha="center")
    axes.set_xticks([])
    axes.set_xlim(0.3, _RIGHT + 7.4)
    axes.set_ylim(86, 130)
    axes.set_ylabel("step time in ms: up is worse")
    axes.spines[["top", "right", "bottom"]].set_visible(False)
    drawing.savefig(path, dpi=110)


def _change(seconds: float) -> Change:
    history = {str(number): run for number, run in enumerate(_BLESSED)}
    return Change(_KEY, seconds, history=history, baseline_runs=len(_BLESSED), rule=_RULE)


def _blessed(axes: "figure.Axes", change: Change) -> None:
    count = len(_BLESSED)
    mean, noise = 1e3 * change.baseline, 1e3 * change.prediction.half_width(_LEVEL)
    axes.plot(range(1, count + 1), [1e3 * run for run in _BLESSED], "o", color=_INK)
    axes.text(count / 2 + 0.5, 87, f"{count} blessed runs", color=_INK, ha="center")
    axes.fill_between([0.3, _RIGHT], mean - noise, mean + noise, color="#e6e9ed", zorder=0)
    for text, worse, style in (
        ("mean of the blessed runs", 0.0, "-"),
        (f"tolerance: {100 * _RULE.tolerance:g}% worse is no regression", _RULE.tolerance, "--"),
        (f"max_regression: {100 * _RULE.largest_change:g}% worse must be ruled out",
         _RULE.largest_change, "-."),
    ):  # fmt: skip
        level = mean * (1 + worse)
        axes.plot([0.3, _RIGHT], [level, level], style, color="#1d2733", linewidth=1)
        axes.text(_RIGHT + 0.2, level, text, va="center", fontsize=8.5)
    axes.text(
        _RIGHT + 0.2, mean - noise, "gray: noise, where a run\nthat is no worse may lie",
        va="bottom", fontsize=8.5,
    )  # fmt: skip


def _new(axes: "figure.Axes", change: Change, *, x: float) -> None:
    verdict = change.outcome(level=_LEVEL, smallest_level=_LEVEL).verdict.value
    value, interval = 1e3 * change.value, 1e3 * change.prediction.half_width(0.05)
    color = _COLORS[verdict]
    axes.errorbar(x, value, yerr=interval, fmt="D", color=color, capsize=5, linewidth=1.6)
    axes.text(x, value + interval + 0.5, verdict, color=color, ha="center", va="bottom",
              weight="bold", bbox=_ON_LINES)  # fmt: skip
    axes.text(x, value - interval - 0.8, _WHY[verdict], color=color, ha="center", va="top",
              fontsize=7.5)  # fmt: skip


if __name__ == "__main__":
    main()
