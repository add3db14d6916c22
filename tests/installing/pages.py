"""Does what a page of the docs says, and compares what it shows with what comes."""

import dataclasses
import pathlib
import re
import subprocess
from collections.abc import Iterator, Mapping

_BLOCK = re.compile(r"^```(\w+)\n(.*?)^```", re.MULTILINE | re.DOTALL)
_ESCAPE = re.compile(r"\x1b\[[\d;]*[A-Za-z]")
_RUN_ID = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d+)?")
_NUMBER = re.compile(r"[-+]?\d[\d,]*(?:\.\d+)?(?:e[-+]\d+)?")
_UNIT = re.compile(r"# (?:µs|ms|s|min # s|B|KiB|MiB|GiB|[kMG]/s)(?![\w/])|#/s")
_BARS = re.compile(r"[▁▂▃▄▅▆▇█]+")
_FOLDER = re.compile(r"(?<=[ (=])/\S+/")
# What differs from machine to machine: what wins, with all that is said of it; what is only
# reported; whether a node works long; and Evaluator's own verdict on random initial weights.
_DIFFERS = (
    (re.compile(r"^((?:InputTuner|MemoryProfiler|OptimizedTrainer):) .*"), r"\1"),
    (re.compile(r" Advisory rules not met: [^.]*\."), ""),
    (re.compile(r"^\S+ # UNIT \.\.\. .*"), ""),
    (re.compile(r"^(Evaluator: )?(blessed|REFUSED)$"), r"\1decided"),
    (re.compile(r"^(Pusher: )?pushed( nothing.*)?$"), r"\1pushed"),
    (re.compile(r", not pushed"), ", pushed"),
    (re.compile(r"\(# times\)"), "(# %)"),  # a change of more than twice
    (re.compile(r" runs\b"), " run"),
)
_GAP = "..."


@dataclasses.dataclass(frozen=True)
class Block:
    """A block of code.

    Attributes:
        language: behind its fence.
        body: its lines.
        line: where it is in the page.
    """

    language: str
    body: str
    line: int


def blocks(page: pathlib.Path) -> Iterator[Block]:
    """Yields the page's blocks in order."""
    text = page.read_text()
    for match in _BLOCK.finditer(text):
        yield Block(match[1], match[2], text.count("\n", 0, match.start()) + 1)


def normalised(text: str) -> list[str]:
    """Returns the lines without what differs from run to run: figures, names of runs, folders."""
    lines = map(_normalised_line, _ESCAPE.sub("", text).splitlines())
    return [line for line in lines if line]


def _normalised_line(line: str) -> str:
    line = _BARS.sub("▁", _RUN_ID.sub("RUN", line))
    line = _UNIT.sub("# UNIT", _NUMBER.sub("#", _FOLDER.sub("/", line)))
    line = " ".join(re.sub(r"[─━]+", "─", line).split())
    for pattern, kept in _DIFFERS:
        line = pattern.sub(kept, line)
    return line


def difference(expected: str, found: str) -> str | None:
    """Returns the first line that is not as the page has it, None if all are.

    Args:
        expected: a block of the page; a line `...` stands for any lines.
        found: what came.
    """
    wanted, came = normalised(expected), normalised(found)
    place, is_gap = 0, False
    for line in wanted:
        if line == _GAP:
            is_gap = True
            continue
        while is_gap and place < len(came) and came[place] != line:
            place += 1
        if place >= len(came) or came[place] != line:
            return f"expected: {line}\nreceived: {came[place] if place < len(came) else 'no more'}"
        place, is_gap = place + 1, False
    return None if is_gap or place == len(came) else f"not on the page: {came[place]}"


class Reader:
    """Types what a page says into one shell, whose folder and variables stay.

    Args:
        folder: where the shell begins.
        environment: its variables.
    """

    def __init__(self, folder: pathlib.Path, environment: Mapping[str, str]) -> None:
        self._environment = {**environment, "COLUMNS": "160"}
        self._state = folder / ".shell"
        self._folder = folder

    def type(self, commands: str) -> str:
        """Returns what commands write, which have to succeed."""
        script = f"set -e\n{commands}\nexport -p > {self._state}\npwd > {self._state}.folder\n"
        if self._state.exists():
            script = f". {self._state}\n{script}"
        done = subprocess.run(
            ["bash", "-c", script], cwd=self.folder, env=self._environment, check=False,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        )  # fmt: skip
        assert done.returncode == 0, f"{commands}\n{done.stdout[-6000:]}"
        return done.stdout

    @property
    def folder(self) -> pathlib.Path:
        """Where the shell is."""
        kept = pathlib.Path(f"{self._state}.folder")
        return pathlib.Path(kept.read_text().strip()) if kept.exists() else self._folder

    def write(self, name: str, body: str) -> None:
        """Saves a file there."""
        (self.folder / name).write_text(body)
