"""Components that finish at once, and pipelines of them."""

import pathlib
import time

from airflow_home import AirflowHome
from ml_metadata.proto import metadata_store_pb2 as mlmd
from tfx import v1 as tfx
from tfx.types import standard_artifacts

from tfx_perf.pipelines.airflow import deploy

_Out = tfx.dsl.components.OutputArtifact
_In = tfx.dsl.components.InputArtifact
_Parameter = tfx.dsl.components.Parameter

JINJA = "a {{ 1 + 1 }} {{ x {% raw\n"


@tfx.dsl.components.component
def Decide(value: _Parameter[int], flag: _Out[standard_artifacts.Integer]) -> None:
    """Puts a number out."""
    flag.value = value


@tfx.dsl.components.component
def Record(
    path: _Parameter[str],
    text: _Parameter[str],
    done: _Out[standard_artifacts.String],
    number: _Parameter[int] = 0,
    ratio: _Parameter[float] = 0.0,
) -> None:
    """Appends what it was given to a file."""
    with pathlib.Path(path).open("a") as file:
        file.write(repr((text, number, ratio)) + "\n")
    done.value = text


@tfx.dsl.components.component
def Use(what: _In[standard_artifacts.String], used: _Out[standard_artifacts.String]) -> None:
    """Needs an artifact."""
    used.value = what.value


@tfx.dsl.components.component
def Flagged(flag: _In[standard_artifacts.Integer], used: _Out[standard_artifacts.String]) -> None:
    """Needs a number."""
    used.value = str(flag.value)


@tfx.dsl.components.component
def Sleep(marker: _Parameter[str], done: _Out[standard_artifacts.String]) -> None:
    """Says that it has begun, and sleeps for a minute."""
    pathlib.Path(marker).touch()
    time.sleep(60)
    done.value = "slept"


@tfx.dsl.components.component
def Gate(marker: _Parameter[str], blessing: _Out[standard_artifacts.InfraBlessing]) -> None:
    """Fails where a file is missing, and makes it; then refuses, as PerfEvaluator does."""
    path = pathlib.Path(marker)
    if not path.exists():
        path.touch()
        raise ValueError("the first try always fails")
    blessing.set_int_custom_property("blessed", 0)
    blessing.set_string_custom_property("blessing_message", "4% slower than {{ the }} baseline")


def pipeline(
    folder: pathlib.Path,
    nodes: list,
    *,
    name: str = "light",
    connection: mlmd.ConnectionConfig | None = None,
) -> tfx.dsl.Pipeline:
    """Returns a pipeline whose artifacts lie in a folder, and its metadata if nothing is given."""
    connection = connection or tfx.orchestration.metadata.sqlite_metadata_connection_config(
        str(folder / "metadata" / "metadata.sqlite")
    )
    return tfx.dsl.Pipeline(
        name, str(folder / "artifacts"), components=nodes, metadata_connection_config=connection
    )


STATES = {
    "Decide": "success", "Never": "skipped", "AfterNever": "skipped", "Always": "success",
    "Gate": "success",
}  # fmt: skip


def scheduled(home: AirflowHome, *, connection: mlmd.ConnectionConfig | None = None) -> str:
    """Deploys `everything`; returns the id of a scheduled run that is over."""
    settings = {
        "schedule": 3600,
        "python_path": [str(pathlib.Path(__file__).parent)],
        "default_args": {"retries": 1, "retry_delay": 1},
    }
    deployed = everything(home.folder, connection=connection)
    deploy(deployed, dags_folder=home.dags, settings=settings)
    with home.serving("scheduler", "--skip-serve-logs"):
        return home.wait_for_run("light")


def everything(
    folder: pathlib.Path, *, connection: mlmd.ConnectionConfig | None = None
) -> tfx.dsl.Pipeline:
    """Returns a pipeline with conditions, a retry, dynamic and runtime parameters, a refusal."""
    log = str(folder / "log.txt")
    decide = Decide(value=3)
    flag = decide.outputs["flag"].future()[0].value
    with tfx.dsl.Cond(flag == 4):
        never = Record(path=log, text="never").with_id("Never")
    after_never = Use(what=never.outputs["done"]).with_id("AfterNever")
    with tfx.dsl.Cond(flag == 3):
        always = Record(
            path=log,
            text=JINJA,
            number=flag,
            ratio=tfx.dsl.experimental.RuntimeParameter(
                name="ratio", ptype=float, default=0.0, description="Any number."
            ),
        ).with_id("Always")
    gate = Gate(marker=str(folder / "marker"))
    gate.add_upstream_node(decide)
    return pipeline(folder, [decide, never, after_never, always, gate], connection=connection)
