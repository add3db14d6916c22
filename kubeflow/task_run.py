"""Runs a TFX executor for one task, like TFX's own container entrypoint, but without its faults.

TFX's (`kubeflow_v2_run_executor.py`) fails on booleans, NaN and unset properties after the work is
done, never runs ExampleGen's driver, and does not tell the executor which run it belongs to.
"""

import argparse
import logging
import math
import pathlib
import tempfile
from typing import Any

from google.protobuf import json_format
from kfp.pipeline_spec import pipeline_spec_pb2
from ml_metadata.proto import metadata_store_pb2
from tfx.dsl.components.base import base_beam_executor, base_executor
from tfx.dsl.io import fileio
from tfx.orchestration.kubeflow.v2.container import kubeflow_v2_entrypoint_utils
from tfx.orchestration.portable import outputs_utils
from tfx.proto.orchestration import pipeline_pb2
from tfx.types import artifact_utils, standard_artifacts, value_artifact
from tfx.utils import import_utils

from tfx_perf.components.types import Artifacts

_LOGGER = logging.getLogger(__name__)

_Json = dict[str, Any]


class TaskRun:
    """One run of an executor, on an `ExecutorInput` with types and local paths."""

    def __init__(
        self,
        executor_input: _Json,
        inputs_spec: _Json,
        arguments: argparse.Namespace,
        *,
        beam_arguments: list[str],
    ) -> None:
        self._input = json_format.ParseDict(
            executor_input, pipeline_spec_pb2.ExecutorInput(), ignore_unknown_fields=True
        )
        self._inputs_spec = json_format.ParseDict(
            inputs_spec, pipeline_spec_pb2.ComponentInputsSpec(), ignore_unknown_fields=True
        )
        self._arguments = arguments
        self._beam_arguments = beam_arguments

    def run(self, run_id: str | None) -> tuple[Artifacts, _Json]:
        """Runs the executor, and ExampleGen's driver; returns outputs and the `ExecutorOutput`."""
        if self._arguments.example_gen_driver:
            self._run_driver()
        name_of_id: dict[int, str] = {}
        parse = kubeflow_v2_entrypoint_utils.parse_raw_artifact_dict
        inputs = parse(self._input.inputs.artifacts, name_of_id)
        outputs = parse(self._input.outputs.artifacts, name_of_id)
        properties = kubeflow_v2_entrypoint_utils.parse_execution_properties(
            self._input.inputs.parameter_values, self._input.inputs.parameters, self._inputs_spec
        )
        _make_folders(inputs, outputs)
        with tempfile.TemporaryDirectory(prefix="tfx-task-") as folder:
            self._executor(folder, run_id=run_id).Do(inputs, outputs, properties)
        outputs_utils.tag_output_artifacts_with_version(outputs)
        for items in outputs.values():
            for item in items:
                _make_recordable(item.mlmd_artifact)
                if isinstance(item, standard_artifacts.ModelBlessing):
                    kubeflow_v2_entrypoint_utils.refactor_model_blessing(item, name_of_id)
        return outputs, self._described(outputs, name_of_id)

    def _run_driver(self) -> None:
        """Resolves span and version of the input files, as the other runners' driver does."""
        # Imported here, because it parses command lines.
        from tfx.orchestration.kubeflow.v2.file_based_example_gen import driver

        driver._run_driver(self._input, self._inputs_spec)  # the only entry without a process
        written = pathlib.Path(self._input.outputs.output_file)
        result = json_format.Parse(written.read_text(), pipeline_spec_pb2.ExecutorOutput())
        for key, value in result.parameter_values.items():
            self._input.inputs.parameter_values[key].CopyFrom(value)
        for key, artifacts in result.artifacts.items():
            target = self._input.outputs.artifacts[key].artifacts[0]
            target.metadata.MergeFrom(artifacts.artifacts[0].metadata)

    def _executor(self, folder: str, *, run_id: str | None) -> base_executor.BaseExecutor:
        executor_class = import_utils.import_class_by_path(self._arguments.executor_class_path)
        shared = {
            "tmp_dir": folder,
            "unique_id": "1",
            "pipeline_node": pipeline_pb2.PipelineNode(
                node_info=pipeline_pb2.NodeInfo(id=self._arguments.node_id)
            ),
            "pipeline_info": pipeline_pb2.PipelineInfo(id=self._arguments.pipeline_name),
            "pipeline_run_id": run_id,
        }
        base, flags = base_executor.BaseExecutor, "extra_flags"
        if issubclass(executor_class, base_beam_executor.BaseBeamExecutor):
            base, flags = base_beam_executor.BaseBeamExecutor, "beam_pipeline_args"
        return executor_class(base.Context(**{flags: self._beam_arguments}, **shared))

    def _described(self, outputs: Artifacts, name_of_id: dict[int, str]) -> _Json:
        output = pipeline_spec_pb2.ExecutorOutput()
        translated = kubeflow_v2_entrypoint_utils.translate_executor_output(outputs, name_of_id)
        for key, artifacts in translated.items():
            output.artifacts[key].CopyFrom(artifacts)
        described = json_format.MessageToDict(output)
        values = {
            key: artifact_utils.get_single_instance(outputs[key]).read()
            for key in self._input.outputs.parameters
        }
        return {**described, **({"parameterValues": values} if values else {})}


def _make_folders(inputs: Artifacts, outputs: Artifacts) -> None:
    """Creates empty folders, which TFX expects and an object store does not keep."""
    outputs_utils.make_output_dirs(outputs)
    for items in inputs.values():
        for item in items:
            if not isinstance(item, value_artifact.ValueArtifact) and not fileio.exists(item.uri):
                fileio.makedirs(item.uri)


def _make_recordable(item: metadata_store_pb2.Artifact) -> None:
    for properties in (item.properties, item.custom_properties):
        for key, value in list(properties.items()):
            kind = value.WhichOneof("value")
            if kind == "bool_value":
                properties[key].int_value = int(value.bool_value)
            elif kind is None or (kind == "double_value" and not math.isfinite(value.double_value)):
                _LOGGER.warning("Property %s is not recorded: it has no finite value.", key)
                del properties[key]
