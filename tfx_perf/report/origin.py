"""The origin of a report: the node that made it, and the reports on its inputs."""

import dataclasses
import os
import pathlib
from urllib import parse

import upath

from tfx_perf.core import records


class Origin(records.Record):
    """The run of a node, and the names and places of the reports on its inputs; "" is unknown."""

    pipeline: str = ""
    run_id: str = ""
    node: str = ""
    siblings: tuple[tuple[str, str], ...] = ()

    def links(self, folder: str | pathlib.Path | upath.UPath) -> list["Link"]:
        """Returns the links to the siblings from a page in a folder."""
        return [Link.on_page(name, url, folder=folder) for name, url in self.siblings]


UNKNOWN = Origin()
"""Of a report that no node has made."""


@dataclasses.dataclass(frozen=True)
class Link:
    """A link to a report; `target` is for a browser, and empty where none could follow it."""

    name: str
    address: str
    target: str = ""

    @classmethod
    def on_page(
        cls, name: str, address: str, *, folder: str | pathlib.Path | upath.UPath
    ) -> "Link":
        """Returns a link on a page in a folder."""
        return cls(name, address, _target(address, folder=str(folder)))

    def __str__(self) -> str:
        return self.name


def _target(address: str, *, folder: str) -> str:
    """Returns the target of a link from a page in `folder` to another one.

    Relative where both lie in one store or below one folder, so that the link holds in a copy of
    the whole.
    """
    store, path = _split(address)
    own_store, own_path = _split(folder)
    if store == own_store and (store or os.path.commonpath([path, own_path]) != os.sep):
        return parse.quote(os.path.relpath(path, own_path))
    return "" if store else pathlib.Path(path).as_uri()


def _split(address: str) -> tuple[str, str]:
    """Returns the store with its bucket, empty for a disk, and the path in it from its root."""
    scheme, separator, rest = address.partition("://")
    if not separator:
        return "", os.path.abspath(address)
    bucket, _, path = rest.partition("/")
    return f"{scheme}://{bucket}", f"/{path}"
