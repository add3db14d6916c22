"""Runs on record in ML Metadata."""

import importlib.util

IS_INSTALLED = importlib.util.find_spec("ml_metadata") is not None
"""Runs of scripts are read without."""

if IS_INSTALLED:
    from ml_metadata import errors as errors
    from ml_metadata.metadata_store.metadata_store import MetadataStore as MetadataStore
    from ml_metadata.proto import metadata_store_pb2

    proto = metadata_store_pb2
