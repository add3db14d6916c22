"""The runs on record, from all sources: their states and figures, as a table or a page."""

import datetime
import functools
import json
import os
import re
import sqlite3

import mlmd_recorder
import pytest
from ml_metadata.proto import metadata_store_pb2 as mlmd
from perf_records import training_record

from tfx_perf.cli import history, main
from tfx_perf.config.gate import GateSettings
from tfx_perf.core import errors
from tfx_perf.gate.ledger import Ledger, Override
from tfx_perf.gate.ledger_store import LedgerFolder
from tfx_perf.gate.run import Run
from tfx_perf.gate.verdict import evaluate
from tfx_perf.mlmd import runs as recorded_runs

_START = datetime.datetime(2026, 1, 2, tzinfo=datetime.timezone.utc)


@pytest.fixture
def said(capsys):
    """Calls the command; returns its output."""

    def call(*arguments):
        main.cli.main([*map(str, arguments)], standalone_mode=False)
        return capsys.readouterr().out

    return call


def in_line(text):
    return " ".join(text.split())


def record_run(recorder, run, *, speed, blessed, pipeline="taxi", baseline=()):
    execute = functools.partial(recorder.execute, pipeline=pipeline, run=run)
    figures = {"examples_per_second": speed, "step_time_seconds": 0.00025, "plan": "fit",
               "not_in_the_catalogue": 3.0}  # fmt: skip
    trained = execute(
        "OptimizedTrainer", outputs={"tfx_perf.PerfMetrics": figures, "Model": {"train_loss": 99.0}}
    )
    execute("InfraValidator", outputs={"InfraBlessing": {"blessed": 1}})
    failed = {"failed_rule_count": float(not blessed)}
    execute(
        "PerfEvaluator", inputs=[*trained, *baseline],
        outputs={"InfraBlessing": {"blessed": int(blessed)}, "tfx_perf.PerfEvaluation": failed},
    )  # fmt: skip
    execute("Pusher", outputs={"PushedModel": {"pushed": int(blessed)}})
    return trained


def test_runs_newest_first_with_their_own_figures_and_nothing_is_changed(recorder, database):
    first = record_run(recorder, "run-1", speed=1000.0, blessed=True)
    record_run(recorder, "run-2", speed=500.0, blessed=False, baseline=first)
    before = database.read_bytes()

    newest, oldest = recorded_runs.read_runs(database)

    assert database.read_bytes() == before
    assert (newest.run_id, oldest.run_id) == ("run-2", "run-1")
    assert newest.pipeline == "taxi"
    assert newest.created >= oldest.created
    # The baseline, an input, must not hide the run's own speed; strings, unknown keys and
    # what other artifacts carry are left out.
    assert newest.metrics == {
        "examples_per_second": 500.0, "step_time_seconds": 0.00025, "failed_rule_count": 1.0,
    }  # fmt: skip
    assert (newest.blessed, newest.pushed) == (False, False)
    assert (oldest.blessed, oldest.pushed) == (True, True)


def test_runs_on_several_replicas_are_distinguished_from_those_on_one(recorder, database, said):
    counts = [("one", 1.0, 1.0), ("two", 1.0, 2.0), ("many", 2.0, 4.0)]
    for run, workers, replicas in counts:
        figures = {"worker_count": workers, "replica_count": replicas}
        recorder.execute("Trainer", run=run, outputs={"tfx_perf.PerfMetrics": figures})
    recorder.execute("Trainer", run="old", outputs={"tfx_perf.PerfMetrics": {"train_loss": 1.0}})
    found = {run.run_id: run.trained_on for run in recorded_runs.read_runs(database)}
    expected = {"one": "1 replica", "two": "2 replicas", "many": "2 workers and 4 replicas"}
    assert found == {**expected, "old": ""}
    page = database.with_name("page.html")
    shown = said("history", database, "--html", page)
    assert "trained on" in shown
    for words in expected.values():
        assert words.split()[-1] in shown
        assert words in page.read_text()


