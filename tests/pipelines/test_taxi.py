"""The whole pipeline on taxi data, several times in one folder: real TFX, SQLite, Pusher."""

import json
import pathlib

import pytest
from ml_metadata.metadata_store import metadata_store
from ml_metadata.proto import metadata_store_pb2 as mlmd

from tfx_perf import isolate
from tfx_perf.config import PerfConfig
from tfx_perf.core import errors, metrics
from tfx_perf.input.record import TuningRecord
from tfx_perf.mlmd import runs as recorded_runs
from tfx_perf.mlmd.runs import RecordedRun
from tfx_perf.pipelines import taxi
from tfx_perf.training.record import TrainingRecord

pytestmark = pytest.mark.each_choice

_OURS = {
    "tfx_perf.InputPlan": "plan.json",
    "tfx_perf.MemoryProfile": "profile.json",
    "tfx_perf.PerfMetrics": "metrics.json",
    "tfx_perf.PerfEvaluation": "evaluation.json",
}
_CHEAP = {
    "input": {"tuning_seconds": 6},
    "training": {"seed": 1, "tuning_seconds": 8},
    "schedule": {"expected_runs": 100},  # so that trials are worth it
}
_GATE = {"rules": {"step_time_seconds": {"tolerance": 9.0}}, "use_defaults": False}
_BATCH_SIZE = 40
_ROWS = 4000  # of 15,002


def _run(folder: pathlib.Path, *, label: str, settings: dict) -> RecordedRun:
    isolate.run(
        "tfx_perf.pipelines.taxi:run_in_process",
        {
            "folder": str(folder),
            "batch_size": _BATCH_SIZE,
            "train_steps": 400,
            "eval_steps": 20,
            "label": label,
            "settings": PerfConfig.from_dict({**_CHEAP, **settings}).to_json(),
        },
        timeout_seconds=600,
        log_path=folder / f"{label}.log",
        is_forked=True,  # which imports TFX once for all runs
    )
    return recorded_runs.read_runs(folder / "metadata.sqlite", limit=1)[0]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    """A folder with the stock project over the first rows of its data."""
    folder = tmp_path_factory.mktemp("taxi")
    taxi.write_project(folder / "project", batch_size=_BATCH_SIZE)
    (path,) = (folder / "project" / "data").rglob("*.csv")
    path.write_text("".join(path.read_text().splitlines(keepends=True)[: 1 + _ROWS]))
    return folder


@pytest.fixture(scope="module")
def first(folder: pathlib.Path) -> RecordedRun:
    """The first run, which has no baseline.

    Before it, one fails at OptimizedTrainer, whose output folder cannot be made; it goes on from
    there.
    """
    obstacle = folder / "artifacts" / "OptimizedTrainer"
    obstacle.parent.mkdir()
    obstacle.touch()
    with pytest.raises(errors.MeasurementError):
        _run(folder, label="first", settings={"gate": _GATE})
    obstacle.unlink()
    return _run(folder, label="first", settings={"gate": _GATE})


@pytest.fixture(scope="module")
def runs(folder: pathlib.Path, first: RecordedRun) -> dict[str, RecordedRun]:
    """The first run, and one that is compared with it and has a limit that nothing keeps."""
    rules = {**_GATE["rules"], "examples_per_second": {"min": 1e12}}
    refused = _run(folder, label="refused", settings={"gate": {**_GATE, "rules": rules}})
    return {"first": first, "refused": refused}


def _store(folder: pathlib.Path) -> metadata_store.MetadataStore:
    connection = mlmd.ConnectionConfig()
    connection.sqlite.filename_uri = str(folder / "metadata.sqlite")
    return metadata_store.MetadataStore(connection)


def _in_order(folder: pathlib.Path, kind: str) -> list[pathlib.Path]:
    artifacts = _store(folder).get_artifacts_by_type(kind)
    return [pathlib.Path(item.uri) for item in sorted(artifacts, key=lambda item: item.id)]


def _evaluation(run: RecordedRun) -> dict:
    return json.loads(pathlib.Path(run.folders["PerfEvaluation"], "evaluation.json").read_text())


def _trained(run: RecordedRun) -> TrainingRecord:
    return TrainingRecord.read(pathlib.Path(run.folders["PerfMetrics"], "metrics.json"))


def _stock_records(folder: pathlib.Path, trainer: str = "StockTrainer") -> list[pathlib.Path]:
    return sorted(folder.glob(f"artifacts/{trainer}/model_run/*/stock_metrics.json"))


def test_the_first_run_is_complete_judged_and_pushed(first: RecordedRun) -> None:
    assert (first.state, first.blessed, first.pushed) == ("complete", True, True)
    found = _evaluation(first)
    assert found["baseline_runs"] == []
    assert 0 < found["candidate"]["evaluation"]["binary_accuracy"] < 1
    assert _trained(first).trial_time_seconds > 0


