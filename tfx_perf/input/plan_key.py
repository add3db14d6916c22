"""What a plan depends on: with the same key, measuring again would find the same."""

import hashlib
import os
from collections.abc import Iterable

import tensorflow as tf

from tfx_perf import fingerprint
from tfx_perf.hardware import identity
from tfx_perf.input import source as source_lib
from tfx_perf.settings.input import InputSettings

_SAMPLED_BYTES = 64 * 2**10


def plan_key(
    source: source_lib.RecordSource, *, settings: InputSettings, training_digest: str
) -> dict[str, str]:
    """Returns the parts of the key by name.

    Nothing is read but both ends of each file, so that it takes seconds.

    Args:
        source: the data. Where its files are does not count, so that data which were written
            again are recognised.
        settings: the settings of the search.
        training_digest: of the code that consumes the data; empty if there is none.
    """
    return {
        "data": fingerprint.digest("\n".join(_fingerprints(source.files)).encode()),
        "features": fingerprint.digest(
            f"{source.element_spec}\n{source.options.label_key}".encode()
        ),
        **identity.identity("tfx-bsl"),
        "settings": settings.model_dump_json(),
        "training": training_digest,
    }


def _fingerprints(files: Iterable[str]) -> list[str]:
    """Returns one a file: name, size, and a digest of its first and last 64 KiB."""
    return sorted(_fingerprint(path) for path in files)


def _fingerprint(path: str) -> str:
    digest = hashlib.sha256()
    with tf.io.gfile.GFile(path, "rb") as file:
        size_bytes = file.size()
        digest.update(file.read(_SAMPLED_BYTES))
        file.seek(max(0, size_bytes - _SAMPLED_BYTES))
        digest.update(file.read(_SAMPLED_BYTES))
    return f"{os.path.basename(path)} {size_bytes} {digest.hexdigest()}"
