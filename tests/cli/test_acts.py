"""`bless` and `unbless`: what they record, where, and what they refuse.

`cli.names` resolves the names of runs and pipelines that people type.
"""

import datetime
import json
import pathlib
import shutil

import pytest
from ml_metadata.proto import metadata_store_pb2 as mlmd

from tfx_perf.cli import main, names
from tfx_perf.config import PerfConfig
from tfx_perf.core import errors
from tfx_perf.gate import history, verdict
from tfx_perf.gate.ledger import Ledger, Override
from tfx_perf.gate.ledger_store import LedgerArtifacts, LedgerFolder
from tfx_perf.gate.run import Run
from tfx_perf.mlmd import store as metadata_store

_START = datetime.datetime(2026, 1, 2, tzinfo=datetime.timezone.utc)


def judged(name, minute, *, blessed):
    candidate = Run(
        run_id=name,
        time=_START + datetime.timedelta(minutes=minute),
        environment={"device_kind": "CPU"},
        figures={"step_time_seconds": 1 / 3, "train_loss": 0.5},
    )
    decision = verdict.evaluate(candidate, ledger=Ledger(), settings=PerfConfig().gate)
    return decision.model_copy(update={"blessed": blessed})


@pytest.fixture
def root(recorder, tmp_path):
    """Returns the folder of three judged runs' artifacts; only the first run was blessed."""
    known = Ledger()
    for minute, (name, blessed) in enumerate(
        [("2026-run-a", True), ("2026-run-b", False), ("2027-run-c", False)]
    ):
        decision = judged(name, minute, blessed=blessed)
        known = known.append(decision.candidate, keep=8) if blessed else known
        folders = {kind: tmp_path / kind / str(minute) for kind in ("evaluation", "ledger")}
        for folder in folders.values():
            folder.mkdir(parents=True)
        decision.write(folders["evaluation"] / "evaluation.json")
        known.write(folders["ledger"] / "ledger.json")
        recorder.execute(
            "PerfEvaluator",
            run=name,
            outputs={
                "InfraBlessing": {"blessed": int(blessed)},
                "tfx_perf.PerfEvaluation": {"uri": str(folders["evaluation"])},
                "tfx_perf.PerfLedger": {"uri": str(folders["ledger"])},
            },
        )
    return tmp_path


@pytest.fixture
def act(capsys):

    def run(kind, name, *options):
        arguments = [kind, name, "--reason", "new kernel, known cost", "--who", "ada", *options]
        main.cli.main(list(map(str, arguments)), standalone_mode=False)
        return capsys.readouterr().out

    return run


def test_a_run_whose_id_two_pipelines_have_is_named_with_its_pipeline(act, tmp_path):
    shared = LedgerFolder(str(tmp_path / "shared"))
    for pipeline in ("orders", "taxi"):
        run = judged("scheduled__2026", 0, blessed=True).candidate
        shared.add(Ledger(entries=(run.model_copy(update={"pipeline": pipeline, "node": "Gate"}),)))
    place = ("--baseline-uri", tmp_path / "shared")
    with pytest.raises(errors.UserError, match="--pipeline orders --node Gate; --pipeline taxi"):
        act("revoke", "scheduled__2026", *place)
    act("revoke", "scheduled__2026", *place, "--pipeline", "taxi")
    assert [entry.pipeline for entry in shared.read().entries] == ["orders"]


def test_a_clock_that_is_slow_does_not_change_the_decision(act, tmp_path):
    shared = LedgerFolder(str(tmp_path / "shared"))
    run = judged("r5", 0, blessed=True).candidate
    ahead = datetime.datetime.now(datetime.timezone.utc) + datetime.timedelta(hours=1)
    by_another = Override(kind="bless", run_id="r5", who="bob", time=ahead, reason="good")
    shared.add(Ledger(entries=(run,), acts=(by_another,)))
    act("revoke", "r5", "--baseline-uri", tmp_path / "shared")
    assert shared.read().entries == ()
    act("bless", "r5", "--baseline-uri", tmp_path / "shared")
    assert entries(shared.read()) == ["r5"]


def entries(ledger):
    return [entry.run_id for entry in ledger.entries]


