"""The plots of the reports, as inline SVG.

Drawn by matplotlib through its object interface, without pyplot: no global state and no
display, so a plot can be made in any process or thread.
"""

import io
from collections.abc import Callable, Mapping, Sequence

from matplotlib import figure

# All of it, so that the SVG names no foreign vocabularies and does not change from run to run.
_SVG_METADATA = ("Creator", "Date", "Format", "Type")
_COLOURS = ("#30506e", "#d98c2b", "#1b7f4b", "#8a5a9e", "#9aa7b4", "#b3261e")


def _svg(drawing: figure.Figure) -> str:
    buffer = io.StringIO()
    metadata = dict.fromkeys(_SVG_METADATA)
    drawing.savefig(buffer, format="svg", bbox_inches="tight", metadata=metadata)
    text = buffer.getvalue()
    return text[text.index("<svg") :]


def _axes(height_inches: float) -> tuple[figure.Figure, "figure.Axes"]:
    drawing = figure.Figure(figsize=(8.5, height_inches))
    axes = drawing.subplots()
    axes.spines[["top", "right"]].set_visible(False)
    return drawing, axes


def interval_bars(
    rows: Sequence[tuple[str, float, float, float]],
    *,
    xlabel: str,
    highlight: str | None = None,
    reference: float | None = None,
) -> str:
    """Draws one horizontal bar a row with its interval.

    Args:
        rows: label, value, low, high; drawn top to bottom.
        xlabel: what the values are, with their unit.
        highlight: the label to draw in the accent colour (the winner).
        reference: where to draw a dashed line, e.g. 1.0 for "as fast as the default".
    """
    drawing, axes = _axes(0.8 + 0.42 * len(rows))
    for position, (label, value, low, high) in enumerate(reversed(rows)):
        colour = _COLOURS[1] if label == highlight else _COLOURS[0]
        error = [[max(0.0, value - low)], [max(0.0, high - value)]]
        axes.barh(position, value, color=colour, height=0.6, xerr=error, capsize=3)
    axes.set_yticks(range(len(rows)), [row[0] for row in reversed(rows)])
    if reference is not None:
        axes.axvline(reference, color="#1d2733", linestyle="--", linewidth=1)
    axes.set_xlabel(xlabel)
    return _svg(drawing)


def stacked_bars(
    rows: Mapping[str, Mapping[str, float]], *, xlabel: str
) -> str:
    """Draws one horizontal bar a row, split into parts.

    Args:
        rows: label to the parts' names and sizes; every row has the same part names.
        xlabel: what the sizes are, with their unit.
    """
    drawing, axes = _axes(1.3 + 0.42 * len(rows))
    labels = list(rows)
    parts = list(next(iter(rows.values())))
    left = [0.0] * len(labels)
    for index, part in enumerate(parts):
        sizes = [rows[label][part] for label in labels]
        axes.barh(labels, sizes, left=left, height=0.6, label=part,
                  color=_COLOURS[index % len(_COLOURS)])
        left = [start + size for start, size in zip(left, sizes, strict=True)]
    axes.invert_yaxis()
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
) -> str:
    """Draws one line a series.

    Args:
        series: label to its x and y values.
        xlabel: what x is, with its unit.
        ylabel: what y is, with its unit.
        markers: draw a dot at each point.
        from_zero: start the y axis at zero.
        log_scale: draw y logarithmically; it then cannot start at zero.
    """
    drawing, axes = _axes(3.2)
    for index, (label, (x, y)) in enumerate(series.items()):
        axes.plot(x, y, label=label, color=_COLOURS[index % len(_COLOURS)],
                  marker="o" if markers else None, markersize=4, linewidth=1.3)
    axes.set_xlabel(xlabel)
    axes.set_ylabel(ylabel)
    if log_scale:
        axes.set_yscale("log")
    elif from_zero:
        axes.set_ylim(bottom=0)
    if len(series) > 1:
        axes.legend(frameon=False)
    return _svg(drawing)


def trend(
    points: Sequence[tuple[float, str]], *, kinds: Mapping[str, str], shown: Callable[[float], str]
) -> str:
    """Draws a figure over a row of runs, each run's dot in the colour of its kind.

    Args:
        points: value and kind, oldest first.
        kinds: every kind to its colour; those that occur are explained.
        shown: writes a value with its unit, for the axis.
    """
    drawing, axes = _axes(2.6)
    values = [value for value, _ in points]
    axes.plot(range(1, len(points) + 1), values, color=_COLOURS[4], linewidth=1, zorder=1)
    for kind, colour in kinds.items():
        places = [place for place, (_, found) in enumerate(points, start=1) if found == kind]
        if places:
            axes.scatter(places, [values[place - 1] for place in places], color=colour, label=kind)
    axes.xaxis.get_major_locator().set_params(integer=True)
    axes.yaxis.set_major_formatter(lambda value, _: shown(value))
    axes.set_xlabel("runs, oldest first")
    axes.legend(frameon=False, loc="lower left", bbox_to_anchor=(0, 1), ncols=len(kinds))
    return _svg(drawing)


def trend_with_band(
    blessed: Sequence[float],
    value: float,
    *,
    band: tuple[float | None, float | None],
    refused: bool,
    ylabel: str,
) -> str:
    """Draws blessed runs, this run, and the band that passes.

    Args:
        blessed: figures of the blessed runs, oldest first.
        value: this run's figure.
        band: lowest and highest value that passes; None where there is no such bound.
        refused: whether this run's figure was refused.
        ylabel: what the figures are, with their unit.
    """
    drawing, axes = _axes(2.4)
    here = len(blessed) + 1
    known = [*blessed, value, *(bound for bound in band if bound is not None)]
    room = 0.15 * (max(known) - min(known)) or abs(value) * 0.05 or 1.0
    axes.set_ylim(min(known) - room, max(known) + room)
    bottom, top = axes.get_ylim()
    low, high = (bottom if band[0] is None else band[0]), (top if band[1] is None else band[1])
    axes.axhspan(low, high, color=_COLOURS[2], alpha=0.10, linewidth=0, label="passes")
    axes.plot(range(1, here), blessed, color=_COLOURS[0], marker="o", markersize=5, linewidth=1,
              label="blessed")  # fmt: skip
    colour, label = (_COLOURS[5], "refused") if refused else (_COLOURS[1], "this run")
    axes.plot([here], [value], color=colour, marker="X" if refused else "D", markersize=8,
              linestyle="none", label=label)  # fmt: skip
    axes.set_xticks(range(1, here + 1), [*map(str, range(1, here)), "now"])
    axes.set_xlabel("comparable runs, oldest first")
    axes.set_ylabel(ylabel)
    axes.legend(frameon=False, loc="center left", bbox_to_anchor=(1.0, 0.5))
    return _svg(drawing)