@pytest.mark.slow
def test_a_refused_run_is_complete_pushes_nothing_and_passes_the_ledger_on(
    runs: dict[str, RecordedRun], folder: pathlib.Path
) -> None:
    assert {name: run.state for name, run in runs.items()} == dict.fromkeys(runs, "complete")
    assert len(_stock_records(folder)) == len(runs)  # that of the failed run came from cache
    assert (runs["refused"].blessed, runs["refused"].pushed) == (False, False)
    ledgers = [path / "ledger.json" for path in _in_order(folder, "tfx_perf.PerfLedger")]
    assert [len(json.loads(path.read_text())["entries"]) for path in ledgers] == [1, 1]
    second = _evaluation(runs["refused"])
    assert [run["run_id"] for run in second["baseline_runs"]] == [runs["first"].run_id]
    change = next(item for item in second["outcomes"] if item["metric"] == "step_time_seconds")
    # ML Metadata keeps six decimals of a double; the payload, which the gate reads, has all.
    recorded = runs["first"].metrics["step_time_seconds"]
    assert change["baseline"] == pytest.approx(recorded, abs=1e-6)
    assert change["verdict"] == "pass"
    for run in runs.values():  # with and without a baseline model
        found = _evaluation(run)["candidate"]["evaluation"]
        assert 0 < found["binary_accuracy"] < 1
        assert not [name for name in found if name.endswith("_diff")]


@pytest.mark.slow
def test_second_run_trains_again_with_the_plan_of_the_first(
    runs: dict[str, RecordedRun], folder: pathlib.Path
) -> None:
    kind = "tfx_perf.components.optimized_trainer.component.OptimizedTrainer"
    assert _states(folder, kind)[-2:] == ["COMPLETE"] * 2
    first, second = map(_trained, runs.values())
    assert first.trial_time_seconds > 0
    if first.is_settled:
        assert second.trial_time_seconds == 0
        assert second.reused_from.startswith(runs["first"].folders["PerfMetrics"])
        assert [t.plan for t in second.trials] == [t.plan for t in first.trials]
    else:  # the trials ran out of time on a busy machine, and are repeated
        assert second.trial_time_seconds > 0


def _states(folder: pathlib.Path, kind: str) -> list[str]:
    executions = _store(folder).get_executions_by_type(kind)
    return [
        mlmd.Execution.State.Name(item.last_known_state)
        for item in sorted(executions, key=lambda item: item.id)
    ]


@pytest.mark.usefixtures("first")
@pytest.mark.parametrize(
    "kind",
    [
        "tfx.components.transform.component.Transform",
        "tfx_perf.components.input_tuner.component.InputTuner",
        "tfx_perf.components.memory_profiler.component.MemoryProfiler",
    ],
)
def test_nodes_that_finished_before_a_failure_are_not_run_again(
    folder: pathlib.Path, kind: str
) -> None:
    # On a busy machine its few seconds may tell nothing: then it searches once more.
    plan = TuningRecord.read(_in_order(folder, "tfx_perf.InputPlan")[0] / "plan.json")
    again = "Transform" not in kind and plan.needs_another_search
    first, second, *later = _states(folder, kind)
    assert (first, second) == ("COMPLETE", "COMPLETE" if again else "CACHED")
    assert set(later) <= {"CACHED"}


@pytest.mark.slow
def test_figures_are_custom_properties(runs: dict[str, RecordedRun], folder: pathlib.Path) -> None:
    store = _store(folder)
    recorded = set()
    for kind, payload in _OURS.items():
        artifact = max(store.get_artifacts_by_type(kind), key=lambda item: item.id)
        assert pathlib.Path(artifact.uri, payload).is_file()
        page = pathlib.Path(artifact.uri, "report.html").read_text()
        assert "http://" not in page.replace("http://www.w3.org", "")
        assert "https://" not in page
        recorded |= {key for key in artifact.custom_properties if key in metrics.CATALOGUE}
    absent = {
        "resumed_step",  # nothing interrupted this training
        "cost_per_million_examples",  # the price of the machine is not known
        "trial_import_seconds", "trial_setup_seconds",  # the plan of the first run is used again
    }  # fmt: skip
    last, trained = runs["refused"].folders, _trained(runs["refused"])
    if trained.memory_growth is None:  # it was too short to tell
        absent |= {"memory_growth_bytes_per_step", "memory_leak"}
    if not trained.plan.uses_xla:
        absent |= {"xla_compile_count", "xla_fusion_count", "xla_fusion_saved_bytes"}
    tuned = TuningRecord.read(pathlib.Path(last["InputPlan"], "plan.json")).figures()
    # These are measured on the train step, if they are worth their time.
    on_the_step = {"input_efficiency_ratio", "input_headroom_ratio", "input_training_speedup_ratio"}
    absent |= {key for key in on_the_step if tuned[key] is None}
    if trained.communication is None:  # one replica
        absent |= {
            "communication_share_ratio", "load_imbalance_ratio", "reduced_bytes_per_step",
            "replica_speedup_ratio",
        }  # fmt: skip
    on_some_hosts = {"energy_joules", "energy_per_example_joules"}
    assert recorded | on_some_hosts == set(metrics.CATALOGUE) - absent


@pytest.mark.usefixtures("first")
@pytest.mark.parametrize("trainer", ["StockTrainer", "TrainerByHand"])
def test_the_trainers_of_tfx_were_run_beside_ours(folder: pathlib.Path, trainer: str) -> None:
    stock = json.loads(_stock_records(folder, trainer)[-1].read_text())
    assert stock["plan"]["steps_per_execution"] is None
    assert stock["train_step_count"] == 400  # noqa: PLR2004
