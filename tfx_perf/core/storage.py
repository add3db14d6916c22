"""Files and folders by URI: on a disk, or in an object store such as `gs://` and `s3://`."""

import contextlib
import datetime
import os
import pathlib
import re
import shutil
import tempfile
import threading
from collections.abc import Iterator

import upath

from tfx_perf.core import errors

Place = str | pathlib.Path | upath.UPath
"""A file or folder on a disk, or by its URL in a store."""

_ONE_SLASH = re.compile(r"[a-z0-9]{2,}:/(?!/)")
_EXTRAS = {"gs": "gcs", "gcs": "gcs", "s3": "s3"}


def path(uri: Place, *, name: str = "uri") -> upath.UPath:
    """Returns a path to use like one of `pathlib`, for any place such as `gs://bucket/folder`.

    The store itself is not accessed yet. Listings are never cached, as other processes write there.
    UserError, which calls it `name`: the kind of store is unknown, or its driver is missing.

    Example:
        >>> (storage.path("gs://bucket/metrics") / "metrics.json").read_bytes()
    """
    if isinstance(uri, upath.UPath):
        return uri
    if _ONE_SLASH.match(str(uri)):
        raise errors.UserError(
            f"Expected a local folder, or a URL with two slashes. Received: {name}={uri}."
        )
    if not is_remote(uri):
        return upath.UPath(uri)
    try:
        # Connects to nothing, but raises here if a driver is not installed.
        at_uri = upath.UPath(uri, skip_instance_cache=True, use_listings_cache=False)
        _ = at_uri.fs
    except Exception as error:  # each driver has its own exceptions
        extra = _EXTRAS.get(str(uri).partition("://")[0])
        remedy = f"Install the extra tfx-perf[{extra}]." if extra else "Correct it."
        raise errors.UserError(
            "Expected a local folder, or a URL whose fsspec driver is installed. "
            f"Received: {name}={uri} ({errors.in_one_line(error)}). {remedy}"
        ) from error
    return at_uri


def is_remote(uri: Place) -> bool:
    """Returns whether `uri` is a URL, which only this module can read and write."""
    return "://" in str(uri)


def read_bytes(file: Place) -> bytes:
    """Returns a file's content; OSError: it cannot be read; UserError: see `path`."""
    with _plain_errors():
        return path(file).read_bytes()


def write_text(file: Place, text: str) -> None:
    """Writes a file in UTF-8; see `write_bytes`."""
    write_bytes(file, text.encode())


def write_bytes(file: Place, content: bytes, *, is_durable: bool = False) -> None:
    """Writes a file; its folder must exist if the store has folders.

    An existing file stays until the new one is complete, for example on a full disk or if the
    process is killed meanwhile. The new file gets its permissions. If it `is_durable`, the new file
    is on the disk afterwards, even if the machine goes down. OSError: it cannot be written;
    UserError: see `path`.
    """
    place = path(file)
    with _plain_errors():
        if is_remote(place) or (place.exists() and not place.is_file()):  # such as /dev/stdout
            place.write_bytes(content)
        else:
            _write_aside(pathlib.Path(place), content, is_durable=is_durable)


def _write_aside(file: pathlib.Path, content: bytes, *, is_durable: bool) -> None:
    place = file.resolve()  # the target of a link
    draft = place.with_name(f".{place.name}.{os.getpid()}.{threading.get_ident()}")
    try:
        with draft.open("wb") as stream:
            stream.write(content)
            if is_durable:
                stream.flush()
                os.fsync(stream.fileno())
        if place.exists():
            draft.chmod(place.stat().st_mode)
        draft.replace(place)
    except OSError as error:
        raise OSError(error.errno, error.strerror, str(file)) from error
    finally:
        draft.unlink(missing_ok=True)


def exists(file: Place) -> bool:
    """Returns whether a file or folder exists; UserError if the store cannot be read."""
    with _readable(file):
        return path(file).exists()


def is_file(file: Place) -> bool:
    """Returns whether a file, and not a folder, exists; raises like `exists`."""
    with _readable(file):
        return path(file).is_file()


def modified_time(file: Place) -> datetime.datetime:
    """Returns when a file was last written; raises like `exists`."""
    with _readable(file):
        at_path = path(file)
        return at_path.fs.modified(at_path.path)


def make_folder(uri: str | upath.UPath) -> upath.UPath:
    """Returns a folder's path; creates it if the store has folders; raises like `write_bytes`."""
    folder = path(uri)
    with _plain_errors():
        folder.mkdir(parents=True, exist_ok=True)
    return folder


def copy_tree(source: pathlib.Path | upath.UPath, target: pathlib.Path | upath.UPath) -> None:
    """Copies a folder's files into another folder, created if needed; raises like `write_bytes`."""
    with _plain_errors():
        target.mkdir(parents=True, exist_ok=True)
        for item in source.iterdir():
            if item.is_dir():
                copy_tree(item, target / item.name)
            else:
                with item.open("rb") as content, (target / item.name).open("wb") as file:
                    shutil.copyfileobj(content, file)


def copy(source: pathlib.Path, folder: str) -> None:
    """Copies a local file into a folder; raises like `write_bytes`."""
    with _plain_errors():
        (path(folder) / source.name).write_bytes(source.read_bytes())


@contextlib.contextmanager
def local_folder(uri: str) -> Iterator[pathlib.Path]:
    """Yields a local folder whose files are in `uri` afterwards, even after an error.

    This is for output that can only be written to disks, such as that of processes. A local `uri`
    is that folder itself. Raises like `write_bytes`.
    """
    target = make_folder(uri)
    if not is_remote(uri):
        yield pathlib.Path(target)
        return
    with tempfile.TemporaryDirectory(prefix="tfx-perf-") as folder:
        try:
            yield pathlib.Path(folder)
        finally:
            copy_tree(pathlib.Path(folder), target)


@contextlib.contextmanager
def _plain_errors() -> Iterator[None]:
    """Turns whatever a driver raises into an `OSError`: each driver has its own exceptions."""
    try:
        yield
    except (OSError, errors.UserError):
        raise
    except Exception as error:
        reason = " ".join(str(error).split()) or type(error).__name__
        raise OSError(reason) from error


@contextlib.contextmanager
def _readable(file: Place) -> Iterator[None]:
    try:
        with _plain_errors():
            yield
    except OSError as error:
        raise errors.UserError(
            f"Expected a store that can be read. Received: uri={file} ({error})."
        ) from error
