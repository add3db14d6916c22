"""Components that finish at once, for the runners' tests."""

import datetime
import pathlib
import subprocess
import time

from tfx import v1 as tfx
from tfx.types import standard_artifacts

from tfx_perf.components import artifacts, types
from tfx_perf.config import gate, rule
from tfx_perf.core import console, unmeasured
from tfx_perf.gate import decision as decision_file
from tfx_perf.gate import ledger, run, verdict

component = tfx.dsl.components.component
Out, Parameter = tfx.dsl.components.OutputArtifact, tfx.dsl.components.Parameter


@component
def Choose(number: Parameter[int], chosen: Out[standard_artifacts.Integer]) -> None:
    """Puts a number out."""
    chosen.value = number


@component
def Work(obstacle: Parameter[str], done: Out[standard_artifacts.Integer]) -> None:
    """Fails while there is an obstacle."""
    if pathlib.Path(obstacle).exists():
        raise ValueError("there is an obstacle")
    done.value = 1


@component
def Shout(done: Out[standard_artifacts.Integer]) -> None:
    """Prints, and has a process that prints."""
    print("from the node")
    subprocess.run(["echo", "from its child"], check=True)
    done.value = 1


@component
def TakeLong(done: Out[standard_artifacts.Integer]) -> None:
    """Says what it does and then does it for some time."""
    time.sleep(1.0)
    console.set_status("counting sheep")
    time.sleep(1.0)
    done.value = 1


@component
def Wait(began: Parameter[str], done: Out[standard_artifacts.Integer]) -> None:
    """Makes a file, and is not done before somebody ends it."""
    pathlib.Path(began).touch()
    while True:
        time.sleep(0.1)


@component
def Stumble(metrics: Out[types.PerfMetrics]) -> None:
    """Ends well, and has something to say, as OptimizedTrainer does."""
    missing = unmeasured.MissingMeasurement(reason="run_fn raised")
    artifacts.publish_unmeasured(metrics, missing, title="a test", labels={})


@component
def Judge(blessing: Out[standard_artifacts.InfraBlessing]) -> None:
    """Refuses, as PerfEvaluator does."""
    blessing.set_int_custom_property("blessed", 0)
    blessing.set_string_custom_property("blessing_message", "Refused by 2 of 17 checks.")
    pathlib.Path(blessing.uri, "report.html").write_text("why")


@component
def Evaluate(evaluation: Out[types.PerfEvaluation]) -> None:
    """Puts out the decision of a gate that refuses."""
    now = datetime.datetime.now(datetime.timezone.utc)
    judged = run.Run(run_id="new", time=now, environment={}, figures={})
    settings = gate.GateSettings(rules={"step_time_seconds": rule.Rule(max=1.0)})
    decision = verdict.evaluate(judged, ledger=ledger.Ledger(), settings=settings)
    pathlib.Path(evaluation.uri).mkdir(parents=True, exist_ok=True)
    decision.write(pathlib.Path(evaluation.uri, decision_file.FILE_NAME))
