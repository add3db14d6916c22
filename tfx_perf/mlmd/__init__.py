"""Recorded runs in ML Metadata, which is imported only when used: scripts do not need it."""

import importlib
import importlib.util
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ml_metadata import errors as errors
    from ml_metadata.metadata_store.metadata_store import MetadataStore as MetadataStore
    from ml_metadata.proto import metadata_store_pb2

    proto = metadata_store_pb2

IS_INSTALLED = importlib.util.find_spec("ml_metadata") is not None

_MODULES = {
    "errors": "ml_metadata.errors",
    "MetadataStore": "ml_metadata.metadata_store.metadata_store",
    "proto": "ml_metadata.proto.metadata_store_pb2",
}


def __getattr__(name: str) -> Any:
    """Returns a part of ML Metadata by its name in this package."""
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module = importlib.import_module(_MODULES[name])
    return module.MetadataStore if name == "MetadataStore" else module
