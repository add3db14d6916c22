"""The plots of the reports, as inline SVG, drawn by matplotlib, which the first plot imports."""

import io
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from tfx_perf.core import formatting, metrics, statistics

# All metadata, removed so that the SVG has no foreign namespaces and is the same in every run.
_SVG_METADATA = ("Creator", "Date", "Format", "Type")
# The least reach of a trend's axis on both sides of the median, relative to it: a change of 4% then
# takes a tenth of its height, however little the runs differ.
_LEAST_REACH = 0.2
# The same as a multiple of the allowed change, used where that is smaller, as for an AUC.
_REACH_IN_ALLOWED = 3.0
_READABLE_SHARE = 0.08  # of the widest bar: the smallest part into which its size fits
_MOST_TICKS, _MOST_RUN_NUMBERS = 5, 12
_COLORS = (
    "#30506e", "#d98c2b", "#1b7f4b", "#8a5a9e", "#9aa7b4", "#b3261e", "#5fa8a0", "#6b4a2b",
)  # fmt: skip


def _svg(drawing: Any) -> str:
    buffer = io.StringIO()
    metadata = dict.fromkeys(_SVG_METADATA)
    drawing.savefig(buffer, format="svg", bbox_inches="tight", metadata=metadata)
    text = buffer.getvalue()
    return text[text.index("<svg") :]


def _axes(height_inches: float) -> tuple[Any, Any]:
    from matplotlib.figure import Figure  # without pyplot's global state

    drawing = Figure(figsize=(8.5, height_inches))
    axes = drawing.subplots()
    axes.spines[["top", "right"]].set_visible(False)
    return drawing, axes


def _plain(value: float, _: float | None = None) -> str:
    """Writes a number at a tick without an exponent."""
    return f"{value:,.12g}"


def interval_bars(
    rows: Sequence[tuple[str, statistics.Interval]], *, xlabel: str, highlight: str
) -> str:
    """Draws one horizontal bar per row, with its interval.

    The row labeled `highlight` (the winner) has the accent color. `xlabel` has the values' unit.
    """
    drawing, axes = _axes(0.8 + 0.42 * len(rows))
    for position, (label, bar) in enumerate(reversed(rows)):
        color = _COLORS[1] if label == highlight else _COLORS[0]
        error = [[max(0.0, bar.value - bar.low)], [max(0.0, bar.high - bar.value)]]
        axes.barh(position, bar.value, color=color, height=0.6, xerr=error, capsize=3)
    axes.set_yticks(range(len(rows)), [label for label, _ in reversed(rows)])
    axes.xaxis.set_major_formatter(_plain)
    axes.set_xlabel(xlabel)
    return _svg(drawing)


def stacked_bars(
    rows: Mapping[str, Mapping[str, float]],
    *,
    xlabel: str,
    format_size: Callable[[float], str] | None = None,
) -> str:
    """Draws one horizontal bar per row, split into parts, which have the same names in every row.

    `format_size` formats a size, at the axis and in the parts; without it, `xlabel` has the unit.
    """
    drawing, axes = _axes(0.9 + 0.42 * sum(1 + label.count("\n") for label in rows))
    labels = list(rows)
    parts = list(next(iter(rows.values())))
    left = [0.0] * len(labels)
    widest = max(sum(sizes.values()) for sizes in rows.values())
    for index, part in enumerate(parts):
        sizes = [rows[label][part] for label in labels]
        bars = axes.barh(labels, sizes, left=left, height=0.6, label=part,
                         color=_COLORS[index % len(_COLORS)])  # fmt: skip
        if format_size:
            words = [format_size(size) if size > _READABLE_SHARE * widest else "" for size in sizes]
            axes.bar_label(bars, words, label_type="center", color="white")
        left = [start + size for start, size in zip(left, sizes, strict=True)]
    axes.set_ylim(len(labels) - 0.4, -0.6)
    axes.xaxis.set_major_formatter((lambda value, _: format_size(value)) if format_size else _plain)
    axes.set_xlabel(xlabel)
    axes.legend(loc="lower center", bbox_to_anchor=(0.5, 1.0), ncols=len(parts), frameon=False)
    return _svg(drawing)


def lines(
    series: Mapping[str, tuple[Sequence[float], Sequence[float]]],
    *,
    xlabel: str,
    ylabel: str,
    markers: bool = False,
    from_zero: bool = True,
    log_scale: bool = False,
    predicted: str | None = None,
) -> str:
    """Draws one line per series of x and y values; `predicted` is dashed, as it was not measured.

    `series` has the labels, and the labels of the axes have units.
    """
    drawing, axes = _axes(3.2)
    for index, (label, (x, y)) in enumerate(series.items()):
        is_measured = label != predicted
        axes.plot(x, y, label=label, color=_COLORS[index % len(_COLORS)],
                  marker="o" if markers and is_measured else None, markersize=4,
                  linestyle="-" if is_measured else "--", linewidth=1.3)  # fmt: skip
    if all(isinstance(place, int) for x, _ in series.values() for place in x):
        axes.locator_params("x", integer=True)
    axes.set_xlabel(xlabel)
    axes.set_ylabel(ylabel)
    if log_scale:
        axes.set_yscale("log")
        low, high = axes.get_ylim()
        has_decades = high > 10 * low
        axes.yaxis.set_minor_formatter("" if has_decades else _plain)
    elif from_zero:
        axes.set_ylim(0, 1.05 * axes.get_ylim()[1])
    axes.xaxis.set_major_formatter(_plain)
    axes.yaxis.set_major_formatter(_plain)
    if len(series) > 1:
        axes.legend(frameon=False)
    return _svg(drawing)


