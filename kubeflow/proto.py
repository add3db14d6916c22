"""What the kfp SDK says of a compiled pipeline."""

import pathlib
from collections.abc import Mapping, Sequence
from typing import Any

from google.protobuf import json_format

from tfx_perf import errors


def problems(documents: Sequence[Mapping[str, Any]]) -> list[str]:
    """Returns what the server's strict parse would refuse; empty if nothing.

    Args:
        documents: the YAML documents of a compiled pipeline.
    """
    from kfp.pipeline_spec import pipeline_spec_pb2

    found = []
    kinds = (pipeline_spec_pb2.PipelineSpec, pipeline_spec_pb2.PlatformSpec)
    for kind, document in zip(kinds, documents, strict=False):
        try:
            json_format.ParseDict(document, kind(), ignore_unknown_fields=False)
        except json_format.ParseError as error:
            found.append(f"not a {kind.__name__}: {' '.join(str(error).split())}")
    if not found:
        try:
            deployment = pipeline_spec_pb2.PipelineDeploymentConfig()
            json_format.ParseDict(documents[0]["deploymentSpec"], deployment)
        except (KeyError, json_format.ParseError) as error:
            found.append(f"not a PipelineDeploymentConfig: {' '.join(str(error).split())}")
    return found


def check_loads(path: pathlib.Path) -> None:
    """Checks that the SDK can load the file, as `kfp.Client` does before it uploads.

    Raises:
        UserError: it cannot.
    """
    import kfp.components

    try:
        kfp.components.load_component_from_file(str(path))
    except Exception as error:  # whatever the SDK raises on what it does not understand
        raise errors.UserError(
            f"Expected a pipeline that the kfp SDK can load. Received: {path} "
            f"({type(error).__name__}: {' '.join(str(error).split())})."
        ) from error
