"""A pipeline in TFX's intermediate representation, as text and back."""

import base64
import gzip
import pathlib
from collections.abc import Iterator

from google.protobuf import json_format

# Imported because a pipeline's deployment_config is made of their messages.
from tfx.proto.orchestration import (  # noqa: F401
    executable_spec_pb2,
    local_deployment_config_pb2,
    metadata_pb2,
    pipeline_pb2,
)

from tfx_perf import errors

_DATA_PREFIX = "data:application/gzip;base64,"


def nodes_of(ir: pipeline_pb2.Pipeline) -> Iterator[pipeline_pb2.PipelineNode]:
    """Yields the nodes in topological order."""
    for entry in ir.nodes:
        yield entry.pipeline_node


def as_json(ir: pipeline_pb2.Pipeline) -> str:
    """Returns the pipeline as JSON."""
    return json_format.MessageToJson(ir, sort_keys=True) + "\n"


def as_data_uri(ir: pipeline_pb2.Pipeline, *, node_id: str) -> str:
    """Returns the pipeline with a single node, small enough for an environment variable.

    Base64 has no braces, so Airflow's templates leave it alone.
    """
    single = pipeline_pb2.Pipeline()
    single.CopyFrom(ir)
    del single.nodes[:]
    single.nodes.extend(entry for entry in ir.nodes if entry.pipeline_node.node_info.id == node_id)
    text = json_format.MessageToJson(single, indent=None)
    return _DATA_PREFIX + base64.b64encode(gzip.compress(text.encode(), mtime=0)).decode()


def read(source: str) -> pipeline_pb2.Pipeline:
    """Reads what `as_json` or `as_data_uri` made.

    Args:
        source: path of the JSON, or the data URI.

    Raises:
        UserError: there is no such file, or it holds something else.
    """
    try:
        if source.startswith(_DATA_PREFIX):
            text = gzip.decompress(base64.b64decode(source.removeprefix(_DATA_PREFIX))).decode()
        else:
            text = pathlib.Path(source).read_text("utf-8")
        return json_format.Parse(text, pipeline_pb2.Pipeline())
    except (OSError, ValueError, json_format.ParseError) as error:
        reason = " ".join(str(error).split())[:200]
        raise errors.UserError(
            f"Expected a pipeline that was deployed to Airflow. Received: pipeline={source[:200]} "
            f"({reason}); deploy it again."
        ) from error