@pytest.mark.usefixtures("root")
def test_a_refused_run_that_a_person_blesses_is_in_the_next_ledger(database, act):
    said = act("bless", "2026-run-b", "--source", database)
    expected = "2026-run-b is blessed: later runs are compared with it. Recorded in ML Metadata."
    assert " ".join(said.split()) == expected

    ledger = LedgerArtifacts(str(database), pipeline="taxi").read()
    assert entries(ledger) == ["2026-run-a", "2026-run-b"]
    assert ledger.entries[-1].figures["step_time_seconds"] == 1 / 3  # all digits, from the payload
    (recorded,) = ledger.acts
    assert (recorded.kind, recorded.who, recorded.reason) == (
        "bless", "ada", "new kernel, known cost",
    )  # fmt: skip
    # The newest artifact alone has all of it, for resolvers that know only that one.
    store = metadata_store.open_store(str(database))
    newest = max(store.get_artifacts_by_type("tfx_perf.PerfLedger"), key=lambda item: item.id)
    assert Ledger.read(pathlib.Path(newest.uri, "ledger.json")) == ledger
    (execution,) = store.get_executions_by_type("tfx_perf.Acts")
    assert execution.last_known_state == mlmd.Execution.COMPLETE
    assert execution.custom_properties["who"].string_value == "ada"

    refused, blessed, _ = (run.blessed for run in history.read(str(database)))
    assert (refused, blessed) == (False, True)
    note = history.read(str(database))[1].note
    assert note.startswith("blessed by ada on 20")
    assert note.endswith(": new kernel, known cost")


@pytest.mark.usefixtures("root")
def test_an_unblessed_run_counts_no_longer_until_it_is_blessed_again(database, act):
    place = LedgerArtifacts(str(database), pipeline="taxi")
    assert "is no longer blessed" in act("revoke", "2026-run-a", "--source", database)
    assert entries(place.read()) == []
    again = " ".join(act("revoke", "2026-run-a", "--source", database).split())
    assert "is not blessed, so it does not count as baseline anyway" in again
    assert len(place.read().acts) == 1
    act("bless", "2026-run-a", "--source", database)
    assert entries(place.read()) == ["2026-run-a"]
    assert [one.kind for one in place.read().acts] == ["unbless", "bless"]


def test_without_ml_metadata_an_evaluation_goes_into_the_folder(tmp_path, act):
    judged("lonely", 0, blessed=False).write(tmp_path / "evaluation.json")
    uri = str(tmp_path / "baseline")
    for name in (tmp_path / "evaluation.json", tmp_path):  # the second time it counts already
        answer = json.loads(act("bless", name, "--baseline-uri", uri, "--json"))
        assert answer["run_id"] == "lonely"
    assert answer["recorded"] is False
    assert entries(LedgerFolder(uri).read()) == ["lonely"]
    act("revoke", "lonely", "--baseline-uri", uri)
    assert entries(LedgerFolder(uri).read()) == []
    act("bless", "lonely", "--baseline-uri", uri)
    assert entries(LedgerFolder(uri).read()) == ["lonely"]


def test_a_run_from_the_cache_is_revoked_by_its_training(tmp_path, act):
    trained = judged("trained", 0, blessed=True).candidate.model_copy(update={"artifact": "a"})
    LedgerFolder(str(tmp_path / "base")).add(Ledger(entries=(trained,)))
    decision = judged("cached", 1, blessed=True)
    cached = decision.candidate.model_copy(update={"artifact": "a"})
    decision.model_copy(update={"candidate": cached}).write(tmp_path / "evaluation.json")
    said = act("revoke", tmp_path / "evaluation.json", "--baseline-uri", tmp_path / "base")
    assert "trained is no longer blessed" in said
    assert LedgerFolder(str(tmp_path / "base")).read().entries == ()


@pytest.mark.usefixtures("root")
def test_with_both_places_the_folder_is_written_and_overrules_the_artifact(database, tmp_path, act):
    uri = str(tmp_path / "baseline")
    before = database.read_bytes()
    act("revoke", "2026-run-a", "--source", database, "--baseline-uri", uri)
    assert database.read_bytes() == before
    in_artifacts = LedgerArtifacts(str(database), pipeline="taxi").read()
    assert entries(in_artifacts) == ["2026-run-a"]
    assert entries(in_artifacts.merge(LedgerFolder(uri).read())) == []