def test_only_runs_on_as_many_replicas_are_in_one_trend(recorder, database, said):
    page = database.with_name("page.html")
    for run, replicas, plan in (("a", 1.0, "fit"), ("b", 2.0, "fit"), ("c", 1.0, "calls")):
        figures = {"replica_count": replicas, "step_time_seconds": replicas, "plan": plan}
        recorder.execute("Trainer", run=run, outputs={"tfx_perf.PerfMetrics": figures})
    shown = in_line(said("history", database, "--html", page))
    assert "c was trained with calls, a with fit." in shown
    assert "Trends of 1 replica, oldest run first" in shown
    assert "step time ▅▅ 1.00 s 1.00 s 1.00 s" in shown
    assert "Trends of 2 replicas" not in shown
    html = page.read_text()
    assert "Trend of step time, 1 replica" in html
    assert "Trend of step time, 2 replicas" in html


def test_limit_and_pipeline(recorder, database):
    for number in range(3):
        record_run(recorder, f"a-{number}", speed=1.0, blessed=True, pipeline="a")
    record_run(recorder, "b-0", speed=1.0, blessed=True, pipeline="b")

    runs = recorded_runs.read_runs(database, pipeline="a", limit=2)

    assert [run.run_id for run in runs] == ["a-2", "a-1"]
    record_run(recorder, "a-9", speed=3.0, blessed=False, pipeline="b")  # as Airflow names runs
    record_run(recorder, "a-9", speed=2.0, blessed=True, pipeline="a")
    for name, speed in (("a", 2.0), ("b", 3.0)):
        (run,) = [r for r in recorded_runs.read_runs(database, pipeline=name) if r.run_id == "a-9"]
        assert (run.pipeline, run.metrics["examples_per_second"]) == (name, speed)
        assert run.blessed is (name == "a")
    assert [r.run_id for r in recorded_runs.read_runs(database)].count("a-9") == 2
    with pytest.raises(errors.UserError, match=r"a, b.*Received: pipeline=c"):
        recorded_runs.read_runs(database, pipeline="c")


def record_two_gates(recorder, run, *, slow):
    """Records a run of a pipeline with two trainers, whose gates share a plan."""
    (plan,) = recorder.execute(
        "InputTuner", run=run, outputs={"tfx_perf.InputPlan": {"chosen_candidate": "columns"}}
    )
    for name, speed in (("a", 100.0), ("b", 50.0 if slow else 200.0)):
        (metrics,) = recorder.execute(
            f"Trainer.{name}", run=run, inputs=[plan],
            outputs={"tfx_perf.PerfMetrics": {"examples_per_second": speed, "plan": name}},
        )  # fmt: skip
        blessed = int(not slow or name == "a")
        blessing, _ = recorder.execute(
            f"Gate.{name}", run=run, inputs=[metrics, plan],
            outputs={"InfraBlessing": {"blessed": blessed}, "tfx_perf.PerfEvaluation": {}},
        )  # fmt: skip
        recorder.execute(
            f"Pusher.{name}", run=run, inputs=[blessing],
            outputs={"PushedModel": {"pushed": blessed}},
        )  # fmt: skip


def test_a_run_with_two_gates_is_one_for_each(recorder, database, said):
    record_two_gates(recorder, "run-1", slow=True)
    found = {run.node: run for run in recorded_runs.read_runs(database)}
    assert set(found) == {"Gate.a", "Gate.b"}
    for node, speed, blessed in (("Gate.a", 100.0, True), ("Gate.b", 50.0, False)):
        run = found[node]
        assert run.metrics == {"examples_per_second": speed}
        assert (run.blessed, run.pushed) == (blessed, blessed)
        assert run.plans == {"input plan": "columns", "training plan": node[-1]}
    record_two_gates(recorder, "run-2", slow=False)
    newest = recorded_runs.read_runs(database, limit=1)
    assert {(run.run_id, run.node) for run in newest} == {("run-2", "Gate.a"), ("run-2", "Gate.b")}
    shown = said("history", database)
    assert "2 runs of taxi" in shown
    # A trend of its own for each: their times have nothing to do with each other.
    a, b = shown[shown.index("Trends of Gate.a") :], shown[shown.index("Trends of Gate.b") :]
    ranges = [re.search(r"examples per second +(\S+) +(\S+) +(\S+)", part) for part in (a, b)]
    assert [found.groups()[1:] for found in ranges] == [("100/s", "100/s"), ("50.0/s", "200/s")]


