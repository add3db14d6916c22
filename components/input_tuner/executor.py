"""Measures the input pipelines and writes the plan."""

import os
from typing import Any

import tensorflow_data_validation as tfdv
from tfx.components.statistics_gen import executor as statistics_gen
from tfx.dsl.components.base import base_executor
from tfx.types import artifact, artifact_utils

from tfx_perf import config
from tfx_perf.components import artifacts
from tfx_perf.components.input_tuner import sources
from tfx_perf.input import record, tuner
from tfx_perf.report import input_report

_Artifacts = dict[str, list[artifact.Artifact]]


class Executor(base_executor.BaseExecutor):
    """Turns the artifacts into a source, tunes, and publishes the choice."""

    def Do(  # noqa: N802 (TFX's name)
        self, input_dict: _Artifacts, output_dict: _Artifacts, exec_properties: dict[str, Any]
    ) -> None:
        """Tunes the input of one split.

        Args:
            input_dict: `examples` and, each possibly missing or empty, `schema`,
                `transform_graph`, `statistics`.
            output_dict: `input_plan`.
            exec_properties: `config` (a `PerfConfig` as JSON), `split`, `label_key`.

        Raises:
            UserError: no schema, no such split or label, or no examples in it.
        """
        settings = config.PerfConfig.from_json(exec_properties["config"]).input
        split = exec_properties["split"]
        source = sources.record_source(
            input_dict["examples"],
            split=split,
            schema=sources.read_schema(
                transform_graph=input_dict.get("transform_graph"),
                schema=input_dict.get("schema"),
            ),
            batch_size=settings.batch_size or 256,
            label_key=exec_properties.get("label_key"),
        )
        tuning = tuner.tune(
            source,
            config=settings,
            example_count=_example_count(input_dict.get("statistics"), split),
        )
        artifacts.publish(
            artifact_utils.get_single_instance(output_dict["input_plan"]),
            tuning,
            file_name=record.FILE_NAME,
            figures=tuning.figures(),
            labels={"chosen_candidate": tuning.chosen},
            page=input_report.report_on(tuning),
        )


def _example_count(statistics: list[artifact.Artifact] | None, split: str) -> int | None:
    """Returns the split's number of examples from its statistics, if they cover it."""
    if not statistics:
        return None
    item = artifact_utils.get_single_instance(statistics)
    if split not in artifact_utils.decode_split_names(item.split_names):
        return None
    folder = artifact_utils.get_split_uri(statistics, split)
    path = os.path.join(folder, statistics_gen.DEFAULT_FILE_NAME)
    return tfdv.load_stats_binary(path).datasets[0].num_examples
