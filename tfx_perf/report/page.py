"""One self-contained HTML page: a verdict, then tables and figures."""

import dataclasses
import pathlib
from collections.abc import Sequence
from typing import Any, Literal

import jinja2
import upath

from tfx_perf import storage

Tone = Literal["good", "bad", "neutral"]

_TEMPLATE_FOLDER = pathlib.Path(__file__).parent


@dataclasses.dataclass(frozen=True)
class _Section:
    kind: Literal["table", "figure", "text"]
    title: str
    note: str = ""
    columns: Sequence[str] = ()
    rows: Sequence[Sequence[Any]] = ()
    svg: str = ""


class Report:
    """Collects the parts of a report and writes them as one HTML file.

    The file has its style and plots inline, so that it opens without a network and
    survives being copied out of the pipeline root.

    Example:
        >>> report = Report(title="InputTuner", verdict="4.1 times the default.", tone="good")
        >>> report.add_table("Candidates", columns=["name", "ratio"], rows=[["columns", "4.1"]])
        >>> report.write("report.html")
    """

    def __init__(self, *, title: str, verdict: str, tone: Tone = "neutral") -> None:
        """Starts a page.

        Args:
            title: the component and what the page is about.
            verdict: the outcome in one sentence; stands first.
            tone: colours the verdict.
        """
        self.title = title
        self.verdict = verdict
        self.tone = tone
        self._sections: list[_Section] = []

    def add_table(
        self, title: str, *, columns: Sequence[str], rows: Sequence[Sequence[Any]], note: str = ""
    ) -> None:
        """Adds a table; cells are shown with `str` and escaped."""
        self._sections.append(_Section("table", title, note, columns, rows))

    def add_figure(self, title: str, *, svg: str, note: str = "") -> None:
        """Adds a plot made by `tfx_perf.report.plots`."""
        self._sections.append(_Section("figure", title, note, svg=svg))

    def add_text(self, title: str, *, note: str) -> None:
        """Adds a paragraph."""
        self._sections.append(_Section("text", title, note))

    def render(self) -> str:
        """Returns the page as HTML."""
        environment = jinja2.Environment(
            loader=jinja2.FileSystemLoader(_TEMPLATE_FOLDER),
            autoescape=True,
            undefined=jinja2.StrictUndefined,
        )
        return environment.get_template("page.html.j2").render(
            title=self.title, verdict=self.verdict, tone=self.tone, sections=self._sections
        )

    def write(self, path: str | pathlib.Path | upath.UPath) -> None:
        """Writes the page to `path`."""
        storage.write_text(path, self.render())
