"""From Examples artifacts to a `RecordSource`, and from a plan to a dataset factory."""

import dataclasses
import functools
from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf
import tensorflow_transform as tft
from tensorflow_metadata.proto.v0 import schema_pb2
from tfx.components.util import tfxio_utils
from tfx.proto import example_gen_pb2
from tfx.types import artifact, artifact_utils
from tfx.utils import io_utils
from tfx_bsl.coders import tf_graph_record_decoder
from tfx_bsl.tfxio import dataset_options, tensor_representation_util

from tfx_perf import errors
from tfx_perf.input import apply, source
from tfx_perf.input import record as record_lib

_TELEMETRY = ["InputTuner"]

Examples = Sequence[artifact.Artifact]
_Features = dict[str, Any]
_Schema = schema_pb2.Schema | None
# Turns serialised records into the features that are not left out.
_ParseFeatures = Callable[[tf.Tensor, _Schema, frozenset[str]], _Features]


def plan_factory(examples: Examples, record: record_lib.TuningRecord) -> source.Factory:
    """Returns the factory that carries out a plan, for the user's unmodified `_input_fn`.

    Args:
        examples: the artifacts that the user's code reads.
        record: InputTuner's choice.

    Example:
        ```python
        accessor = fn_args.data_accessor
        tuned = accessor._replace(tf_dataset_factory=plan_factory(examples, record))
        ```
    """
    return apply.tuned_factory(
        default_factory(examples), record, parser_for=parser_for(examples)
    )


def default_factory(examples: Examples) -> source.Factory:
    """Returns TFX's own factory, the one that Trainer gives to the user's code."""
    return tfxio_utils.get_tf_dataset_factory_from_artifact(list(examples), _TELEMETRY)


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
    make_parser = parser_for(examples)
    return dataclasses.replace(
        found, options=options, parser=make_parser(schema, options) if make_parser else None
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
    if examples and _data_view(examples):
        return None
    raise errors.UserError(
        "Expected a schema, to parse the examples with. Received: schema=None and "
        "transform_graph=None. Give `transform_graph` for transformed examples, else `schema`."
    )


def parser_for(examples: Examples) -> apply.ParserFor | None:
    """Returns what makes the parser of the artifacts' records: `(schema, options) -> parser`.

    The parser does what TFXIO's factory does with the same kind of record, by tfx_bsl's own
    translation of a schema. It is None if only TFXIO can tell records and examples apart.

    Args:
        examples: tf.Examples, tf.SequenceExamples, or records with a data view.
    """
    payload, data_view = tfxio_utils.resolve_payload_format_and_data_view_uri(list(examples))
    if payload == example_gen_pb2.PayloadFormat.FORMAT_TF_EXAMPLE:
        return functools.partial(_parser, _parse_examples)
    if payload == example_gen_pb2.PayloadFormat.FORMAT_TF_SEQUENCE_EXAMPLE:
        return functools.partial(_parser, _parse_sequence_examples)
    if data_view is None:
        return None
    return functools.partial(_data_view_parser, data_view)


def _feature_names(unlabelled: source.RecordSource) -> list[str]:
    """Returns the names that TFXIO gives to the features, sorted."""
    try:
        return sorted(unlabelled.element_spec)
    except Exception as error:  # assertions, ValueErrors and others, depending on the format
        reason = (str(error).strip().splitlines() or [type(error).__name__])[0]
        raise errors.UserError(
            "Expected examples that TFXIO's dataset factory can read. Received: "
            f"file_patterns={list(unlabelled.file_patterns)} ({reason})."
        ) from error


def _data_view(examples: Examples) -> str | None:
    return tfxio_utils.resolve_payload_format_and_data_view_uri(list(examples))[1]


def _parser(parse_features: _ParseFeatures, schema: _Schema, options: Any) -> source.Parser:
    """Returns a parser that splits off `options.label_key`, if it is not None."""

    def parser(unused: frozenset[str]) -> source.Parse:
        def parse(serialized: tf.Tensor) -> Any:
            # In here, so that a schema it cannot express costs the candidate, not the component.
            features = parse_features(serialized, schema, unused)
            if options.label_key is None:
                return features
            label = features.pop(options.label_key)
            return features, label

        return parse

    return parser


def _parse_examples(serialized: tf.Tensor, schema: _Schema, unused: frozenset[str]) -> _Features:
    """Parses tf.Examples; a tensor's name and its column's differ if the schema says so."""
    types = {feature.name: feature.type for feature in schema.feature}
    config, name_by_key = {}, {}
    representations = tensor_representation_util.InferTensorRepresentationsFromMixedSchema(schema)
    for name in representations.keys() - unused:
        representation = representations[name]
        column = tensor_representation_util.GetSourceValueColumnFromTensorRepresentation(
            representation
        ).initial_step()
        kind = tensor_representation_util.CreateTfExampleParserConfig(
            representation, types[column]
        )
        # These name their columns themselves; a key of their own cannot clash with a column.
        names_columns = isinstance(kind, tf.io.SparseFeature | tf.io.RaggedFeature)
        key = f"{name}/{column}/" if names_columns else column
        config[key], name_by_key[key] = kind, name
    parsed = tf.io.parse_example(serialized, config)
    for value in parsed.values():
        if isinstance(value, tf.SparseTensor):
            # TFXIO's `parse_example_dataset` knows the number of rows; this op forgets it.
            value.set_shape(serialized.shape.concatenate(value.shape[1:]))
    return {name_by_key[key]: value for key, value in parsed.items()}


def _parse_sequence_examples(
    serialized: tf.Tensor, schema: _Schema, unused: frozenset[str]
) -> _Features:
    """Parses tf.SequenceExamples into context and sequence features, side by side."""
    context, sequence = (
        {name: kind for name, kind in config.items() if name not in unused}
        for config in tensor_representation_util.CreateTfSequenceExampleParserConfig(schema)
    )
    context, sequence, _ = tf.io.parse_sequence_example(serialized, context, sequence)
    return {**context, **sequence}


def _data_view_parser(data_view: str, schema: _Schema, options: Any) -> source.Parser | None:
    """Returns the parser for the data view at a URI, None if its rows are not the records."""
    decoder = tf_graph_record_decoder.load_decoder(data_view)
    if decoder.record_index_tensor_name is not None:
        return None

    def parse(serialized: tf.Tensor, schema: _Schema, unused: frozenset[str]) -> _Features:
        del schema
        decoded = decoder.decode_record(serialized)
        return {name: value for name, value in decoded.items() if name not in unused}

    return _parser(parse, schema, options)