def trend(points: Sequence[tuple[float, str]], *, key: str, kinds: Mapping[str, str]) -> str:
    """Draws values of a metric, oldest first, each dot in the color of its kind."""
    drawing, axes = _axes(2.6)
    values = [value for value, _ in points]
    axes.plot(range(1, len(points) + 1), values, color=_COLORS[4], linewidth=1, zorder=2)
    for kind, color in kinds.items():
        places = [place for place, (_, of_point) in enumerate(points, start=1) if of_point == kind]
        if places:
            axes.scatter(places, [values[place - 1] for place in places], color=color, label=kind,
                         zorder=3, clip_on=False)  # fmt: skip
    _set_value_axis(axes, key, values, reach=_LEAST_REACH * abs(float(np.median(values))))
    axes.set_xlim(0.5, len(points) + 0.5)
    axes.locator_params("x", integer=True, min_n_ticks=1)  # or one run would be 0.6 to 1.4
    axes.set_xlabel("runs, oldest first")
    axes.legend(frameon=False, loc="lower left", bbox_to_anchor=(0, 1), ncols=len(kinds))
    return _svg(drawing)


def trend_with_band(
    blessed: Sequence[float],
    value: float,
    *,
    key: str,
    baseline: tuple[float, str],
    noise: float,
    band: tuple[float | None, float | None],
    refused: bool,
) -> str:
    """Draws blessed runs, this run, the range of noise, and the allowed range.

    `baseline` is the figure to compare with, and its name. Nine in ten runs that are no worse lie
    within `noise` of it; 0 where that is not known. `band` has the lowest and the highest value
    that tolerance and noise allow; None where there is no such bound.
    """
    drawing, axes = _axes(2.6)
    here = len(blessed) + 1
    center, name = baseline
    bounds = [bound for bound in band if bound is not None]
    allowed = max((abs(bound - center) for bound in bounds), default=0.0)
    least = _LEAST_REACH * abs(center)
    reach = min(_REACH_IN_ALLOWED * allowed, least) if allowed else least
    known = [*blessed, value, center, *bounds]
    _set_value_axis(axes, key, known, reach=reach, center=center)
    bottom, top = axes.get_ylim()
    low, high = (bottom if band[0] is None else band[0]), (top if band[1] is None else band[1])
    axes.axhspan(low, high, color=_COLORS[2], alpha=0.10, linewidth=0,
                 label="tolerance and noise allow")  # fmt: skip
    if noise:
        explained = max(bottom, center - noise), min(top, center + noise)
        axes.axhspan(*explained, color=_COLORS[0], alpha=0.16, linewidth=0,
                     label="noise: 9 in 10 runs\nthat are no worse")  # fmt: skip
    axes.axhline(center, color=_COLORS[0], linestyle="--", linewidth=1, label=name)
    axes.plot(range(1, here), blessed, color=_COLORS[0], marker="o", markersize=5, linewidth=1,
              clip_on=False, label="blessed runs")  # fmt: skip
    color, label = (_COLORS[5], "this run, refused") if refused else (_COLORS[1], "this run")
    axes.plot([here], [value], color=color, marker="X" if refused else "D", markersize=8,
              linestyle="none", clip_on=False, label=label)  # fmt: skip
    axes.set_xlim(0.5, here + 0.5)
    places = range(1, here, max(1, here // _MOST_RUN_NUMBERS))
    axes.set_xticks([*places, here], [*map(str, places), "now"])
    axes.set_xlabel("comparable runs, oldest first")
    axes.legend(frameon=False, loc="center left", bbox_to_anchor=(1.0, 0.5))
    return _svg(drawing)


def _set_value_axis(
    axes: Any, key: str, values: Sequence[float], *, reach: float, center: float | None = None
) -> None:
    center = float(np.median(values)) if center is None else center
    if metrics.lookup(key).unit in ("count", "flag"):
        reach = max(reach, 1.0)
    low, high = min(*values, center - reach), max(*values, center + reach)
    room = 0.05 * (high - low)
    lowest, highest = metrics.lookup(key).bounds
    if min(values) >= 0 and low < high / 2:
        low, room = max(lowest, 0.0), 0.05 * high
    else:
        low = max(lowest, low - room)
    high = min(highest, high + room)
    axes.set_ylim(low, high if high > low else low + 1.0)
    ticks = _ticks(*axes.get_ylim(), key=key)
    axes.set_yticks(list(ticks), list(ticks.values()))
    axes.set_ylabel(formatting.label(key))


def _ticks(low: float, high: float, *, key: str) -> dict[float, str]:
    """Returns round values with their texts, which all differ."""
    from matplotlib import ticker

    metric = metrics.lookup(key)
    unit = 1.0
    if metric.unit == "bytes" and high >= 1:
        unit = 1024.0 ** (math.log2(high) // 10)
    texts: dict[float, str] = {}
    for count in range(_MOST_TICKS, 0, -1):
        locator = ticker.MaxNLocator(count, integer=metric.unit in ("count", "flag"))
        places = unit * np.asarray(locator.tick_values(low / unit, high / unit))
        texts = {
            place: formatting.format_value(key, place)
            for place in places.tolist()
            if low <= place <= high
        }
        if len(set(texts.values())) == len(texts):
            break
    return texts
