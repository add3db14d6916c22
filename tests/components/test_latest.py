"""The resolvers' results from ML Metadata, and plans that are reused in real pipelines."""

import json
import pathlib

import pytest
import training_cases
import tuning_cases
from ml_metadata.metadata_store import metadata_store
from ml_metadata.proto import metadata_store_pb2 as mlmd
from tfx.types import standard_artifacts

from tests.local_pipeline import LocalPipeline
from tfx_perf.components import InputTuner, latest, latest_plans, types


def _listed(examples):
    return examples if isinstance(examples, list) else [examples]


def _input(item, key):
    event = mlmd.Event(artifact_id=item.id, type=mlmd.Event.INPUT)
    event.path.steps.add(key=key)
    return event


class History:
    """ML Metadata in memory, with plans and the artifacts they were made from."""

    def __init__(self):
        connection = mlmd.ConnectionConfig()
        connection.fake_database.SetInParent()
        self.store = metadata_store.MetadataStore(connection)
        self._execution_type = self.store.put_execution_type(mlmd.ExecutionType(name="Tuner"))
        self._types = {
            cls: self.store.put_artifact_type(mlmd.ArtifactType(name=cls.TYPE_NAME))
            for cls in (types.InputPlan, standard_artifacts.Examples, standard_artifacts.Schema)
        }
        self._schema = self.add(standard_artifacts.Schema)
        self.plans = []

    def add(self, cls):
        item = cls()
        (item.id,) = self.store.put_artifacts([mlmd.Artifact(type_id=self._types[cls])])
        return item

    def tune(self, examples, *, reuses=None):
        """Records an execution that read examples and produced a plan, an old or a new one."""
        plan = reuses or self.add(types.InputPlan)
        execution = mlmd.Execution(type_id=self._execution_type)
        events = [
            *(_input(item, "examples") for item in _listed(examples)),
            _input(self._schema, "schema"),
            mlmd.Event(artifact_id=plan.id, type=mlmd.Event.OUTPUT),
        ]
        ids = self.store.put_executions([execution])
        for event in events:
            event.execution_id = ids[0]
        self.store.put_events(events)
        if not reuses:
            self.plans.append(plan)
        return plan

    def resolve(self, examples, *, count=10):
        """Returns the ids of the plans that a run over `examples` would be given."""
        found = latest.LatestStrategy(count, source="examples").resolve_artifacts(
            self.store, {"previous_plans": self.plans[::-1], "examples": _listed(examples)}
        )
        assert found["examples"] == _listed(examples)
        return [plan.id for plan in found["previous_plans"]]


def test_a_run_gets_the_plans_of_the_first_run_over_its_examples():
    history = History()
    first, second = (history.add(standard_artifacts.Examples) for _ in range(2))
    assert history.resolve(first) == []
    one = history.tune(first)
    assert history.resolve(first) == []
    history.tune(first, reuses=one)  # from TFX's cache
    assert history.resolve(first) == []
    assert history.resolve(second) == [one.id]
    two = history.tune(second)
    assert history.resolve(second) == [one.id]
    assert history.resolve(first) == []  # these examples belong to a run before the last
    three = history.tune(first)  # edited code
    assert (history.resolve(first), history.resolve(second)) == ([], [one.id])
    new = history.add(standard_artifacts.Examples)
    assert history.resolve(new) == [one.id, two.id, three.id]
    assert history.resolve(new, count=2) == [two.id, three.id]


def test_windows_that_overlap_are_not_the_same_source():
    history = History()
    days = [history.add(standard_artifacts.Examples) for _ in range(4)]
    first = history.tune(days[:3])
    assert history.resolve(days[1:]) == [first.id]
    second = history.tune(days[1:])
    assert (history.resolve(days[:3]), history.resolve(days[1:])) == ([], [first.id])
    assert history.resolve(days[2]) == [first.id, second.id]


