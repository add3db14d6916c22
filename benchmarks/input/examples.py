"""Record files as the artifact that a TFX component would receive."""

from tfx.components.util import examples_utils
from tfx.proto import example_gen_pb2
from tfx.types import artifact, artifact_utils, standard_artifacts

from benchmarks.input import layout


def artifact_of(uri: str) -> artifact.Artifact:
    """Returns the `Examples` artifact of a folder that `layout.Layouts` has written."""
    examples = standard_artifacts.Examples()
    examples.uri = uri
    examples.split_names = artifact_utils.encode_split_names([layout.SPLIT])
    examples_utils.set_payload_format(examples, example_gen_pb2.PayloadFormat.FORMAT_TF_EXAMPLE)
    return examples
