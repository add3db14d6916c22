"""Formats figures for people, in the units of the metric catalogue."""

import math

from tfx_perf.core import metrics

MISSING = "–"
SLOW = 0.5
"""Below this ratio of two speeds, texts say how many times slower one is."""

_Units = tuple[tuple[float, str], ...]  # their sizes and names, the largest first
_SI_PREFIXES: _Units = ((1e15, "P"), (1e12, "T"), (1e9, "G"), (1e6, "M"))
_BYTES: _Units = ((2**40, "TiB"), (2**30, "GiB"), (2**20, "MiB"), (2**10, "KiB"))
_JOULES: _Units = ((1e6, "MJ"), (1e3, "kJ"), (1, "J"), (1e-3, "mJ"), (1e-6, "µJ"))


def format_value(key: str, value: float | None) -> str:
    """Returns a metric's value with its unit, e.g. `3.21 ms`, `1.4 GiB` or `163,000/s`.

    The key, as for `metrics.lookup`, decides on the unit; None is shown as a dash.
    """
    unit = metrics.lookup(key).unit
    return MISSING if value is None else _FORMATS[unit](value)


def label(key: str) -> str:
    """Returns a metric's name for a heading, e.g. `step time`; the values carry the unit."""
    words = key.removeprefix(metrics.EVALUATION_PREFIX).split("_")
    return " ".join(words[:-1] if words[-1] in ("seconds", "bytes", "ratio", "joules") else words)


def counted(count: int, noun: str) -> str:
    """Returns a number of things, e.g. `1 run` or `3 runs`."""
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


def together(*, worker_count: int, replica_count: int, server_count: int) -> str:
    """Returns who trained together, e.g. `2 workers and 1 parameter server`.

    Replicas are the copies of the model in all workers; they are named if they outnumber workers.
    """
    groups = [
        (worker_count, "worker", worker_count > 1 or server_count),
        (server_count, "parameter server", server_count),
        (replica_count, "replica", replica_count > worker_count),
    ]
    counts = [counted(count, thing) for count, thing, is_named in groups if is_named]
    return " and ".join(counts) or counted(replica_count, "replica")


def compared_speed(ratio: float, *, is_upper_bound: bool = False) -> str:
    """Returns a ratio of speeds, e.g. `0.71 times as fast as` or `72.1 times slower than`.

    With `is_upper_bound`, the ratio may be less than that.
    """
    if ratio < SLOW:
        bound = "at least " if is_upper_bound else ""
        return f"{bound}{short(1 / ratio)} times slower than"
    bound = "at most " if is_upper_bound else ""
    return f"{bound}{ratio:.2f} times as fast as"


def short(value: float) -> str:
    """Returns about three significant digits, never an exponent."""
    magnitude = abs(value)
    digits = 0 if magnitude >= 99.95 else 1 if magnitude >= 9.995 else 2
    return f"{value:,.{digits}f}"


def signed_percent(share: float) -> str:
    """Returns a change in percent without the percent sign, e.g. `+3.1`; zero has a plus, too."""
    rounded = round(100 * share, 1) + 0.0  # turns -0 into 0
    return f"{rounded:+.1f}"


def format_bytes(value: float | None) -> str:
    """Returns bytes with a binary unit, e.g. `1.5 MiB`; None is shown as a dash."""
    if value is None:
        return MISSING
    return f"{value:.0f} B" if abs(value) < 2**10 else _in_units(value, _BYTES)


def format_seconds(value: float | None) -> str:
    """Returns a duration from microseconds to hours, e.g. `3.21 ms`; None is shown as a dash."""
    if value is None:
        return MISSING
    if not value:
        return "0 s"
    if abs(value) < 1e-3:
        return f"{short(value * 1e6)} µs"
    if abs(value) < 1:
        return f"{short(value * 1e3)} ms"
    if abs(value) < 99.95:
        return f"{short(value)} s"
    minutes, seconds = divmod(round(value), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes:02d} min" if hours else f"{minutes} min {seconds:02d} s"


def format_joules(value: float) -> str:
    """Returns an amount of energy, e.g. `12.3 kJ` or `450 µJ`."""
    return _in_units(value, _JOULES)


def _count(value: float) -> str:
    return f"{value:,.0f}" if abs(value) < 1e9 else _in_units(value, _SI_PREFIXES)


def _rate(value: float) -> str:
    if abs(value) < 1000:
        return f"{short(value)}/s"
    return f"{value:,.0f}/s" if abs(value) < 1e6 else f"{_in_units(value, _SI_PREFIXES)}/s"


def _in_units(value: float, units: _Units) -> str:
    """Returns a value in the largest unit that is not larger than it, or else in the smallest."""
    size, unit = next((pair for pair in units if abs(value) >= pair[0]), units[-1])
    return f"{short(value / size)} {unit}"


_FORMATS = {
    "seconds": format_seconds,
    "bytes": format_bytes,
    "ratio": lambda value: f"{short(100 * value)}%",
    "times": lambda value: f"{short(value)}×",
    "count": _count,
    "1/second": _rate,
    "flag": lambda value: "yes" if value else "no",
    "currency": lambda value: f"{value:,.4g}",
    "loss": lambda value: f"{value:.4g}",
    "score": lambda value: f"{value:.4g}",
    "joules": format_joules,
}


def cost_sentence(
    search: str,
    *,
    cost_seconds: float,
    saved_seconds: float | None,
    run_count: int | None,
    is_planned: bool,
) -> str:
    """Returns one sentence on the cost of a search, e.g. `The trials`; empty if there was none.

    `saved_seconds` is the time that a run saves (None: nothing), and `run_count` the number of runs
    that the search was for: the planned ones, or this one and those before.

    Example:
        >>> seconds = {"cost_seconds": 6.0, "saved_seconds": 2.5}
        >>> cost_sentence("The trials", **seconds, run_count=30, is_planned=True)
        'The trials took 6.00 s; this should save 2.50 s a run, and is paid for after 3 runs.'
    """
    if not cost_seconds:
        return ""
    took = f"{search} took {format_seconds(cost_seconds)}"
    if saved_seconds is None or saved_seconds <= 0:
        return f"{took}."
    saves = f"{took}; this should save {format_seconds(saved_seconds)} a run"
    runs = math.ceil(cost_seconds / saved_seconds)
    if runs == 1:
        return f"{saves}."
    if run_count is not None and runs > run_count:
        if is_planned:
            within = f"the {counted(run_count, 'planned run')}"
        else:
            within = "this run" if run_count == 1 else f"the {run_count:,} expected runs"
        return f"{saves}, and pays only after {runs:,} runs, not within {within}."
    return f"{saves}, and is paid for after {runs:,} runs."
