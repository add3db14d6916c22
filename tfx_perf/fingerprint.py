"""Fingerprints: named strings that say what a measurement holds for.

A run's environment names what its speed and memory depend on beside the code under test:
devices, processor, global batch, precision, the model's size and FLOPs, versions. A step
on other hardware or of another model is neither a regression nor an improvement, so only
runs whose environments agree in every field are compared. Likewise a plan is used again
only where every part of its key agrees.
"""

import hashlib
from collections.abc import Mapping

ABSENT = "(not recorded)"

_DIGEST_LENGTH = 16  # hexadecimal digits


def digest(*parts: bytes) -> str:
    """Returns 16 hexadecimal digits for bytes, as a value that is too long to be compared whole.

    Args:
        *parts: as if concatenated.
    """
    found = hashlib.sha256()
    for part in parts:
        found.update(part)
    return found.hexdigest()[:_DIGEST_LENGTH]


def differences(a: Mapping[str, str], b: Mapping[str, str]) -> dict[str, tuple[str, str]]:
    """Returns the fields in which two fingerprints differ, with both values.

    Empty means comparable. A field that only one of them has differs: what was not
    recorded cannot be known to agree.
    """
    return {
        field: (a.get(field, ABSENT), b.get(field, ABSENT))
        for field in sorted({*a, *b})
        if a.get(field, ABSENT) != b.get(field, ABSENT)
    }


def describe(changes: Mapping[str, tuple[str, str]]) -> str:
    """Returns what `differences` found as a phrase, e.g. `host was a, is b; code was c, is d`."""
    return "; ".join(f"{field} was {was}, is {now}" for field, (was, now) in changes.items())
