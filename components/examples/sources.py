"""From Examples artifacts to a `RecordSource`, and from a plan to a dataset factory."""

import dataclasses
from collections.abc import Sequence
from typing import Any

import tensorflow_transform as tft
from tensorflow_metadata.proto.v0 import schema_pb2
from tfx.components.util import tfxio_utils
from tfx.dsl.io import fileio
from tfx.types import artifact, artifact_utils
from tfx.utils import io_utils
from tfx_bsl.tfxio import dataset_options

from tfx_perf import errors
from tfx_perf.components.examples import parsers
from tfx_perf.input import apply, source
from tfx_perf.input import record as record_lib

_TELEMETRY = ["InputTuner"]

Examples = Sequence[artifact.Artifact]


def plan_factory(
    examples: Examples, record: record_lib.TuningRecord, *, default: source.Factory | None = None
) -> source.Factory:
    """Returns the factory that carries out a plan, for the user's unmodified `_input_fn`.

    Args:
        examples: the artifacts that the user's code reads.
        record: InputTuner's choice.
        default: what reads where the plan does not; None: TFX's own factory.

    Example:
        ```python
        accessor = fn_args.data_accessor
        tuned = accessor._replace(tf_dataset_factory=plan_factory(examples, record))
        ```
    """
    return apply.tuned_factory(
        default or default_factory(examples), record, parser_for=parsers.parser_for(examples)
    )


def default_factory(examples: Examples) -> source.Factory:
    """Returns TFX's own factory, the one that Trainer gives to the user's code."""
    return tfxio_utils.get_tf_dataset_factory_from_artifact(list(examples), _TELEMETRY)


def has_examples(patterns: Sequence[str], record_batch_factory: Any) -> bool:
    """Returns whether TFXIO finds an example in files.

    Args:
        patterns: of the files.
        record_batch_factory: of a `DataAccessor`.

    Raises:
        Exception: of any kind, TFXIO cannot read these files.
    """
    if not any(fileio.glob(pattern) for pattern in patterns):
        return False
    # A shuffle would read thousands of them for the first one.
    options = dataset_options.RecordBatchesOptions(batch_size=1, num_epochs=1, shuffle=False)
    first = next(iter(record_batch_factory(list(patterns), options, None)), None)
    return first is not None and bool(first.num_rows)


def reading_obstacle(examples: Examples, *, split: str) -> str | None:
    """Returns why TFXIO cannot read a split, which the training code may; None if it can.

    Also None of a split that does not exist.
    """
    items = list(examples)
    if any(split not in artifact_utils.decode_split_names(item.split_names) for item in items):
        return None
    patterns = [
        io_utils.all_files_pattern(uri) for uri in artifact_utils.get_split_uris(items, split)
    ]
    try:
        has_examples(
            patterns, tfxio_utils.get_record_batch_factory_from_artifact(items, _TELEMETRY)
        )
    except Exception as error:  # assertions, TensorFlow's and others, depending on the format
        return f"TFXIO cannot read the examples ({_in_one_line(error)})"
    return None


def record_source(
    examples: Examples,
    *,
    split: str,
    schema: schema_pb2.Schema | None,
    batch_size: int,
    label_key: str | None,
) -> source.RecordSource:
    """Returns a split of the artifacts as a source, with TFXIO's default options.

    Raises:
        UserError: the split, its files or the label do not exist, or TFXIO itself cannot make a
            dataset of the examples.
    """
    for item in examples:
        splits = artifact_utils.decode_split_names(item.split_names)
        if split not in splits:
            raise errors.UserError(
                f"Expected one of the examples' splits {splits}. Received: split={split!r}. "
                "Set InputTuner(split=...)."
            )
    found = source.RecordSource(
        file_patterns=tuple(
            io_utils.all_files_pattern(uri)
            for uri in artifact_utils.get_split_uris(list(examples), split)
        ),
        default_factory=default_factory(examples),
        options=dataset_options.TensorFlowDatasetOptions(batch_size=batch_size),
        schema=schema,
    )
    if not found.files:
        raise errors.UserError(
            f"Expected files of examples. Received: split={split!r}, which has none in "
            f"{', '.join(item.uri for item in examples)}. Check the component before."
        )
    names = _feature_names(found)
    if label_key is not None and label_key not in names:
        raise errors.UserError(
            f"Expected one of the features {names}. Received: label_key={label_key!r}. "
            "Transformed features often have a suffix such as `_xf`."
        )
    options = found.options._replace(label_key=label_key)
    make_parse = parsers.parser_for(examples)
    return dataclasses.replace(
        found, options=options, parse=make_parse(schema, options) if make_parse else None
    )


def read_schema(
    *,
    transform_graph: Examples | None,
    schema: Examples | None,
    examples: Examples = (),
) -> schema_pb2.Schema | None:
    """Returns the schema of the examples: the transformed one if there is a transform graph.

    Args:
        transform_graph: of Transform, or None or empty.
        schema: of raw examples, or None or empty.
        examples: those with a data view need no schema, None is returned for them.

    Raises:
        UserError: neither is given, and the examples need one.
    """
    if transform_graph:
        output = tft.TFTransformOutput(artifact_utils.get_single_uri(list(transform_graph)))
        return output.transformed_metadata.schema
    if schema:
        folder = artifact_utils.get_single_uri(list(schema))
        return io_utils.SchemaReader().read(io_utils.get_only_uri_in_dir(folder))
    if examples and parsers.has_data_view(examples):
        return None
    raise errors.UserError(
        "Expected a schema, to parse the examples with. Received: schema=None and "
        "transform_graph=None. Give `transform_graph` for transformed examples, else `schema`."
    )


def _feature_names(unlabelled: source.RecordSource) -> list[str]:
    """Returns the names that TFXIO gives to the features, sorted."""
    try:
        return sorted(unlabelled.element_spec)
    except Exception as error:  # assertions, ValueErrors and others, depending on the format
        raise errors.UserError(
            "Expected examples that TFXIO's dataset factory can read. Received: "
            f"file_patterns={list(unlabelled.file_patterns)} ({_in_one_line(error)})."
        ) from error


def _in_one_line(error: Exception) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0]
