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

_SETTINGS = {
    "input": {"time_budget_seconds": 5},
    "training": {"trial_budget_seconds": 5},
}


def run(root: str, folder: pathlib.Path) -> None:
    """Runs the chain twice, so that the second run is compared; prints what was found."""
    trainer = Trainer(folder)
    module = trainer.write_module(line="tf_keras")
    properties = {
        "module_file": str(module),
        "train_args": json.dumps({"num_steps": 120}),
        "eval_args": json.dumps({"num_steps": 2}),
        "custom_config": "null",
        "split": "train",
        "label_key": None,
        "config": PerfConfig.from_dict(_SETTINGS).to_json(),
    }
    data = {"examples": [trainer.examples], "schema": [trainer.schema]}
    ledger: list[types.PerfLedger] = []
    for number in range(2):
        place = f"{root}/{number}"
        plan = _at(types.InputPlan(), f"{place}/input_plan")
        profile = _at(types.MemoryProfile(), f"{place}/memory_profile")
        metrics = _at(types.PerfMetrics(), f"{place}/perf_metrics")
        model_run = _at(standard_artifacts.ModelRun(), str(folder / f"model_run-{number}"))
        input_tuner.Executor().Do(data, {"input_plan": [plan]}, properties)
        tuned = {**data, "input_plan": [plan]}
        memory_profiler.Executor().Do(tuned, {"memory_profile": [profile]}, properties)
        optimized_trainer.Executor().Do(
            tuned,
            {"model": [trainer.model], "model_run": [model_run], "perf_metrics": [metrics]},
            properties,
        )
        outputs = {
            "blessing": _at(standard_artifacts.InfraBlessing(), f"{place}/blessing"),
            "evaluation": _at(types.PerfEvaluation(), f"{place}/evaluation"),
            "updated_ledger": _at(types.PerfLedger(), f"{place}/ledger"),
        }
        perf_evaluator.Executor().Do(
            {
                "model": [trainer.model],
                "perf_metrics": [metrics],
                "memory_profile": [profile],
                "input_plan": [plan],
                "ledger": ledger,
            },
            {key: [item] for key, item in outputs.items()},
            {"config": properties["config"]},
        )
        ledger = [outputs["updated_ledger"]]
    judged = GateRecord.read(f"{root}/1/evaluation/evaluation.json")
    files = sorted(
        f"{item.parent.name}/{item.name}"
        for kind in ("input_plan", "memory_profile", "perf_metrics", "blessing", "evaluation")
        for item in storage.path(f"{root}/1/{kind}").iterdir()
    )
    left_behind = [path.name for path in pathlib.Path.cwd().iterdir()]
    print(
        json.dumps(
            {
                "in_ledger": len(Ledger.read(f"{root}/1/ledger/ledger.json").runs),
                "compared_with": len(judged.baseline_runs),
                "blessed": judged.blessed,
                "figures": sorted(history.read_artifact(f"{root}/1/evaluation").metrics),
                "files": files,
                "left_behind": left_behind,
            }
        )
    )


def _at(item, uri):
    item.uri = uri
    return item


if __name__ == "__main__":
    run(sys.argv[1], pathlib.Path(sys.argv[2]))
