"""Cache keys: named strings that say what a measurement holds for.

A plan is reused only if every part of its key agrees. Likewise, a run's environment names what its
speed and memory depend on besides the code under test: a step on other hardware or of another model
is neither a regression nor an improvement, so the gate compares only runs whose environments agree
in every field.
"""

import hashlib
import importlib.util
import itertools
import pathlib
import string
import zipfile
from collections.abc import Iterable, Iterator, Mapping
from importlib import machinery
from typing import Any

from tfx_perf.core import errors

ABSENT = "(not recorded)"

_DIGEST_LENGTH = 16  # hexadecimal digits
_MOST_DESCRIBED = 5  # changes in a phrase
_SAMPLED_BYTES = 64 * 2**10


def digest(*parts: bytes) -> str:
    """Returns 16 hexadecimal digits for bytes that are too long to be compared as a whole."""
    hashed = hashlib.sha256()
    for part in parts:
        hashed.update(part)
    return hashed.hexdigest()[:_DIGEST_LENGTH]


def differences(a: Mapping[str, str], b: Mapping[str, str]) -> dict[str, tuple[str, str]]:
    """Returns the parts in which two keys differ, with both values; empty means comparable.

    A part that only one of them has differs: what was not recorded cannot be known to agree.
    """
    return {
        field: (a.get(field, ABSENT), b.get(field, ABSENT))
        for field in sorted({*a, *b})
        if a.get(field, ABSENT) != b.get(field, ABSENT)
    }


def describe(changes: Mapping[str, tuple[str, str]]) -> str:
    """Returns the first changes as a phrase, e.g. `host a -> b; code has changed; and 3 more`."""
    words = [
        f"{field} {'has changed' if all(map(_is_digest, values)) else ' -> '.join(values)}"
        for field, values in changes.items()
    ]
    rest = [f"and {len(words) - _MOST_DESCRIBED} more"] if words[_MOST_DESCRIBED:] else []
    return "; ".join([*words[:_MOST_DESCRIBED], *rest])


def _is_digest(value: str) -> bool:
    return len(value) == _DIGEST_LENGTH and not {*value} - {*string.hexdigits}


def of_files(files: Iterable[str]) -> str:
    """Returns a digest of data files, given by paths or URLs, independent of their location.

    Only the name, size, and first and last 64 KiB of each file count, so that it takes seconds.
    """
    return digest("\n".join(sorted(map(_of_file, files))).encode())


def _of_file(file: str) -> str:
    import tensorflow as tf

    with tf.io.gfile.GFile(file, "rb") as stream:
        size_bytes = stream.size()
        ends = hashlib.sha256(stream.read(_SAMPLED_BYTES))
        stream.seek(max(0, size_bytes - _SAMPLED_BYTES))
        ends.update(stream.read(_SAMPLED_BYTES))
    return f"{pathlib.PurePath(file).name} {size_bytes} {ends.hexdigest()}"


def of_source(function: str) -> str:
    """Returns a digest of the source of the top-level package or module that a function is in.

    An import path stays the same when the code behind it is edited; the digest does not. UserError:
    there is no such module.
    """
    importlib.invalidate_caches()  # finders may know an archive as it was before an edit
    name = function.partition(".")[0]
    # A script has no spec, and another process could not import it.
    spec = None if name == "__main__" else importlib.util.find_spec(name)
    if spec is None:
        raise errors.UserError(
            f"Expected the import path of a function. Received: {function}, but there is no "
            f"module {name} on PYTHONPATH."
        )
    # The name and length say where a file ends and the next begins.
    parts = ((f"{file}\0{len(data)}\0".encode(), data) for file, data in _files(spec))
    return digest(*itertools.chain.from_iterable(parts))


def _files(spec: machinery.ModuleSpec) -> list[tuple[str, bytes]]:
    folders = map(pathlib.Path, spec.submodule_search_locations or ())
    files = [file for folder in folders for file in sorted(_modules_below(folder))]
    if files or not spec.has_location or spec.origin is None:
        return files
    origin = pathlib.Path(spec.origin)
    loader: Any = spec.loader  # for a zip archive
    data = origin.read_bytes() if origin.is_file() else loader.get_data(spec.origin)
    return [(origin.name, data)]


def _modules_below(folder: pathlib.Path) -> Iterator[tuple[str, bytes]]:
    """Yields the relative name and the content of each module; the folder may be in an archive."""
    for file in folder.rglob("*.py"):
        yield file.relative_to(folder).as_posix(), file.read_bytes()
    archive = next((parent for parent in folder.parents if zipfile.is_zipfile(parent)), None)
    if archive is None:
        return
    within = f"{folder.relative_to(archive).as_posix()}/"
    with zipfile.ZipFile(archive) as zipped:
        for name in zipped.namelist():
            if name.startswith(within) and name.endswith(".py"):
                yield name.removeprefix(within), zipped.read(name)
