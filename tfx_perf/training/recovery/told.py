"""What is told of a training, so that users see why another one is not the same."""

import dataclasses
from collections.abc import Mapping

_MOST_SHOWN = 5  # values


@dataclasses.dataclass(frozen=True)
class Told:
    """What is to be said of a training.

    Attributes:
        fields: what a checkpoint must agree in.
        values: the plain values among what these digest; see `likeness.Likeness`.
    """

    fields: dict[str, str]
    values: dict[str, str]


def differing_values(before: Mapping[str, str], now: Mapping[str, str]) -> str:
    """Returns which values may be why two trainings are not the same, and what to do.

    Args:
        before: those of a checkpoint.
        now: those of this process.

    Returns:
        Sentences; empty if the same values stand wherever both have one.
    """
    places = [place for place in now if before.get(place, now[place]) != now[place]]
    if not places:
        return ""
    shown = [f"{place}: {before[place]} before, {now[place]} now" for place in places[:_MOST_SHOWN]]
    more = f"; and {len(places) - len(shown)} more" if len(places) > len(shown) else ""
    names = dict.fromkeys(_name(place) for place in places[:_MOST_SHOWN])
    return (
        f"Other values: {'; '.join(shown)}{more}. If they change nothing of what is trained, "
        f"training.resume_ignores: [{', '.join(names)}] leaves them out, of "
        "trainings that begin with it."
    )


def _name(place: str) -> str:
    """Returns the last name in a place; of an item in a list, that of the list."""
    return next(part for part in reversed(place.split(".")) if not part.startswith("["))