def test_a_run_that_reached_no_gate_is_in_the_trend_of_the_only_one(recorder, database, said):
    for number in range(2):
        record_run(recorder, f"run-{number}", speed=1000.0, blessed=True)
    figures = {"tfx_perf.PerfMetrics": {"examples_per_second": 500.0, "plan": "fit"}}
    recorder.execute("OptimizedTrainer", pipeline="taxi", run="run-2", outputs=figures)
    shown = said("history", database)
    assert "PerfEvaluator" not in shown
    assert shown.count("oldest run first") == 1
    assert re.search(r"examples per second +\S{3} +500/s +1,000/s +500/s", shown)


def test_the_limit_counts_runs_of_the_same_name_in_several_pipelines(recorder, database):
    """Airflow gives the runs of all DAGs the same names."""
    for number in range(2):
        for pipeline in ("taxi", "orders"):
            record_run(recorder, f"run-{number}", speed=1.0, blessed=True, pipeline=pipeline)
    for limit in (1, 2, 3):
        assert len(recorded_runs.read_runs(database, limit=limit)) == limit


def test_the_reason_of_the_newest_refusal_is_shown(recorder, database, said):
    why = {"tfx_perf.PerfEvaluation": {"headline": "Refused by 2 of 17 checks.", "uri": "/e/7"}}
    recorder.execute("Gate", run="run-1", outputs={"InfraBlessing": {"blessed": 0}, **why})
    shown = in_line(said("history", database))
    assert "run-1: Refused by 2 of 17 checks. Report: /e/7/report.html" in shown


def test_a_run_of_several_gates_is_named_with_its_gate(recorder, database, said):
    record_two_gates(recorder, "run-1", slow=False)
    record_two_gates(recorder, "run-2", slow=True)
    compared = ["compare", "run-1", "run-2", "--source", database, "--json"]
    with pytest.raises(errors.UserError, match=r"--node Gate\.a; .*--node Gate\.b"):
        said(*compared)
    document = json.loads(said(*compared, "--node", "Gate.b"))
    figures = {item["name"]: item for item in document["figures"]}
    assert figures["examples_per_second"]["ratio"] == 0.25  # noqa: PLR2004


@pytest.mark.parametrize(
    ("states", "expected"),
    [
        ([("A", "COMPLETE"), ("B", "CACHED")], "complete"),
        ([("A", "COMPLETE"), ("B", "RUNNING")], "running"),
        ([("A", "FAILED"), ("B", "RUNNING")], "failed"),
        ([("A", "FAILED"), ("A", "COMPLETE")], "complete"),
        ([("A", "COMPLETE"), ("A", "FAILED")], "failed"),
    ],
)
def test_state_is_that_of_each_nodes_last_try(recorder, database, states, expected):
    for node, state in states:
        recorder.execute(node, state=mlmd.Execution.State.Value(state))

    (run,) = recorded_runs.read_runs(database)

    assert run.state == expected
    assert run.blessed is None and run.pushed is None


def test_command_writes_a_table_with_human_units(recorder, database, call_command):
    record_run(recorder, "run-1", speed=163000.0, blessed=False)

    done = call_command("history", database)

    assert done.returncode == 0, done.stderr
    assert "1 run of taxi" in done.stdout
    (row,) = [line for line in done.stdout.splitlines() if "run-1" in line]
    assert re.split(r"  +", row.strip()) == [
        "run-1", "163,000/s", "250 µs", "–", "–", "–", "complete, refused, not pushed",
    ]  # fmt: skip


