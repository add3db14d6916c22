"""`compare`: the differences, their order, and the sources of runs."""

import dataclasses
import datetime
import json

import pytest
from perf_records import training_record

from tfx_perf.cli import compare as comparison
from tfx_perf.cli import main
from tfx_perf.core import errors
from tfx_perf.gate.ledger import Ledger
from tfx_perf.gate.run import Run
from tfx_perf.mlmd.runs import RecordedRun
from tfx_perf.training.speedups.plan import TrainingPlan

_NOW = datetime.datetime(2026, 1, 2, tzinfo=datetime.timezone.utc)
_TIMES = {"setup_time_seconds": 1.0, "time_to_first_step_seconds": 30.0,
          "trial_time_seconds": 20.0, "fit_time_seconds": 100.0}  # fmt: skip


def known(**figures):
    return RecordedRun(
        run_id="a", pipeline="", created=_NOW, state="complete", metrics=figures, blessed=None,
        pushed=None, folders={},
    )  # fmt: skip


def test_the_largest_factor_comes_first_and_rows_without_one_last():
    before = known(step_time_seconds=1.0, train_loss=1.0, oom_count=0.0, mfu_ratio=0.3,
                   parameter_count=7.0)  # fmt: skip
    after = known(step_time_seconds=1.5, train_loss=0.1, oom_count=2.0, parameter_count=7.0)
    found = comparison.compare(before, after)
    order = [difference.name for difference in found.figures]
    assert order[:2] == ["train_loss", "step_time_seconds"]
    assert set(order[2:]) == {"oom_count", "mfu_ratio"}
    assert {item.name: item.better for item in found.figures} == {
        "train_loss": True, "step_time_seconds": False, "oom_count": False, "mfu_ratio": None,
    }  # fmt: skip
    assert found.equal_count == 1


def test_the_parts_of_the_time_add_up_to_the_whole():
    after = _TIMES | {"time_to_first_step_seconds": 5.0, "trial_time_seconds": 0.0,
                      "fit_time_seconds": 90.0}  # fmt: skip
    parts = comparison.compare(known(**_TIMES), known(**after)).times
    assert [(part.name, part.seconds) for part in parts] == [
        ("trials", -20.0), ("further steps, and what is between them", 15.0), ("first step", -5.0),
        ("before fit", 0.0),
    ]  # fmt: skip
    assert sum(part.before for part in parts) == 101.0
    assert comparison.compare(known(**_TIMES), known(fit_time_seconds=1.0)).times == ()


def test_the_steps_are_divided_into_computing_and_each_kind_of_waiting():
    # 100 further steps of 400 ms, and 30 s beside them, of which checkpoints take 10 s.
    alone = _TIMES | {
        "examples_per_second": 160.0, "global_batch_size": 64.0, "train_step_count": 110.0,
        "steps_per_execution": 10.0, "checkpoint_time_seconds": 10.0, "replica_count": 1.0,
        "python_overhead_ratio": 0.1, "input_wait_ratio": 0.2,
    }  # fmt: skip
    of_two = alone | {
        "examples_per_second": 128.0, "replica_count": 2.0, "communication_share_ratio": 0.3,
        "load_imbalance_ratio": 0.1,
    }  # fmt: skip
    parts = comparison.compare(known(**alone), known(**of_two)).times
    assert sum(part.before for part in parts) == sum(part.after for part in parts) == 101.0
    found = {part.name: (part.before, pytest.approx(part.after)) for part in parts}
    others = ("before fit", "trials", "saving checkpoints")
    assert {name: pair for name, pair in found.items() if name not in ("first step", *others)} == {
        "further steps: compute (the rest)": (28.0, 15.0),
        "further steps: host (Keras, callbacks)": (4.0, 5.0),
        "further steps: waiting for other replicas": (0.0, 20.0),
        "further steps: waiting for input": (8.0, 10.0),
        "validation, and all else between steps": (20.0, 10.0),
    }
    assert found["saving checkpoints"] == (10.0, 10.0)
    unknown = {key: value for key, value in of_two.items() if key != "input_wait_ratio"}
    names = [part.name for part in comparison.compare(known(**alone), known(**unknown)).times]
    assert "further steps: waiting for input" not in names  # it is in the rest of both
    # Steps are not more than the whole, nor waits than the steps.
    slow = of_two | {"examples_per_second": 32.0, "input_wait_ratio": 0.9}
    for part in comparison.compare(known(**alone), known(**slow)).times:
        assert part.after >= 0


