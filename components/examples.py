"""Sources, parsers and dataset factories of Examples artifacts."""

import dataclasses
import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

import tensorflow as tf
import tensorflow_transform as tft
from tensorflow_metadata.proto.v0 import schema_pb2
from tfx.components.util import tfxio_utils
from tfx.dsl.io import fileio
from tfx.proto import example_gen_pb2
from tfx.types import artifact, artifact_utils
from tfx.utils import io_utils
from tfx_bsl.coders import tf_graph_record_decoder
from tfx_bsl.tfxio import dataset_options, tensor_representation_util

from tfx_perf.core import errors
from tfx_perf.input import apply
from tfx_perf.input.candidates.source import Factory, Parse, RecordSource

_TELEMETRY = ["InputTuner"]

Examples = Sequence[artifact.Artifact]
_Features = dict[str, Any]
_Schema: TypeAlias = "schema_pb2.Schema | None"
# Turns serialized records into features.
_ParseFeatures = Callable[[tf.Tensor, _Schema], _Features]


def default_factory(examples: Examples) -> Factory:
    """Returns TFX's own factory, the one that Trainer gives to the user's code."""
    return tfxio_utils.get_tf_dataset_factory_from_artifact(list(examples), _TELEMETRY)


def by_rows_if_few_files(default: Factory, *, worker_count: int) -> Factory:
    """Returns TFX's factory, changed so that its datasets have data for every worker.

    A strategy shards datasets by file. With fewer files than workers, some workers would get
    nothing and `fit` would fail, so each worker then reads all files and takes its share of rows.
    """

    def factory(file_pattern: Any, *arguments: Any, **keywords: Any) -> tf.data.Dataset:
        data = default(file_pattern, *arguments, **keywords)
        patterns = [file_pattern] if isinstance(file_pattern, str) else file_pattern
        if sum(len(fileio.glob(pattern)) for pattern in patterns) >= worker_count:
            return data
        options = tf.data.Options()
        policy = tf.data.experimental.AutoShardPolicy.DATA
        options.experimental_distribute.auto_shard_policy = policy
        return data.with_options(options)

    return factory


def has_examples(patterns: Sequence[str], record_batch_factory: Any) -> bool:
    """Whether TFXIO finds an example in the files; any exception means that it cannot read them."""
    if not any(fileio.glob(pattern) for pattern in patterns):
        return False
    # A shuffle would read thousands of examples before it yields the first.
    options = dataset_options.RecordBatchesOptions(batch_size=1, num_epochs=1, shuffle=False)
    first = next(iter(record_batch_factory(list(patterns), options, None)), None)
    return first is not None and bool(first.num_rows)


def reading_obstacle(inputs: Mapping[str, Examples], *, split: str) -> str | None:
    """Returns why TFXIO cannot read a split; None if it can, or if there is no such split."""
    items = list(inputs["examples"])
    if any(split not in artifact_utils.decode_split_names(item.split_names) for item in items):
        return None
    try:
        factory = tfxio_utils.get_record_batch_factory_from_artifact(items, _TELEMETRY)
        has_examples(split_patterns(items, split), factory)
    except Exception as error:  # assertions, TensorFlow's and others, depending on the format
        return f"TFXIO cannot read the examples ({errors.in_one_line(error)})"
    _, data_view = tfxio_utils.resolve_payload_format_and_data_view_uri(items)
    if not (inputs.get("transform_graph") or inputs.get("schema") or data_view):
        return "the pipeline gives InputTuner neither transform_graph nor schema, to parse them by"
    return None


def split_patterns(examples: Examples, split: str) -> tuple[str, ...]:
    """Returns the patterns of a split's files, as TFX gives them to the user's code."""
    uris = artifact_utils.get_split_uris(list(examples), split)
    return tuple(map(io_utils.all_files_pattern, uris))


