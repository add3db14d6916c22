"""One self-contained HTML page: where it comes from, a verdict, then tables and figures."""

import dataclasses
import datetime
import os
import pathlib
import re
from collections.abc import Callable, Sequence
from typing import Any, Literal
from urllib import parse

import jinja2

from tfx_perf import core
from tfx_perf.core import records, storage

FILE_NAME = "report.html"
"""File name of an artifact's report, in its folder, and of the report on a script's training."""

Tone = Literal["good", "bad", "neutral"]

# Where a cell with one long name may break into the next line, e.g. `peak_memory_share_ratio`.
_BREAK = re.compile(r"(?<=[_./])(?=[A-Za-z])")


class Origin(records.Record):
    """The run of a node, and the names and places of the reports on its inputs; "" is unknown."""

    pipeline: str = ""
    run_id: str = ""
    node: str = ""
    siblings: tuple[tuple[str, str], ...] = ()


UNKNOWN = Origin()
"""The origin of a report that was not made by a node."""


@dataclasses.dataclass(frozen=True)
class Link:
    """A link to a report; `target` is for a browser, and empty where none could follow it."""

    name: str
    address: str
    target: str

    @classmethod
    def on_page(cls, name: str, address: str, *, folder: storage.Place) -> "Link":
        """Returns a link from a page in a folder; relative if it stays valid when both are copied.

        That is so if both are in one store, or below one folder.
        """
        (store, path), (own_store, own_path) = _split(address), _split(str(folder))
        if store == own_store and (store or os.path.commonpath([path, own_path]) != os.sep):
            return cls(name, address, parse.quote(os.path.relpath(path, own_path)))
        return cls(name, address, "" if store else pathlib.Path(path).as_uri())

    def __str__(self) -> str:
        return self.name


def _split(address: str) -> tuple[str, str]:
    """Returns the store with its bucket, empty for a disk, and the path in it from its root."""
    scheme, separator, rest = address.partition("://")
    if not separator:
        return "", os.path.abspath(address)
    bucket, _, path = rest.partition("/")
    return f"{scheme}://{bucket}", f"/{path}"


@dataclasses.dataclass(frozen=True)
class _Section:
    kind: Literal["table", "figure", "text"]
    title: str
    note: str = ""
    columns: Sequence[str] = ()
    rows: Sequence[Sequence[Any]] = ()
    svg: Callable[[], str] = str
    link: tuple[str, str] = ("", "")


class Report:
    """Collects the parts of a report and writes them as one HTML file.

    The file has its style and plots inline, so that it opens without a network and
    survives being copied out of the pipeline root.

    Example:
        >>> report = Report(title="InputTuner", verdict="4.1 times the default.", tone="good")
        >>> report.add_table("Candidates", columns=["name", "ratio"], rows=[["columns", "4.1"]])
        >>> report.write("report.html")
    """

    def __init__(
        self, *, title: str, verdict: str, more: Sequence[str] = (), tone: Tone = "neutral"
    ) -> None:
        """Starts a page with the verdict, one sentence, and a line for each of `more`."""
        self.title = title
        self._first_lines = verdict, *more
        self.tone = tone
        self.made = datetime.datetime.now(datetime.timezone.utc)
        self._sections: list[_Section] = []

    @property
    def verdict(self) -> str:
        """The first lines, joined into one."""
        return " ".join(self._first_lines)

    def add_table(
        self,
        title: str,
        *,
        columns: Sequence[str],
        rows: Sequence[Sequence[Any]],
        note: str = "",
        link: tuple[str, str] = ("", ""),
    ) -> None:
        """Adds a table, unless it has no rows; cells are escaped, a `Link` is shown as a link.

        `note` is shown above the table. `link` is a file beside the page, and the text of the link
        to it at the note's end.
        """
        if rows:
            self._sections.append(_Section("table", title, note, columns, rows, link=link))

    def add_figure(self, title: str, *, svg: Callable[[], str], note: str = "") -> None:
        """Adds a plot; `svg` draws it with `tfx_perf.report.plots` when the page is written."""
        self._sections.append(_Section("figure", title, note, svg=svg))

    def add_text(self, title: str, *, note: str) -> None:
        """Adds a paragraph."""
        self._sections.append(_Section("text", title, note))

    def render(self, *, origin: Origin = UNKNOWN, folder: storage.Place = "") -> str:
        """Returns the page as HTML; links to other reports are relative to its future `folder`."""
        header = {
            "made": f"{self.made:%Y-%m-%d %H:%M} UTC",
            "pipeline": origin.pipeline,
            "run": origin.run_id,
            "node": origin.node,
            "tfx-perf": core.VERSION,
        }
        return template("page.html.j2").render(
            title=self.title,
            first_lines=self._first_lines,
            tone=self.tone,
            header={name: value for name, value in header.items() if value},
            links=[Link.on_page(name, url, folder=folder) for name, url in origin.siblings],
            sections=self._sections,
        )

    def write(self, path: storage.Place, *, origin: Origin = UNKNOWN) -> None:
        """Writes the page to `path`; see `render`."""
        place = storage.path(path)
        storage.write_text(place, self.render(origin=origin, folder=place.parent))


def template(name: str) -> jinja2.Template:
    """Returns a template of the pages."""
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(pathlib.Path(__file__).parent),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
    )
    environment.filters["pieces"] = _pieces
    return environment.get_template(name)


def _pieces(cell: Any) -> list[str]:
    """Returns the text of a cell, in the pieces between which lines may break."""
    text = str(cell)
    is_long_name = len(text) >= 14 and " " not in text
    return _BREAK.split(text) if is_long_name else [text]
