"""The artifacts and execution properties that a Trainer component would receive."""

import json
import pathlib
from typing import Any

from google.protobuf import text_format
from tfx.types import artifact, standard_artifacts

from benchmarks.input import examples, layout, results
from benchmarks.training.workloads import Workload
from tfx_perf.components import types

_SHARDS = 12


class Artifacts:
    """Inputs, outputs and properties of one training."""

    def __init__(self, workload: Workload, *, data_folder: str, folder: str) -> None:
        """Writes the schema, and the data unless they exist.

        Args:
            workload: the training.
            data_folder: where data sets are kept.
            folder: an empty folder for everything else.

        Raises:
            UserError: the data set is not on this machine.
        """
        self._folder = pathlib.Path(folder)
        files = layout.Layouts(workload.data_set, pathlib.Path(data_folder))
        uri = files.examples_uri(shards=_SHARDS, compression=results.GZIP)
        schema = self._made(standard_artifacts.Schema(), "schema")
        pathlib.Path(schema.uri, "schema.pbtxt").write_text(
            text_format.MessageToString(files.schema())
        )
        self.schema = files.schema()
        self.inputs = {"examples": [examples.artifact_of(uri)], "schema": [schema]}
        self.outputs = {
            "model": [self._made(standard_artifacts.Model(), "model")],
            "model_run": [self._made(standard_artifacts.ModelRun(), "model_run")],
            "perf_metrics": [self._made(types.PerfMetrics(), "perf_metrics")],
        }
        self._workload = workload

    def properties(self, *, steps: int, clock: str, settings: str) -> dict[str, Any]:
        """Returns the execution properties.

        Args:
            steps: of the training.
            clock: path of a `Clock`.
            settings: a `PerfConfig` as JSON.
        """
        splits = [layout.SPLIT]
        return {
            "run_fn": self._workload.run_fn,
            "train_args": json.dumps({"num_steps": steps, "splits": splits}),
            "eval_args": json.dumps({"num_steps": 1, "splits": splits}),
            "custom_config": json.dumps({"batch_size": self._workload.batch_size, "clock": clock}),
            "config": settings,
        }

    def add_input_plan(self) -> pathlib.Path:
        """Adds InputTuner's artifact to the inputs; returns its folder, still empty."""
        plan = self._made(types.InputPlan(), "input_plan")
        self.inputs["input_plan"] = [plan]
        return pathlib.Path(plan.uri)

    def _made(self, item: artifact.Artifact, name: str) -> artifact.Artifact:
        item.uri = str(self._folder / name)
        pathlib.Path(item.uri).mkdir()
        return item