def test_the_newest_of_each_kind():
    plans = [types.InputPlan() for _ in range(3)]
    for number, plan in zip((3, 1, 2), plans, strict=True):
        plan.id = number
    for count, ids in ((1, [3]), (2, [2, 3]), (9, [1, 2, 3])):
        found = latest.LatestStrategy(count).resolve_artifacts(None, {"plans": plans, "none": []})
        assert [plan.id for plan in found["plans"]] == ids
        assert found["none"] == []


KILLED_IF_ASKED = """
import os, pathlib, signal

def run_fn(fn_args):
    if pathlib.Path(__file__).with_name("killed").exists():
        os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.fixture
def run(tmp_path, monkeypatch):
    """Runs the pipeline once and returns the state of InputTuner's execution and its plan."""
    for split in ("train", "eval"):
        tuning_cases.write_examples(tmp_path / "examples" / f"Split-{split}")
    tuning_cases.schema_in(tmp_path / "schema")
    tuning_cases.module(tmp_path / "module_without_fit.py", KILLED_IF_ASKED)
    monkeypatch.syspath_prepend(tmp_path)
    pipeline = LocalPipeline(tmp_path)

    def once(*, new_examples: bool = False, tuning_seconds: float = 40.0):
        examples, schema = training_cases.imported(tmp_path, reimport=new_examples)
        plans = latest_plans(examples.outputs["result"])
        # Every candidate is refused: the choice does not matter here, and would take time.
        given = {"tuning_seconds": tuning_seconds, "memory_budget_bytes": 1}
        tuner = InputTuner(
            examples=examples.outputs["result"],
            schema=schema.outputs["result"],
            run_fn="module_without_fit.run_fn",
            previous_plans=plans.outputs["previous_plans"],
            config={"input": given},
        )
        pipeline.run([examples, schema, plans, tuner])
        state, (plan,) = pipeline.last(InputTuner)
        return state, plan

    return once


@pytest.mark.slow
def test_a_killed_search_is_not_taken_from_the_cache(run, tmp_path):
    (tmp_path / "killed").touch()
    state, failed = run()
    assert state == "COMPLETE"
    assert "SIGKILL" in failed.custom_properties["remark"].string_value
    (tmp_path / "killed").unlink()
    state, plan = run()
    assert (state, plan.id == failed.id) == ("COMPLETE", False)
    assert "SIGKILL" not in plan.custom_properties["remark"].string_value
    state, cached = run()
    assert (state, cached.id) == ("CACHED", plan.id)


@pytest.mark.slow
def test_a_search_that_ended_too_early_is_repeated_once_despite_the_cache(run):
    runs = [run(tuning_seconds=1e-6) for _ in range(3)]
    assert [state for state, _ in runs] == ["COMPLETE", "COMPLETE", "CACHED"]
    (_, first), (_, second), (_, cached) = runs
    assert cached.id == second.id != first.id
    assert "The next run searches again." in first.custom_properties["remark"].string_value
    assert "no run searches again" in second.custom_properties["remark"].string_value
    state, _ = run(tuning_seconds=2e-6)
    assert state == "COMPLETE"


@pytest.mark.slow
def test_plans_are_reused_in_a_pipeline(run):
    state, measured = run()
    assert state == "COMPLETE"
    document = json.loads(pathlib.Path(measured.uri, "plan.json").read_text())
    assert document["key"], document["reason"]

    state, cached = run()
    assert (state, cached.id) == ("CACHED", measured.id)

    state, reused = run(new_examples=True)
    assert state == "COMPLETE"
    assert reused.id != measured.id
    assert reused.custom_properties["reused_from"].string_value == measured.uri
    again = json.loads(pathlib.Path(reused.uri, "plan.json").read_text())
    assert again == {
        **document,
        "reused_from": measured.uri,
        "tuning_time_seconds": again["tuning_time_seconds"],
    }
    assert 0 < again["tuning_time_seconds"] < document["tuning_time_seconds"]
    log = pathlib.Path(reused.uri, "tuning.log").read_text()
    assert "is used again" in log