@pytest.fixture
def source(tmp_path):
    entries = [
        Run(
            run_id=f"2026-{name}", time=_NOW, environment={"device_kind": kind},
            figures={"step_time_seconds": step_time_seconds, "train_loss": 0.5},
            evaluation={"accuracy": accuracy},
        )  # fmt: skip
        for name, kind, step_time_seconds, accuracy in (
            ("a", "CPU", 0.25, 0.8), ("b", "A100", 0.75, 0.9),
        )  # fmt: skip
    ]
    Ledger(entries=tuple(entries)).write(tmp_path / "ledger.json")
    return tmp_path / "ledger.json"


def test_runs_of_a_ledger(source, call_command):
    done = call_command("compare", "2026-a", "2026-b", "--source", source)
    assert done.returncode == 0, done.stderr
    for words in ("Environment differs", "A100", "250 ms", "750 ms", "+200.0%",
                  "  accuracy ", "+12.5%", "1 further figure is equal."):  # fmt: skip
        assert words in done.stdout


def test_figures_of_an_earlier_version_are_dropped(tmp_path, call_command):
    ledger = Ledger(entries=[
        Run(run_id=f"2026-{name}", time=_NOW, environment={},
            figures={"step_time_seconds": speed, "cold_examples_per_second": 1 / speed},
            evaluation={})
        for name, speed in (("a", 0.25), ("b", 0.75))
    ])  # fmt: skip
    ledger.write(tmp_path / "ledger.json")
    done = call_command("compare", "2026-a", "2026-b", "--source", tmp_path / "ledger.json")
    assert done.returncode == 0, done.stderr
    assert "step time" in done.stdout and "cold " not in done.stdout


def test_about_equal_sizes_are_comparable():
    before, after, larger = (
        dataclasses.replace(known(), environment={"parameter_count": count})
        for count in ("3169", "3233", "6000")
    )
    assert comparison.compare(before, after).environment == {}
    assert comparison.compare(before, larger).environment == {"parameter_count": ("3169", "6000")}


def test_json_has_plain_units(source, capsys):
    main.cli.main(
        ["compare", "2026-b", "2026-a", "--source", str(source), "--json"], standalone_mode=False
    )
    document = json.loads(capsys.readouterr().out)
    assert document["runs"] == ["2026-b", "2026-a"]
    assert document["comparable"] is False
    assert document["environment"] == {"device_kind": ["A100", "CPU"]}
    figure, quality = document["figures"]
    assert quality["name"] == "evaluation/accuracy"
    assert figure == {
        "name": "step_time_seconds", "before": 0.75, "after": 0.25, "ratio": pytest.approx(1 / 3),
    }  # fmt: skip


def test_the_folder_of_a_ledger_is_no_run(tmp_path):
    Ledger().write(tmp_path / "ledger.json")
    with pytest.raises(errors.UserError, match="in a ledger is named by its id, with --source"):
        main.cli.main(["compare", str(tmp_path), str(tmp_path)], standalone_mode=False)


def test_artifacts_files_and_folders(tmp_path, capsys):
    for name, steps in (("one", 10), ("two", 50)):
        (tmp_path / name).mkdir()
        record = training_record(plan=TrainingPlan(steps_per_execution=steps))
        record.write(tmp_path / name / "metrics.json")
    names = [str(tmp_path / "one" / "metrics.json"), str(tmp_path / "two")]
    main.cli.main(["compare", *names, "--json"], standalone_mode=False)
    document = json.loads(capsys.readouterr().out)
    plans = ["10 steps per execution", "50 steps per execution"]
    assert document["plans"] == {"training plan": plans}
    assert [figure["name"] for figure in document["figures"]] == ["steps_per_execution"]


@pytest.mark.parametrize("command", ["compare", "history", "calibrate"])
def test_names_of_metrics_are_shown_as_they_are(tmp_path, capsys, command):
    name = "top[/5] of [green]"  # in tables, brackets mean colors
    entries = [
        Run(
            run_id=f"2026-{run}", time=_NOW, environment={"device_kind": "CPU"}, figures={},
            evaluation={name: value},
        )  # fmt: skip
        for run, value in (("a", 0.8), ("b", 0.9))
    ]
    source = tmp_path / "ledger.json"
    Ledger(entries=tuple(entries)).write(source)
    settings = tmp_path / "perf.yaml"
    rules = {f"evaluation/{name}": {"tolerance": 0.1, "direction": "higher"}}
    settings.write_text(json.dumps({"gate": {"rules": rules}}))
    arguments = {
        "compare": ["2026-a", "2026-b", "--source", str(source)],
        "history": [str(source), "--metric", f"evaluation/{name}"],
        "calibrate": [str(source), "--config", str(settings)],
    }
    main.cli.main([command, *arguments[command]], standalone_mode=False)
    assert "top[/5]of[green]" in "".join(capsys.readouterr().out.split())