def test_a_cached_training_is_distinguished_from_a_real_one(recorder, database, said):
    for run, state in (("trained", mlmd.Execution.COMPLETE), ("served", mlmd.Execution.CACHED)):
        outputs = {"tfx_perf.PerfMetrics": {"train_loss": 1.0}}
        recorder.execute("Trainer", run=run, state=state, outputs=outputs)
        recorder.execute("Examples", run=run, state=mlmd.Execution.CACHED)
    found = {run.run_id: run.is_cached for run in recorded_runs.read_runs(database)}
    assert found == {"trained": False, "served": True}
    page = database.with_name("page.html")
    shown = in_line(said("history", database, "--html", page))
    assert "complete, training from cache" in shown
    assert page.read_text().count("complete, training from cache") == 1


@pytest.mark.parametrize("kinds", [("metrics",), ("metrics", "evaluation"), ("evaluation",)])
def test_the_folder_of_a_script_has_its_last_run(kinds, tmp_path, said):
    training = training_record(0.01, runs_before=2)
    decision = evaluate(
        Run.of_training(training, figures={}, settings=GateSettings(), run_id="now"),
        ledger=Ledger(),
        settings=GateSettings(),
    )
    records = {"metrics": training, "evaluation": decision}
    folder = tmp_path / "perf"
    folder.mkdir()
    for kind in kinds:
        records[kind].write(folder / f"{kind}.json")
    os.utime(folder / f"{kinds[-1]}.json", (2e9, 2e9))
    (run,) = json.loads(said("history", folder, "--json"))
    assert run["metrics"]["step_time_seconds"] == 0.01  # noqa: PLR2004
    assert run["blessed"] is (True if kinds[-1] == "evaluation" else None)
    title = "the last of 3 runs" if "metrics" in kinds else "1 run"
    assert title in said("history", folder)
    with pytest.raises(errors.UserError, match=f"of a run's figures, e.g. {folder}"):
        said("history", tmp_path)
    for command in (["calibrate", folder], ["bless", "now", "--reason", "x", "--source", folder]):
        with pytest.raises(errors.UserError, match="of one run. Give the gate.baseline_uri"):
            said(*command)


@pytest.mark.parametrize("quality", [{}, {"auc": 0.8}])
def test_a_metric_that_no_run_has_is_an_error(quality, tmp_path, said):
    run = Run(
        run_id="a", time=_START, environment={}, figures={"step_time_seconds": 1.0},
        evaluation=quality,
    )  # fmt: skip
    Ledger(entries=(run,)).write(tmp_path / "ledger.json")
    nearest = "e.g. evaluation/auc" if quality else "and none is on record"
    with pytest.raises(errors.UserError, match=nearest):
        said("history", tmp_path / "ledger.json", "--metric", "evaluation/acu")


def test_command_writes_json_of_all_metrics_or_of_some_by_prefix(recorder, database, said):
    record_run(recorder, "run-1", speed=1000.0, blessed=True)
    everything = json.loads(said("history", database, "--json"))
    metrics = ["--metric", "mfu_ratio", "--metric", "examples"]
    chosen = json.loads(said("history", database, "--json", *metrics))
    assert everything[0]["run_id"] == "run-1"
    assert everything[0]["blessed"] is True
    assert set(everything[0]["metrics"]) == {
        "examples_per_second", "step_time_seconds", "failed_rule_count",
    }  # fmt: skip
    assert chosen[0]["metrics"] == {"mfu_ratio": None, "examples_per_second": 1000.0}


def test_database_without_runs(recorder, database, call_command):
    done = call_command("history", database)
    assert done.returncode == 0
    assert done.stdout.startswith("No runs found in ")
    assert call_command("history", database, "--json").stdout.strip() == "[]"


def test_missing_file_is_not_created(database):
    with pytest.raises(errors.UserError, match=f"Received: path={database}"):
        recorded_runs.read_runs(database)
    assert not database.exists()


