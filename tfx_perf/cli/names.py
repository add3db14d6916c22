"""Finds what a person means by a name."""

import difflib
from collections.abc import Sequence

from tfx_perf import errors

_SHOWN = 5


def pick(name: str, known: Sequence[str], *, what: str = "run") -> str:
    """Returns the one known name that is `name` or begins with it.

    Args:
        name: what the person wrote.
        known: all names, the likeliest first.
        what: what is named, for the error.

    Raises:
        UserError: none does, or several do; the nearest names are in it.
    """
    if name in known:
        return name
    found = list(dict.fromkeys(item for item in known if item.startswith(name)))
    if len(found) == 1:
        return found[0]
    near = found or difflib.get_close_matches(name, known, n=_SHOWN) or list(known)
    listed = ", ".join(near[:_SHOWN]) or "none is on record"
    raise errors.UserError(f"Expected one {what}, e.g. {listed}. Received: {what}={name}.")