def record_source(
    examples: Examples, *, split: str, schema: _Schema, batch_size: int, label_key: str | None
) -> RecordSource:
    """Returns a split of the artifacts as a source, with TFXIO's default options."""
    for item in examples:
        splits = artifact_utils.decode_split_names(item.split_names)
        if split not in splits:
            raise errors.UserError(
                f"Expected one of the examples' splits {splits}. Received: split={split!r}. "
                "Set InputTuner(split=...)."
            )
    source = RecordSource(
        file_patterns=split_patterns(examples, split),
        default_factory=default_factory(examples),
        options=dataset_options.TensorFlowDatasetOptions(batch_size=batch_size),
        schema=schema,
    )
    if not source.files:
        raise errors.UserError(
            f"Expected files of examples. Received: split={split!r}, which has none in "
            f"{', '.join(item.uri for item in examples)}. Check the upstream component."
        )
    try:
        names = sorted(source.element_spec)
    except Exception as error:  # assertions, ValueErrors and others, depending on the format
        raise errors.UserError(
            "Expected examples that TFXIO's dataset factory can read. Received: "
            f"file_patterns={list(source.file_patterns)} ({errors.in_one_line(error)})."
        ) from error
    if label_key is not None and label_key not in names:
        raise errors.UserError(
            f"Expected one of the features {names}. Received: label_key={label_key!r}. "
            "Transformed features often have a suffix such as `_xf`."
        )
    options = source.options._replace(label_key=label_key)
    make_parse = parser_for(examples)
    return dataclasses.replace(
        source, options=options, parse=make_parse(schema, options) if make_parse else None
    )


def read_schema(inputs: Mapping[str, Examples]) -> _Schema:
    """Returns the schema, the transformed one if it exists; None without both."""
    if transform_graph := inputs.get("transform_graph"):
        output = tft.TFTransformOutput(artifact_utils.get_single_uri(list(transform_graph)))
        return output.transformed_metadata.schema
    if schema := inputs.get("schema"):
        folder = artifact_utils.get_single_uri(list(schema))
        return io_utils.SchemaReader().read(io_utils.get_only_uri_in_dir(folder))
    return None


def parser_for(examples: Examples) -> apply.ParserFor | None:
    """Returns a function `(schema, options) -> parse` that makes the parser of the records.

    The parser does what TFXIO's factory does, with tfx_bsl's own translation of a schema. None if
    only TFXIO can turn the records into examples.
    """
    payload, data_view = tfxio_utils.resolve_payload_format_and_data_view_uri(list(examples))
    if payload == example_gen_pb2.PayloadFormat.FORMAT_TF_EXAMPLE:
        return functools.partial(_parser, _parse_examples)
    if payload == example_gen_pb2.PayloadFormat.FORMAT_TF_SEQUENCE_EXAMPLE:
        return functools.partial(_parser, _parse_sequence_examples)
    return functools.partial(_data_view_parser, data_view) if data_view is not None else None


def _parser(parse_features: _ParseFeatures, schema: _Schema, options: Any) -> Parse:
    def parse(serialized: tf.Tensor) -> Any:
        # Translates the schema here, so that a failure costs the candidate, not the component.
        features = parse_features(serialized, schema)
        if options.label_key is None:
            return features
        label = features.pop(options.label_key)
        return features, label

    return parse


def _parse_examples(serialized: tf.Tensor, schema: Any) -> _Features:
    """Parses tf.Examples; the schema may give a tensor another name than its column."""
    types = {feature.name: feature.type for feature in schema.feature}
    config, name_by_key = {}, {}
    representations = tensor_representation_util.InferTensorRepresentationsFromMixedSchema(schema)
    for name, representation in representations.items():
        column = tensor_representation_util.GetSourceValueColumnFromTensorRepresentation(
            representation
        ).initial_step()
        kind = tensor_representation_util.CreateTfExampleParserConfig(representation, types[column])
        # These kinds name their columns themselves; a separate key cannot clash with a column.
        names_columns = isinstance(kind, tf.io.SparseFeature | tf.io.RaggedFeature)
        key = f"{name}/{column}/" if names_columns else column
        config[key], name_by_key[key] = kind, name
    parsed = tf.io.parse_example(serialized, config)
    for value in parsed.values():
        if isinstance(value, tf.SparseTensor):
            # TFXIO's `parse_example_dataset` knows the number of rows; this op forgets it.
            value.set_shape(serialized.shape.concatenate(value.shape[1:]))
    return {name_by_key[key]: value for key, value in parsed.items()}


def _parse_sequence_examples(serialized: tf.Tensor, schema: _Schema) -> _Features:
    config = tensor_representation_util.CreateTfSequenceExampleParserConfig(schema)
    context, sequence, _ = tf.io.parse_sequence_example(serialized, *config)
    return {**context, **sequence}


def _data_view_parser(data_view: str, schema: _Schema, options: Any) -> Parse | None:
    """Returns the parser for the data view at a URI, None if its rows are not the records."""
    decoder = tf_graph_record_decoder.load_decoder(data_view)
    if decoder.record_index_tensor_name is not None:
        return None
    return _parser(lambda serialized, _: dict(decoder.decode_record(serialized)), schema, options)