@pytest.mark.parametrize("kind", ["text", "other database", "folder", "empty"])
def test_file_that_is_no_metadata(tmp_path, kind):
    path = tmp_path / "file.db"
    if kind == "text":
        path.write_text("not a database " * 100, encoding="utf-8")
    elif kind == "folder":
        path.mkdir()
    elif kind == "empty":
        path.touch()
    else:
        with sqlite3.connect(path) as connection:
            connection.execute("CREATE TABLE other (value)")
        connection.close()
    with pytest.raises(errors.UserError, match=f"Received: path={path}") as caught:
        recorded_runs.read_runs(path)
    assert "\n" not in str(caught.value)
    assert "CREATE" not in str(caught.value)  # no SQL


def test_unknown_metric_suggests_a_similar_one(call_command, database):
    done = call_command("history", database, "--metric", "example_per_second")
    assert done.returncode == 2
    assert "examples_per_second" in done.stderr
    assert "Received: metric=example_per_second" in done.stderr
    assert len(done.stderr.splitlines()) == 1


@pytest.mark.one_case
@pytest.mark.parametrize("kind", ["postgresql", "mysql"])
@pytest.mark.parametrize(
    ("rest", "received"),
    [
        ("user:secret@127.0.0.1:1/mlmd", "url={}://127.0.0.1:1/mlmd"),
        ("user:secret@127.0.0.1:1", "url={}://127.0.0.1:1"),
        ("user:secret@127.0.0.1:x/mlmd", "another form of URL"),
    ],
)
def test_a_server_that_does_not_answer_is_one_line_without_the_password(
    run_command, kind, rest, received
):
    done = run_command("history", f"{kind}://{rest}")
    assert done.returncode == 2
    (line,) = done.stderr.splitlines()
    assert received.format(kind) in line
    assert "secret" not in done.stderr


@pytest.fixture
def ledger():
    """Four runs; a person has unblessed the third."""
    entries = tuple(
        Run(
            run_id=f"run-{minute}",
            time=_START + datetime.timedelta(minutes=minute),
            environment={"device_kind": "CPU"},
            figures={"step_time_seconds": step_time_seconds, "train_loss": 0.5},
        )
        for minute, step_time_seconds in enumerate((0.001, 0.002, 0.008, 0.001))
    )
    act = Override(
        kind="unbless", run_id="run-2", who="ada", time=_START, reason="[bold]noisy host"
    )
    return Ledger(entries=entries).merge(Ledger(acts=(act,)))


def in_file(ledger, folder):
    ledger.write(folder / "ledger.json")
    return folder / "ledger.json"


def in_folder(ledger, folder):
    LedgerFolder(str(folder)).add(ledger)
    return folder


@pytest.mark.parametrize("source", [in_file, in_folder])
def test_a_ledger_has_a_history_too(ledger, source, tmp_path, said):
    path = source(ledger, tmp_path)
    newest, unblessed, _ = json.loads(said("history", path, "--json", "--limit", "3"))
    assert (newest["run_id"], newest["blessed"]) == ("run-3", True)
    assert (unblessed["run_id"], unblessed["blessed"]) == ("run-2", False)
    assert unblessed["note"] == "revoked by ada on 2026-01-02: [bold]noisy host"
    assert newest["environment"] == {"device_kind": "CPU"}


@pytest.mark.one_case
@pytest.mark.parametrize("root", [".", "artifacts", "below/.."])
def test_a_folder_is_resolved_to_a_database_in_below_or_beside_it(
    recorder, database, call_command, root
):
    record_run(recorder, "run-1", speed=1000.0, blessed=True)
    folder = database.parent
    for name in ("artifacts/Trainer", "below"):
        (folder / name).mkdir(parents=True)
    if root == "below/..":
        database = database.rename(folder / "below" / database.name)
    done = call_command("history", folder / root, "--json")
    assert done.returncode == 0, done.stderr
    assert [run["run_id"] for run in json.loads(done.stdout)] == ["run-1"]


