"""All four components with their artifacts in an object store: `remote_chain.py ROOT FOLDER`.

Examples, schema and model stay on the disk: TensorFlow itself knows no S3, and no emulator.
"""

import json
import pathlib
import sys

from tfx.types import standard_artifacts
from training_cases import Trainer

from tfx_perf.components import types
from tfx_perf.components.input_tuner import executor as input_tuner
from tfx_perf.components.memory_profiler import executor as memory_profiler
from tfx_perf.components.optimized_trainer import executor as optimized_trainer
from tfx_perf.components.perf_evaluator import executor as perf_evaluator
from tfx_perf.config import PerfConfig
from tfx_perf.core import storage
from tfx_perf.gate import history
from tfx_perf.gate.decision import GateRecord
from tfx_perf.gate.ledger import Ledger

_SETTINGS = {"input": {"tuning_seconds": 5}, "training": {"tuning_seconds": 5}}


def run(root: str, folder: pathlib.Path) -> None:
    """Runs the chain twice, so that the second run is compared; prints what was found."""
    trainer = Trainer(folder)
    data, _, given = trainer.given(trainer.write_module(line="tf_keras"))
    config = PerfConfig.from_dict(_SETTINGS).to_json()
    properties = {**given, "split": "train", "label_key": None, "config": config}
    ledger: list[types.PerfLedger] = []
    for number in range(2):

        def at(kind, name, place=f"{root}/{number}"):
            item = kind()
            item.uri = f"{place}/{name}"
            return [item]

        plan = {"input_plan": at(types.InputPlan, "input_plan")}
        profile = {"memory_profile": at(types.MemoryProfile, "memory_profile")}
        metrics = {"perf_metrics": at(types.PerfMetrics, "perf_metrics")}
        model_run = at(standard_artifacts.ModelRun, f"model_run-{number}", str(folder))
        model = {"model": [trainer.model]}
        judged = {
            "blessing": at(standard_artifacts.InfraBlessing, "blessing"),
            "evaluation": at(types.PerfEvaluation, "evaluation"),
            "updated_ledger": at(types.PerfLedger, "ledger"),
        }
        input_tuner.Executor().Do(data, plan, properties)
        memory_profiler.Executor().Do({**data, **plan}, profile, properties)
        optimized_trainer.Executor().Do(
            {**data, **plan}, {**model, "model_run": model_run, **metrics}, properties
        )
        perf_evaluator.Executor().Do(
            {**model, **metrics, **profile, **plan, "ledger": ledger}, judged, {"config": config}
        )
        ledger = judged["updated_ledger"]
    record = GateRecord.read(f"{root}/1/evaluation/evaluation.json")
    found = {
        "in_ledger": len(Ledger.read(f"{root}/1/ledger/ledger.json").runs),
        "compared_with": len(record.baseline_runs),
        "blessed": record.blessed,
        "figures": sorted(history.read_artifact(f"{root}/1/evaluation").metrics),
        "files": sorted(
            f"{item.parent.name}/{item.name}"
            for kind in ("input_plan", "memory_profile", "perf_metrics", "blessing", "evaluation")
            for item in storage.path(f"{root}/1/{kind}").iterdir()
        ),
        "left_behind": [path.name for path in pathlib.Path.cwd().iterdir()],
    }
    print(json.dumps(found))


if __name__ == "__main__":
    run(sys.argv[1], pathlib.Path(sys.argv[2]))
