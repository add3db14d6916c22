"""What is installed, as TFX's command line asks for it: from metadata, without pip.

TFX runs whichever `pip` comes first on PATH. Where the environment has none, as one that uv
made, that is another Python's, which knows neither Airflow nor Kubeflow Pipelines.
"""

import shutil
from importlib import metadata

_AIRFLOW = "apache-airflow"


def names() -> list[str]:
    """Returns the names of the installed distributions.

    Airflow counts as installed if its command is on PATH: that is what runs are started with,
    and it may live in an environment of its own.
    """
    found = {item.metadata["Name"] for item in metadata.distributions() if item.metadata["Name"]}
    if shutil.which("airflow"):
        found.add(_AIRFLOW)
    return sorted(found)


def freeze() -> bytes:
    """Returns the names as `pip freeze` would print them, without versions."""
    return "\n".join(names()).encode()
