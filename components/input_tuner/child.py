"""The child's side of InputTuner: a plan for one split, reused or measured."""

import functools
import logging
import os
import tempfile
import time
from typing import Any

import tensorflow_data_validation as tfdv
from tfx.components.statistics_gen import executor as statistics_gen
from tfx.components.trainer import fn_args_utils
from tfx.types import artifact_utils
from tfx.utils import json_utils

from tfx_perf.components import examples as examples_lib
from tfx_perf.components import latest, trainer_args
from tfx_perf.components.input_tuner import previous, training
from tfx_perf.components.types import Artifacts
from tfx_perf.config import PerfConfig
from tfx_perf.core import console, errors
from tfx_perf.input import measure, record, tuner
from tfx_perf.input.candidates import source as source_lib
from tfx_perf.tf_internals import autograph
from tfx_perf.training.speedups import precision
from tfx_perf.training.tuning import families

BATCH_SIZE = 256  # if neither the settings nor the training code set one

_CODE = ("run_fn", "module_file", "module_path")

_LOGGER = logging.getLogger(__name__)


@autograph.sparing_libraries
def plan_split(
    *, inputs: str, exec_properties: dict[str, Any], folder: str
) -> dict[str, Any] | str:
    """Returns the plan as JSON; the reason if only the user's code can read the examples."""
    logging.basicConfig()  # to the log that is published beside the plan
    logging.getLogger("tfx_perf").setLevel(logging.INFO)
    artifacts = json_utils.loads(inputs)
    planning = _Planning(artifacts, exec_properties)
    obstacle = examples_lib.reading_obstacle(artifacts, split=exec_properties["split"])
    return obstacle or planning.plan(folder).model_dump(mode="json")


class _Planning:
    def __init__(self, inputs: Artifacts, properties: dict[str, Any]) -> None:
        self._inputs = inputs
        self._properties = properties
        has_code = any(properties.get(key) for key in _CODE)
        # Imported before data are read: the module may configure TensorFlow's devices.
        self._run_fn = trainer_args.load_run_fn(properties) if has_code else None
        settings = PerfConfig.from_json(properties["config"])
        self._settings = settings.input
        self._schedule = settings.schedule
        self._failures = properties.get(latest.FAILED_BEFORE, 0)
        self._precision = precision.fixed(settings.training.precision)
        self._must_be_exact = functools.partial(families.must_be_exact, settings)

    def plan(self, folder: str) -> record.TuningRecord:
        began = time.monotonic()
        default = self._source(label_key=self._properties.get("label_key"))
        key = previous.key_of(
            default, settings=self._settings, training_digest=self._training_digest()
        )
        plans = self._inputs.get("previous_plans") or ()
        example_count = self._example_count()
        plan = previous.find(
            plans, key, source=default, settings=self._settings, example_count=example_count
        )
        if plan:
            return plan
        captured, note = self._training(folder)
        tune = functools.partial(
            tuner.tune,
            settings=self._settings,
            example_count=example_count,
            expected_runs=self._schedule.run_count(
                runs_before=len(plans) + self._failures, is_pipeline=True
            ),
            keeps_order=self._must_be_exact(),  # the training code may require it
        )
        try:
            source = self._training_source(default, captured)
            plan = tune(source, train=captured, spent_seconds=time.monotonic() - began)
        except measure.StepFailedError as error:
            note = str(error)
            source = self._training_source(default, None)
            plan = tune(source, train=None, spent_seconds=time.monotonic() - began)
        plan = previous.keyed(plan, key, plans=plans, failures=self._failures)
        if not plan.is_conclusive:
            plan_before = previous.kept(
                plans, source=source, settings=self._settings, example_count=example_count
            )
            if plan_before:
                return plan_before.model_copy(
                    update={
                        "key": plan.key,
                        "undecided_count": plan.undecided_count,
                        "training_note": note,
                    }
                )
        return plan.model_copy(
            update={
                "training_note": note,
                "training_digest": trainer_args.code_digest(self._properties),
            }
        )

    def _training_source(
        self, source: source_lib.RecordSource, captured: training.CapturedTraining | None
    ) -> source_lib.RecordSource:
        if captured:
            source = self._source(
                label_key=captured.options.label_key, schema=captured.schema
            ).replace_options(**captured.options._asdict())
        if self._settings.batch_size:
            source = source.replace_options(batch_size=self._settings.batch_size)
        return source

    def _source(self, *, label_key: str | None, schema: Any = None) -> source_lib.RecordSource:
        return examples_lib.record_source(
            self._inputs["examples"],
            split=self._properties["split"],
            schema=schema or examples_lib.read_schema(self._inputs),
            batch_size=self._settings.batch_size or BATCH_SIZE,
            label_key=label_key,
        )

    def _training(self, folder: str) -> tuple[training.CapturedTraining | None, str]:
        """Returns the training, or None and the reason, which is empty without training code."""
        run_fn = self._run_fn
        if run_fn is None:
            return None, ""
        console.set_status("building the model")
        arguments = trainer_args.fn_args(
            self._inputs, trainer_args.outputs_in(tempfile.mkdtemp(dir=folder)), self._properties
        )

        def run(arguments: fn_args_utils.FnArgs) -> None:
            with precision.policy(self._precision):
                run_fn(arguments)

        try:
            return training.CapturedTraining(run, arguments), ""
        except (Exception, SystemExit) as error:  # the input can be measured alone
            if autograph.asks_for_conversion(error):
                raise
            _LOGGER.warning("Measuring without the training.", exc_info=True)
            return None, errors.in_one_line(error)

    def _training_digest(self) -> str:
        digest = trainer_args.code_digest(self._properties)
        how = (self._precision, "exact" if self._must_be_exact() else None)
        return ", ".join(filter(None, (digest, *how))) if digest else digest

    def _example_count(self) -> int | None:
        statistics, split = self._inputs.get("statistics"), self._properties["split"]
        if not statistics:
            return None
        item = artifact_utils.get_single_instance(statistics)
        if split not in artifact_utils.decode_split_names(item.split_names):
            return None
        folder = artifact_utils.get_split_uri(statistics, split)
        path = os.path.join(folder, statistics_gen.DEFAULT_FILE_NAME)
        return tfdv.load_stats_binary(path).datasets[0].num_examples
