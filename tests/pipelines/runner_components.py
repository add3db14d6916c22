"""Components that finish at once, for the runners' tests."""

import datetime
import pathlib
import subprocess
import time

from tfx import v1 as tfx
from tfx.types import standard_artifacts

from tfx_perf.components import artifacts, types
from tfx_perf.config import gate, rule
from tfx_perf.core import console
from tfx_perf.gate import decision as decision_file
from tfx_perf.gate import ledger, run, verdict


@tfx.dsl.components.component
def Choose(
    number: tfx.dsl.components.Parameter[int],
    chosen: tfx.dsl.components.OutputArtifact[standard_artifacts.Integer],
) -> None:
    """Puts a number out."""
    chosen.value = number


@tfx.dsl.components.component
def Work(
    obstacle: tfx.dsl.components.Parameter[str],
    done: tfx.dsl.components.OutputArtifact[standard_artifacts.Integer],
) -> None:
    """Fails while there is an obstacle."""
    if pathlib.Path(obstacle).exists():
        raise ValueError("there is an obstacle")
    done.value = 1


@tfx.dsl.components.component
def Shout(
    done: tfx.dsl.components.OutputArtifact[standard_artifacts.Integer],
) -> None:
    """Prints, and has a process that prints."""
    print("from the node")
    subprocess.run(["echo", "from its child"], check=True)
    done.value = 1


@tfx.dsl.components.component
def TakeLong(
    done: tfx.dsl.components.OutputArtifact[standard_artifacts.Integer],
) -> None:
    """Says what it does and then does it for some time."""
    time.sleep(1.0)
    console.set_status("counting sheep")
    time.sleep(1.0)
    done.value = 1


@tfx.dsl.components.component
def Wait(
    began: tfx.dsl.components.Parameter[str],
    done: tfx.dsl.components.OutputArtifact[standard_artifacts.Integer],
) -> None:
    """Makes a file, and is not done before somebody ends it."""
    pathlib.Path(began).touch()
    while True:
        time.sleep(0.1)


@tfx.dsl.components.component
def Stumble(
    metrics: tfx.dsl.components.OutputArtifact[types.PerfMetrics],
) -> None:
    """Ends well, and has something to say, as OptimizedTrainer does."""
    artifacts.publish_unmeasured(metrics, "run_fn raised", title="a test", labels={})


@tfx.dsl.components.component
def Judge(
    blessing: tfx.dsl.components.OutputArtifact[standard_artifacts.InfraBlessing],
) -> None:
    """Refuses, as PerfEvaluator does."""
    blessing.set_int_custom_property("blessed", 0)
    blessing.set_string_custom_property("blessing_message", "Refused by 2 of 17 checks.")
    pathlib.Path(blessing.uri, "report.html").write_text("why")


@tfx.dsl.components.component
def Evaluate(
    evaluation: tfx.dsl.components.OutputArtifact[types.PerfEvaluation],
) -> None:
    """Puts out the decision of a gate that refuses."""
    now = datetime.datetime.now(datetime.timezone.utc)
    judged = run.Run(run_id="new", time=now, environment={}, figures={})
    settings = gate.GateSettings(rules={"step_time_seconds": rule.Rule(max=1.0)})
    decision = verdict.evaluate(judged, ledger=ledger.Ledger(), settings=settings)
    pathlib.Path(evaluation.uri).mkdir(parents=True, exist_ok=True)
    decision.write(pathlib.Path(evaluation.uri, decision_file.FILE_NAME))
