"""Descriptions of what a case got wrong."""

import dataclasses
import re


@dataclasses.dataclass(frozen=True)
class Difference:
    """The first thing that is not as it must be.

    Attributes:
        signature: what differs, the same for all failures of one kind.
        detail: the numbers.
    """

    signature: str
    detail: str


def gist(message: str) -> str:
    """Returns what is the same in all errors of a kind: no numbers, names of nodes or paths."""
    lines = [line.strip() for line in message.splitlines() if line.strip()]
    bad = [line for line in lines if "indices[" in line or "planned for" in line]
    is_traceback = bool(lines) and any('File "' in line for line in lines)
    line = (bad or lines or [""])[-1 if is_traceback else 0]
    line = re.sub(r"[\w/.-]*/[\w/.-]+", "PATH", line)
    return re.sub(r"0x[0-9a-f]+|\d+(\.\d+)?(e-?\d+)?", "#", line)[:110]
