"""The whole pipeline under the emulated launcher: a first run, and one that the gate refuses."""

import json
import pathlib

import pytest
from cluster import Cluster
from kubeflow_pipelines import SETTINGS, compile_pipeline, four_components

from tfx_perf.core import metrics

pytestmark = pytest.mark.slow

CHEAP = {"input": {"tuning_seconds": 5}, "training": {"seed": 1, "tuning_seconds": 5}}
REPORTED = {
    "input-tuner": "input_plan",
    "memory-profiler": "memory_profile",
    "optimized-trainer": "perf_metrics",
    "perf-evaluator": "evaluation",
}


def gate_settings(ledger, **more_rules):
    """Returns rules that a short training keeps, and more."""
    return {
        "baseline_uri": str(ledger),
        "use_defaults": False,
        "minimum_steps": 10,
        "rules": {"step_time_seconds": {"tolerance": 9.0}, **more_rules},
    }


def write_data(folder):
    """Writes a CSV file with a number and a label for `kubeflow_user_module`."""
    folder.mkdir()
    rows = [f"{number / 100},{number / 50}" for number in range(300)]
    (folder / "data.csv").write_text("\n".join(["number,label", *rows]) + "\n")


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    folder = tmp_path_factory.mktemp("cluster")
    write_data(folder / "data")
    return Cluster(folder)


@pytest.fixture(scope="module")
def runs(cluster):
    """The runs by what they show."""
    gate = gate_settings(cluster.folder / "ledger")
    refusing = gate_settings(cluster.folder / "ledger", examples_per_second={"min": 1e12})

    def run(name, gate):
        path = compile_pipeline(
            four_components(cluster.folder / "data", **CHEAP, gate=gate),
            output=cluster.folder / f"{name}.yaml",
            settings=SETTINGS,
        )
        return cluster.run(path, name, run_label=name)

    return {"first": run("first", gate), "refused": run("refused", refusing)}


def test_the_second_run_compares_with_the_first_and_pusher_follows_the_gate(cluster, runs):
    found = {}
    for name, run in runs.items():
        judged, pushed = run["perf-evaluator"].artifacts, run["pusher"].artifacts["pushed_model"]
        folder = cluster.stored(judged["evaluation"]["uri"])
        baseline = json.loads((folder / "evaluation.json").read_text())["baseline_runs"]
        found[name] = (
            [each["run_id"] for each in baseline],
            judged["blessing"]["metadata"]["blessed"],
            pushed["metadata"]["pushed"],
        )
    assert found == {"first": ([], 1, 1), "refused": (["first"], 0, 0)}
    assert len(list(pathlib.Path(f"{cluster.folder}/data-serving").iterdir())) == 1


def test_examples_carry_what_the_driver_found(runs):
    metadata = runs["first"]["csv-example-gen"].artifacts["examples"]["metadata"]
    assert metadata["custom:span"] == 0  # beside the type's own property, as TFX writes it
    assert "num_files:1" in metadata["input_fingerprint"]


@pytest.mark.parametrize(("task", "key"), REPORTED.items())
def test_report_figures_and_summary_are_where_the_ui_looks(cluster, runs, task, key):
    artifacts = runs["first"][task].artifacts
    report = cluster.stored(artifacts[f"{key}_report"]["uri"])
    assert report.read_text().lstrip().lower().startswith("<!doctype html")
    own = cluster.stored(artifacts[key]["uri"]) / "report.html"
    assert report.read_text() == own.read_text()
    figures = artifacts[f"{key}_figures"]["metadata"]
    assert set(figures) & set(metrics.CATALOGUE)
    summary = cluster.stored(artifacts[f"{key}_summary"]["uri"]).read_text()
    assert "| metric | value |" in summary


def test_the_model_is_at_its_uri(cluster, runs):
    model = runs["first"]["optimized-trainer"].artifacts["model"]
    assert model["uri"].startswith("minio://")
    assert (cluster.stored(model["uri"]) / "Format-Serving" / "saved_model.pb").exists()


def test_nothing_names_a_pods_folder(runs):
    for run in runs.values():
        for result in run.values():
            assert "/pods/" not in json.dumps(result.artifacts)