@pytest.mark.usefixtures("root")
@pytest.mark.parametrize(
    ("kind", "name", "words"),
    [
        ("bless", "2026-run", "run=2026-run, with which 2 begin: 2026-run-b, 2026-run-a."),
        ("bless", "2026-rnu-b", "Expected one run on record, e.g. 2026-run-b"),
        ("revoke", "2028-run-c", "run on record, e.g. 2027-run-c, .*Received: run=2028-run-c"),
        ("bless", "", "run=, with which"),
        ("bless 2026-run-b --node", "Gatte", "one node on record, e.g. PerfEvaluator."),
    ],
)
def test_an_unknown_run_is_answered_with_the_nearest_names(database, act, kind, name, words):
    with pytest.raises(errors.UserError, match=words):
        act(*kind.split(), name, "--source", database)


@pytest.mark.usefixtures("root")
@pytest.mark.parametrize(
    ("decision", "answer"),
    [
        ("revoke 2027", "2027-run-c is not blessed, so it does not count as baseline anyway"),
        ("revoke unjudged", "unjudged is not blessed, so it does not count as baseline anyway"),
        ("revoke ancient", "ancient is no longer in the ledger, so it does not count as"),
        ("bless 2026-run-a", "2026-run-a is blessed already"),
    ],
)
def test_a_decision_that_changes_nothing_is_answered_and_not_recorded(
    database, recorder, act, decision, answer
):
    kind, name = decision.split()
    recorder.execute("OptimizedTrainer", run="unjudged", state=mlmd.Execution.FAILED)
    recorder.execute(
        "PerfEvaluator", run="ancient",
        outputs={"InfraBlessing": {"blessed": 1}, "tfx_perf.PerfEvaluation": {}},
    )  # fmt: skip
    before = database.read_bytes()
    said = " ".join(act(kind, name, "--source", database).split())
    assert said.startswith(answer)
    assert said.endswith("; nothing was recorded.")
    document = json.loads(act(kind, name, "--source", database, "--json"))
    assert document["kind"] == {"bless": "bless", "revoke": "unbless"}[kind]  # as always written
    assert document["recorded"] is False
    assert database.read_bytes() == before


@pytest.mark.usefixtures("root")
def test_a_run_that_was_never_judged_cannot_be_blessed(database, recorder, act):
    recorder.execute("OptimizedTrainer", run="unjudged", state=mlmd.Execution.FAILED)
    with pytest.raises(errors.UserError, match="run=unjudged, which is failed and has no evalua"):
        act("bless", "unjudged", "--source", database)


@pytest.mark.usefixtures("root")
def test_one_of_several_pipelines_must_be_named(database, recorder, act):
    recorder.execute("Trainer", pipeline="other", run="x")
    with pytest.raises(errors.UserError, match="name of a pipeline, one of other, taxi"):
        act("bless", "2026-run-b", "--source", database)
    with pytest.raises(errors.UserError, match="Received: run=2026-run-b"):
        act("bless", "2026-run-b", "--source", database, "--pipeline", "other")
    act("bless", "2026-run-b", "--source", database, "--pipeline", "taxi")


def test_names_that_are_not_listed_are_counted():
    known = [f"run-{number}" for number in range(7)]
    with pytest.raises(errors.UserError, match=r"7 begin: .*run-4 and 2 more\."):
        names.pick("run", known)


def test_history_shows_the_runs_even_if_their_files_are_damaged(root, database, caplog):
    (root / "ledger" / "2" / "ledger.json").write_text("{")
    (root / "evaluation" / "0" / "evaluation.json").write_text("{}")
    runs = history.read(str(database))
    assert [run.blessed for run in runs] == [False, False, True]
    assert [bool(run.environment) for run in runs] == [True, True, False]
    assert "Decisions of people are not shown: Expected a JSON file" in caplog.text


def test_a_decision_that_cannot_be_recorded_changes_nothing(root, database, act):
    before = database.read_bytes()
    path = root / "ledger" / "2" / "ledger.json"
    path.write_text(path.read_text().replace("run-a", "run-z"))
    with pytest.raises(errors.UserError, match="checksum"):
        act("bless", "2026-run-b", "--source", database)
    shutil.rmtree(root / "ledger")
    with pytest.raises(errors.UserError, match="a ledger whose folder is at hand"):
        act("bless", "2026-run-b", "--source", database)
    assert database.read_bytes() == before
