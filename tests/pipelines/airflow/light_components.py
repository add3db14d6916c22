"""Components that import little and finish at once, for DAGs in tests."""

import pathlib

from tfx import v1 as tfx
from tfx.types import standard_artifacts


@tfx.dsl.components.component
def Decide(
    value: tfx.dsl.components.Parameter[int],
    flag: tfx.dsl.components.OutputArtifact[standard_artifacts.Integer],
) -> None:
    """Puts a number out."""
    flag.value = value


@tfx.dsl.components.component
def Record(
    path: tfx.dsl.components.Parameter[str],
    text: tfx.dsl.components.Parameter[str],
    done: tfx.dsl.components.OutputArtifact[standard_artifacts.String],
    number: tfx.dsl.components.Parameter[int] = 0,
    ratio: tfx.dsl.components.Parameter[float] = 0.0,
) -> None:
    """Appends what it was given to a file."""
    with pathlib.Path(path).open("a") as file:
        file.write(repr((text, number, ratio)) + "\n")
    done.value = text


@tfx.dsl.components.component
def Use(
    what: tfx.dsl.components.InputArtifact[standard_artifacts.String],
    used: tfx.dsl.components.OutputArtifact[standard_artifacts.String],
) -> None:
    """Needs an artifact."""
    used.value = what.value


@tfx.dsl.components.component
def Flaky(
    marker: tfx.dsl.components.Parameter[str],
    done: tfx.dsl.components.OutputArtifact[standard_artifacts.String],
) -> None:
    """Fails the first time."""
    if not pathlib.Path(marker).exists():
        pathlib.Path(marker).touch()
        raise ValueError("the first try always fails")
    done.value = "second try"
