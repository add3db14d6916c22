"""The snippet of docs/training.md in a pipeline that is run twice."""

import pathlib
import re
import subprocess
import sys

import pytest

from tfx_perf.mlmd import runs as recorded_runs
from tfx_perf.templates import copying

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1800)]

_PAGE = pathlib.Path(__file__).parents[2] / "docs" / "training.md"
_NODES = {"InputTuner", "MemoryProfiler", "OptimizedTrainer", "PerfEvaluator"}
_SCRIPT = """
from tfx import v1 as tfx
from tfx.proto import trainer_pb2

gen = tfx.components.CsvExampleGen(input_base="data")
stats = tfx.components.StatisticsGen(examples=gen.outputs["examples"])
schema = tfx.components.SchemaGen(statistics=stats.outputs["statistics"])
transform = tfx.components.Transform(
    examples=gen.outputs["examples"], schema=schema.outputs["schema"],
    preprocessing_fn="models.preprocessing.preprocessing_fn",
)
run_fn = "models.model.run_fn"
train_args, eval_args = trainer_pb2.TrainArgs(num_steps=300), trainer_pb2.EvalArgs(num_steps=5)
{snippet}
pusher = tfx.components.Pusher(
    model=trainer.outputs["model"], infra_blessing=gate.outputs["blessing"],
    push_destination=tfx.proto.PushDestination(
        filesystem=tfx.proto.PushDestination.Filesystem(base_directory="serving")),
)
tfx.orchestration.LocalDagRunner().run(tfx.dsl.Pipeline(
    pipeline_name="snippet", pipeline_root="root",
    components=[gen, stats, schema, transform, {added}, pusher],
    metadata_connection_config=tfx.orchestration.metadata.sqlite_metadata_connection_config(
        "metadata.sqlite"),
))
"""


@pytest.fixture(scope="module")
def project(tmp_path_factory) -> pathlib.Path:
    """The data and the training code of the template `perf`, around the snippet."""
    folder = tmp_path_factory.mktemp("snippet") / "project"
    copying.copy_project(copying.PERF, pipeline_name="snippet", destination=folder)
    text = _PAGE.read_text()
    snippet = re.findall(r"```python\n(.*?)```", text, re.DOTALL)[0]
    (names,) = re.findall(r"Add all seven \((.+?)\)", text)
    script = _SCRIPT.format(snippet=snippet, added=names.replace("`", ""))
    (folder / "run.py").write_text(script)
    return folder


def test_it_trains_profiles_tunes_and_compares_with_the_run_before(project):
    script = str(pathlib.Path(sys.executable).with_name("tfx-perf"))
    for _ in range(2):
        done = subprocess.run(
            [script, "run", "run.py"], cwd=project, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stderr
        ended = dict(re.findall(r"^  (\w+) +[\d.]+ s  (\w[\w ]*)$", done.stderr, re.MULTILINE))
        assert {ended[name] for name in _NODES} == {"done"}
        lines = [line for line in done.stderr.splitlines() if " s  ... " not in line]
        assert len(lines) <= 30  # and now and then one of a node that is still at work
    second, first = recorded_runs.read_runs(project / "metadata.sqlite")
    assert (first.blessed, first.pushed) == (True, True), first.headline
    for run in (first, second):
        assert run.state == "complete"
        assert set(run.folders) == {"InputPlan", "MemoryProfile", "PerfMetrics", "PerfEvaluation"}
    # Blessed or not is the machine's affair: a step's margin is 3% by default.
    assert "Compared with 1 blessed run." in second.headline
    assert second.metrics["trial_time_seconds"] == 0  # the plan of the first run
