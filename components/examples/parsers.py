"""Parsers for the kinds of records that TFX hands to a trainer."""

import functools
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import tensorflow as tf
from tensorflow_metadata.proto.v0 import schema_pb2
from tfx.components.util import tfxio_utils
from tfx.proto import example_gen_pb2
from tfx.types import artifact
from tfx_bsl.coders import tf_graph_record_decoder
from tfx_bsl.tfxio import tensor_representation_util

from tfx_perf.input import apply, source

_Features = dict[str, Any]
_Schema: TypeAlias = "schema_pb2.Schema | None"
# Turns serialised records into features.
_ParseFeatures = Callable[[tf.Tensor, _Schema], _Features]


def parser_for(examples: Sequence[artifact.Artifact]) -> apply.ParserFor | None:
    """Returns what makes the parser of the artifacts' records: `(schema, options) -> parse`.

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


def has_data_view(examples: Sequence[artifact.Artifact]) -> bool:
    """Returns whether a data view comes with the examples, which then need no schema."""
    return tfxio_utils.resolve_payload_format_and_data_view_uri(list(examples))[1] is not None


def _parser(parse_features: _ParseFeatures, schema: _Schema, options: Any) -> source.Parse:
    """Returns a parser that splits off `options.label_key`, if it is not None."""

    def parse(serialized: tf.Tensor) -> Any:
        # In here, so that a schema it cannot express costs the candidate, not the component.
        features = parse_features(serialized, schema)
        if options.label_key is None:
            return features
        label = features.pop(options.label_key)
        return features, label

    return parse


def _parse_examples(serialized: tf.Tensor, schema: Any) -> _Features:
    """Parses tf.Examples; a tensor's name and its column's differ if the schema says so."""
    types = {feature.name: feature.type for feature in schema.feature}
    config, name_by_key = {}, {}
    representations = tensor_representation_util.InferTensorRepresentationsFromMixedSchema(schema)
    for name, representation in representations.items():
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


def _parse_sequence_examples(serialized: tf.Tensor, schema: _Schema) -> _Features:
    """Parses tf.SequenceExamples into context and sequence features, side by side."""
    config = tensor_representation_util.CreateTfSequenceExampleParserConfig(schema)
    context, sequence, _ = tf.io.parse_sequence_example(serialized, *config)
    return {**context, **sequence}


def _data_view_parser(data_view: str, schema: _Schema, options: Any) -> source.Parse | None:
    """Returns the parser for the data view at a URI, None if its rows are not the records."""
    decoder = tf_graph_record_decoder.load_decoder(data_view)
    if decoder.record_index_tensor_name is not None:
        return None

    return _parser(lambda serialized, _: dict(decoder.decode_record(serialized)), schema, options)
