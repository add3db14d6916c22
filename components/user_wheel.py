"""The user's module as TFX packages it: unpacked once a machine instead of installed per process.

TFX runs pip on a `module_file`'s wheel in each process, for more than a second of CPU each time.
"""

import contextlib
import email
import hashlib
import os
import pathlib
import sys
import tempfile
import zipfile
from collections.abc import Iterator

from tfx.utils import io_utils

from tfx_perf.core import storage

_OTHERS = 0o077  # of a mode: all rights but the owner's


def unpacked(wheel: str) -> pathlib.Path | None:
    """Returns a user's folder with the content of a wheel; None if it takes pip to install it."""
    path = pathlib.Path(io_utils.ensure_local(wheel))
    try:
        root = _own_folder()
        digest = hashlib.sha256(path.read_bytes()).hexdigest()
        with zipfile.ZipFile(path) as archive:
            if root is None or not _is_plain(archive):
                return None
            folder = root / digest
            for name in archive.namelist():
                _put(folder / name, archive.read(name))
    except (OSError, zipfile.BadZipFile):
        return None  # pip says what is wrong, or can do it
    return folder


@contextlib.contextmanager
def importable(folder: pathlib.Path) -> Iterator[None]:
    """Lets this process and its children import from a folder, as TFX does with its own."""
    path, variable = sys.path, os.environ.get("PYTHONPATH")
    sys.path = [*path, str(folder)]
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, (variable, str(folder))))
    try:
        yield
    finally:
        sys.path = path
        if variable is None:
            del os.environ["PYTHONPATH"]
        else:
            os.environ["PYTHONPATH"] = variable


def _own_folder() -> pathlib.Path | None:
    """Returns a folder that nobody else can write to; None if another one has taken the name."""
    folder = pathlib.Path(tempfile.gettempdir(), f"tfx-perf-modules-{os.getuid()}")
    with contextlib.suppress(FileExistsError):
        folder.mkdir(mode=0o700)
    found = folder.lstat()
    is_ours = folder.is_dir() and not folder.is_symlink() and found.st_uid == os.getuid()
    return folder if is_ours and not found.st_mode & _OTHERS else None


def _is_plain(archive: zipfile.ZipFile) -> bool:
    """Whether pip would only unpack it: pure Python without requirements."""
    names = archive.namelist()
    infos = {name.partition("/")[0] for name in names if ".dist-info/" in name}
    info = min(infos, default="")
    if len(infos) != 1 or not {f"{info}/WHEEL", f"{info}/METADATA"} <= set(names):
        return False
    wheel = email.message_from_bytes(archive.read(f"{info}/WHEEL"))
    metadata = email.message_from_bytes(archive.read(f"{info}/METADATA"))
    return (
        wheel["Root-Is-Purelib"] == "true"
        and all(tag.endswith("-none-any") for tag in wheel.get_all("Tag", ["unknown"]))
        and not metadata.get_all("Requires-Dist")
        and all(_is_inside(name) for name in names)
    )


def _is_inside(name: str) -> bool:
    parts = pathlib.PurePosixPath(name).parts
    # Files in `.data` go elsewhere; a name that ends with a slash is a folder.
    return not (
        name.endswith("/")
        or name.startswith("/")
        or ".." in parts
        or parts[0].endswith(".data")
    )


def _put(path: pathlib.Path, content: bytes) -> None:
    """Writes a file that nobody sees half written; a system may have cleared it away."""
    if path.is_file() and path.read_bytes() == content:
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    storage.write_bytes(path, content)
