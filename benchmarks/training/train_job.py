"""One training as a component of TFX runs it, in a process of its own."""

import pathlib
import tempfile
from typing import Any

from benchmarks.input import layout
from benchmarks.training import results
from benchmarks.training.artifacts import Artifacts
from benchmarks.training.user_modules import common
from benchmarks.training.workloads import WORKLOADS
from tfx_perf.components import examples as examples_lib
from tfx_perf.components.optimized_trainer import executor
from tfx_perf.config import InputSettings, PerfConfig
from tfx_perf.input import record as input_record
from tfx_perf.input import tuner
from tfx_perf.pipelines import taxi
from tfx_perf.training.record import FILE_NAME, TrainingRecord

_TUNING_SECONDS = 20.0
_SETTINGS = PerfConfig.from_dict({"training": {"seed": taxi.SEED}})


def run(workload: str, *, kind: str, steps: int, clock: str, data_folder: str) -> dict[str, Any]:
    """Trains; returns the plan's description, the seconds of its trials and the last loss.

    Args:
        workload: a key of `WORKLOADS`.
        kind: one of `results.KINDS`.
        steps: of the training, unless the clock ends it.
        clock: path of a `Clock`.
        data_folder: where data sets are kept; the input's plan goes there too.

    Raises:
        UserError: the data are not on this machine.
    """
    with tempfile.TemporaryDirectory() as folder:
        given = Artifacts(WORKLOADS[workload], data_folder=data_folder, folder=folder)
        if kind == results.TUNED:
            _plan(workload, given, data_folder=data_folder)
        properties = given.properties(steps=steps, clock=clock, settings=_SETTINGS.to_json())
        stock = kind == results.STOCK
        component = taxi.StockTrainerExecutor() if stock else executor.Executor()
        component.Do(given.inputs, given.outputs, properties)
        written, name = ("model_run", taxi.STOCK_FILE) if stock else ("perf_metrics", FILE_NAME)
        record = TrainingRecord.read(pathlib.Path(given.outputs[written][0].uri, name))
    return {
        "plan": str(record.plan),
        "trial_time_seconds": record.trial_time_seconds,
        "train_loss": record.losses["loss"][-1],
    }


def _plan(workload: str, given: Artifacts, *, data_folder: str) -> None:
    """Tunes the input pipeline without a model, once for all trainings of the workload."""
    kept = pathlib.Path(data_folder, f"{workload}-{input_record.FILE_NAME}")
    if not kept.exists():
        source = examples_lib.record_source(
            given.inputs["examples"],
            split=layout.SPLIT,
            schema=given.schema,
            batch_size=WORKLOADS[workload].batch_size,
            label_key=common.LABEL_KEY,
        )
        settings = InputSettings(tuning_seconds=_TUNING_SECONDS)
        tuner.tune(source, settings=settings).write(kept)
    plan = input_record.TuningRecord.read(kept)
    plan.write(given.add_input_plan() / input_record.FILE_NAME)
