"""A row of figures as small bars in the terminal."""

from collections.abc import Sequence

_BARS = "▁▂▃▄▅▆▇█"


def draw(values: Sequence[float | None]) -> str:
    """Returns one character a value, from the lowest to the highest bar; None is a space.

    Args:
        values: in order; where all are equal, every bar is a middle one.

    Example:
        >>> draw([1.0, 2.0, None, 8.0])
        '▁▂ █'
    """
    known = [value for value in values if value is not None]
    if not known:
        return " " * len(values)
    low, span = min(known), max(known) - min(known)

    def bar(value: float) -> str:
        share = (value - low) / span if span else 0.5
        return _BARS[min(int(share * len(_BARS)), len(_BARS) - 1)]

    return "".join(" " if value is None else bar(value) for value in values)