@pytest.mark.parametrize(
    ("command", "files", "words"),
    [
        ("history", ["Trainer/model/a"], ["a ledger's JSON file", "has none. Give the file"]),
        ("history", ["Trainer/model/a", "a/metadata.sqlite", "b/metadata.sqlite"],
         ["several. Give one of them: ", "b/metadata"]),
        ("history", [], [", a folder that holds neither"]),
        ("calibrate", [], [", a folder that holds neither"]),
    ],
)  # fmt: skip
def test_a_folder_without_a_database_is_refused_in_one_line(
    tmp_path, call_command, command, files, words
):
    for name in files:
        (tmp_path / name).parent.mkdir(parents=True)
        (tmp_path / name).touch()
    done = call_command(command, tmp_path)
    assert (done.returncode, done.stdout) == (2, "")
    (line,) = done.stderr.splitlines()
    for word in [f"Received: path={tmp_path}", *words]:
        assert word in line


@pytest.mark.one_case
def test_a_folders_database_may_have_a_name_that_people_give_it(recorder, database, call_command):
    record_run(recorder, "run-1", speed=1000.0, blessed=True)
    folder = database.rename(database.with_name("mlmd.db")).parent
    done = call_command("history", folder, "--json")
    assert [run["run_id"] for run in json.loads(done.stdout)] == ["run-1"], done.stderr


def test_other_programs_json_in_a_folder_is_no_ledger(tmp_path, call_command):
    (tmp_path / "package.json").write_text('{"name": "x"}')
    done = call_command("history", tmp_path)
    assert (done.returncode, done.stdout) == (2, "")
    assert f"Received: path={tmp_path}, which has none." in done.stderr


def test_a_ledger_without_runs_of_a_pipeline_says_whose(ledger, tmp_path, said):
    of_taxi = ledger.entries[0].model_copy(update={"pipeline": "taxi"})
    for path in (tmp_path / "mirror", tmp_path / "ledger.json"):
        one = Ledger(entries=(of_taxi,))
        one.write(path) if path.suffix else LedgerFolder(str(path)).add(one)
        shown = in_line(said("history", path, "--pipeline", "orders"))
        assert shown == f"No runs of orders found in {path}."


def test_trends_mark_the_verdicts(ledger, tmp_path, call_command):
    done = call_command("history", in_file(ledger, tmp_path))
    assert done.returncode == 0, done.stderr
    lines = [re.split(r"  +", line.strip()) for line in done.stdout.splitlines()]
    assert ["verdict", "●●✗●"] in lines
    assert ["step time", "▁▂█▁", "1.00 ms", "8.00 ms", "1.00 ms"] in lines
    assert ["train loss", "▅▅▅▅", "0.5", "0.5", "0.5"] in lines
    assert "[bold]noisy host" in done.stdout


def test_the_page_opens_without_a_network(ledger, tmp_path, said):
    page, path = tmp_path / "history.html", in_file(ledger, tmp_path)
    said("history", path, "--html", page)
    html = page.read_text()
    assert "4 runs, 3 blessed, 1 refused or revoked." in html
    assert html.count("<svg") == 2  # of the default metrics, these runs have two
    assert "[bold]noisy host" in html
    assert not re.search(r"(src|href)=.http|<script|<link", html)
    with pytest.raises(errors.UserError, match="Received: html=/proc/page.html"):
        said("history", path, "--html", "/proc/page.html")


def test_sparkline():
    assert history.bars([]) == ""
    assert history.bars([None, None]) == "  "
    assert history.bars([3.0, None, 3.0]) == "▅ ▅"
    assert history.bars([-1.0, 0.0, None, 1.0]) == "▁▅ █"


def test_relative_folders_are_found_from_the_database(tmp_path, monkeypatch):
    project = tmp_path / "project"
    (project / "artifacts" / "7").mkdir(parents=True)
    database = project / "metadata" / "metadata.sqlite"
    database.parent.mkdir()
    monkeypatch.chdir(project)
    recorder = mlmd_recorder.Recorder(database)
    recorder.execute("OptimizedTrainer", outputs={"tfx_perf.PerfMetrics": {"uri": "artifacts/7"}})
    monkeypatch.chdir(tmp_path)
    (run,) = recorded_runs.read_runs(database)
    assert run.folders == {"PerfMetrics": str(project / "artifacts" / "7")}
