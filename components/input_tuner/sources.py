"""From Examples artifacts to a `RecordSource`, and from a plan to a dataset factory."""

from collections.abc import Sequence
from typing import Any

import tensorflow as tf
import tensorflow_transform as tft
from tensorflow_metadata.proto.v0 import schema_pb2
from tensorflow_transform.tf_metadata import schema_utils
from tfx.components.util import examples_utils, tfxio_utils
from tfx.proto import example_gen_pb2
from tfx.types import artifact, artifact_utils
from tfx.utils import io_utils
from tfx_bsl.tfxio import dataset_options

from tfx_perf import errors
from tfx_perf.input import apply, source
from tfx_perf.input import record as record_lib

_TELEMETRY = ["InputTuner"]

_Examples = Sequence[artifact.Artifact]


def plan_factory(examples: _Examples, record: record_lib.TuningRecord) -> source.Factory:
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
    parser_for = parser_of if _hold_tf_examples(examples) else None
    return apply.tuned_factory(default_factory(examples), record, parser_for=parser_for)


def default_factory(examples: _Examples) -> source.Factory:
    """Returns TFX's own factory, the one that Trainer gives to the user's code."""
    return tfxio_utils.get_tf_dataset_factory_from_artifact(list(examples), _TELEMETRY)


def record_source(
    examples: _Examples,
    *,
    split: str,
    schema: schema_pb2.Schema,
    batch_size: int,
    label_key: str | None,
) -> source.RecordSource:
    """Returns a split of the artifacts as a source, with TFXIO's default options.

    Raises:
        UserError: the split, its files or the label do not exist.
    """
    for item in examples:
        splits = artifact_utils.decode_split_names(item.split_names)
        if split not in splits:
            raise errors.UserError(
                f"Expected one of the examples' splits {splits}. Received: split={split!r}. "
                "Set InputTuner(split=...)."
            )
    names = sorted(feature.name for feature in schema.feature)
    if label_key is not None and label_key not in names:
        raise errors.UserError(
            f"Expected one of the schema's features {names}. Received: label_key={label_key!r}. "
            "Transformed features often have a suffix such as `_xf`."
        )
    options = dataset_options.TensorFlowDatasetOptions(batch_size=batch_size, label_key=label_key)
    found = source.RecordSource(
        file_patterns=tuple(
            io_utils.all_files_pattern(uri)
            for uri in artifact_utils.get_split_uris(list(examples), split)
        ),
        default_factory=default_factory(examples),
        options=options,
        schema=schema,
        parser=parser_of(schema, options) if _hold_tf_examples(examples) else None,
    )
    if not found.files:
        raise errors.UserError(
            f"Expected files of examples. Received: split={split!r}, which has none in "
            f"{', '.join(item.uri for item in examples)}. Check the component before."
        )
    return found


def read_schema(
    *, transform_graph: _Examples | None, schema: _Examples | None
) -> schema_pb2.Schema:
    """Returns the schema of the examples: the transformed one if there is a transform graph.

    Raises:
        UserError: neither is given.
    """
    if transform_graph:
        output = tft.TFTransformOutput(artifact_utils.get_single_uri(list(transform_graph)))
        return output.transformed_metadata.schema
    if schema:
        folder = artifact_utils.get_single_uri(list(schema))
        return io_utils.SchemaReader().read(io_utils.get_only_uri_in_dir(folder))
    raise errors.UserError(
        "Expected a schema, to parse the examples with. Received: schema=None and "
        "transform_graph=None. Give `transform_graph` for transformed examples, else `schema`."
    )


def parser_of(schema: schema_pb2.Schema, options: Any) -> source.Parser:
    """Returns the parser of serialised tf.Examples that does what TFXIO's factory does.

    Args:
        schema: of the records.
        options: with the `label_key` to split off, or None.
    """

    def parser(unused: frozenset[str]) -> source.Parse:
        def parse(serialized: tf.Tensor) -> Any:
            # In here, so that a schema it cannot express costs the candidate, not the component.
            spec = schema_utils.schema_as_feature_spec(schema).feature_spec
            used = {name: kind for name, kind in spec.items() if name not in unused}
            features = tf.io.parse_example(serialized, used)
            if options.label_key is None:
                return features
            label = features.pop(options.label_key)
            return features, label

        return parse

    return parser


def _hold_tf_examples(examples: _Examples) -> bool:
    return all(
        examples_utils.get_payload_format(item)
        == example_gen_pb2.PayloadFormat.FORMAT_TF_EXAMPLE
        for item in examples
    )
