"""PerfEvaluator in real pipelines: with Evaluator's blessing, and with manual decisions."""

import pathlib

import database_servers
import pytest
from gated_project import Project
from test_perf_evaluator import FAST, SLOW, Gate, ledger_in

from tfx_perf.cli import main
from tfx_perf.components import PerfEvaluator, artifacts, latest_ledger, types
from tfx_perf.core import errors, metrics
from tfx_perf.gate import history
from tfx_perf.gate.decision import GateRecord
from tfx_perf.gate.ledger import Ledger
from tfx_perf.gate.ledger_store import LedgerFolder

pytestmark = pytest.mark.each_choice


@pytest.fixture
def project(tmp_path):
    return Project(tmp_path)


@pytest.fixture(
    params=[
        "sqlite",
        pytest.param("postgresql", marks=pytest.mark.slow),
        pytest.param("mysql", marks=pytest.mark.slow),
    ]
)
def project_anywhere(request, tmp_path):
    """A project on each database that ML Metadata can use."""
    if request.param == "sqlite":
        yield Project(tmp_path)
        return
    start = {"postgresql": database_servers.postgresql, "mysql": database_servers.mysql}
    with start[request.param]() as (connection, url):
        yield Project(tmp_path, connection=connection, database=url)


@pytest.mark.parametrize("quality", [0, 1])
@pytest.mark.parametrize("perf", [0, 1])
def test_both_blessings_decide_on_pushing_and_only_evaluators_on_the_next_baseline(
    project, quality, perf
):
    uri = str(project.root / "baseline")
    LedgerFolder(uri).add(ledger_in(Gate(project.root / "before").run(FAST)))
    project.judge(FAST if perf else SLOW, quality=quality, baseline_uri=uri)
    assert project.flags("InfraBlessing", "blessed") == [perf]
    assert project.flags("PushedModel", "pushed") == [int(quality and perf)]
    assert len(list(project.serving.glob("*/saved_model.pb"))) == int(quality and perf)
    # Evaluator compares with the last model of good quality, whatever its speed; PerfEvaluator
    # never makes a model that Evaluator has refused the baseline.
    trained = str(project.root / "trained1" / "model")
    assert project.latest_blessed() == ([trained] if quality else [])


def test_manual_decisions_count_in_the_next_run(project_anywhere):
    project = project_anywhere
    for step_time_seconds in (FAST, SLOW):
        project.judge(step_time_seconds, ledger=latest_ledger())
    slow, fast = (run.run_id for run in history.read(project.database))
    for kind, run_id in (("bless", slow), ("unbless", fast)):
        arguments = [kind, run_id, "--reason", "why", "--source", project.database]
        main.cli.main(arguments, standalone_mode=False)

    project.judge(SLOW, ledger=latest_ledger())

    assert project.flags("InfraBlessing", "blessed") == [1, 0, 1]
    runs = history.read(project.database)
    path = pathlib.Path(runs[0].folders["PerfEvaluation"], "evaluation.json")
    assert [run.run_id for run in GateRecord.read(path).baseline_runs] == [slow]
    assert [run.blessed for run in runs] == [True, True, False]
    assert [run.note.split(" by ")[0] for run in runs] == ["", "blessed", "revoked"]
    assert runs[0].environment == {"device_kind": "CPU", "global_batch_size": "64"}
    # MySQL and PostgreSQL have 32 bits for an integer and 255 characters for a name.
    properties = [
        item
        for recorded in (*project.store.get_artifacts(), *project.store.get_executions())
        for item in recorded.custom_properties.items()
    ]
    assert all(abs(value.int_value) < 2**31 for _, value in properties)
    assert max(len(key) for key, _ in properties) < 100


def test_a_cached_training_is_judged_entered_and_pushed_once(project):
    project.train(FAST)
    for _ in range(2):
        project.judge_again(ledger=latest_ledger, enable_cache=True)
    assert project.states(PerfEvaluator) == ["COMPLETE", "CACHED"]
    assert project.flags("PushedModel", "pushed") == [1]
    assert len(history.read_ledger(project.database).entries) == 1
    # Without the channel it is judged again, but still counts once.
    project.judge_again(ledger=lambda metrics: latest_ledger(), enable_cache=True)
    assert project.states(PerfEvaluator)[-1] == "COMPLETE"
    (entry,) = history.read_ledger(project.database).entries
    assert (entry.pipeline, entry.node) == ("test", "PerfEvaluator")
    # The cache does not hide a manual decision.
    arguments = ["revoke", entry.run_id, "--reason", "why", "--source", project.database]
    main.cli.main(arguments, standalone_mode=False)
    project.judge_again(ledger=latest_ledger, enable_cache=True)
    assert project.states(PerfEvaluator)[-1] == "COMPLETE"
    assert history.read_ledger(project.database).entries == ()
    # Another training is compared with the existing runs.
    project.train(SLOW)
    project.judge_again(ledger=latest_ledger, enable_cache=True)
    assert len(history.read_ledger(project.database).entries) == 1


def test_every_figure_survives_at_any_size(project_anywhere):
    store = project_anywhere.store
    item = types.PerfMetrics()
    item.uri = str(project_anywhere.root / "metrics")
    figures = dict.fromkeys(metrics.CATALOGUE, 2**40)
    text = "é" * 20_000
    artifacts.publish(
        item, Ledger(), file_name="payload.json", figures=figures, labels={"plan": text}
    )
    item.mlmd_artifact.type_id = store.put_artifact_type(item.artifact_type)
    (found,) = store.get_artifacts_by_id(store.put_artifacts([item.mlmd_artifact]))
    kept = {key: value.double_value for key, value in found.custom_properties.items()}
    assert kept.pop("plan") == 0.0
    assert kept == dict.fromkeys(metrics.CATALOGUE, 2.0**40)
    assert found.custom_properties["plan"].string_value == text


def test_a_refusal_that_fails_the_pipeline_pushes_nothing_and_can_be_blessed(project, capsys):
    uri = str(project.root / "baseline")
    project.judge(FAST, baseline_uri=uri)
    with pytest.raises(errors.RefusalError) as caught:
        project.judge(SLOW, baseline_uri=uri, fail_pipeline=True)
    assert project.flags("PushedModel", "pushed") == [1]
    assert history.read(project.database)[0].state == "failed"
    assert len(LedgerFolder(uri).read().entries) == 1
    report = pathlib.Path(str(caught.value).rpartition("Report: ")[2])
    assert report.is_file()
    arguments = ["bless", str(report.parent), "--reason", "why", "--baseline-uri", uri]
    main.cli.main(arguments, standalone_mode=False)
    assert len(LedgerFolder(uri).read().entries) == 2
