"""Imports for the children of our components, made before a process does anything else."""

from tfx_perf import isolate

_WITH_CHILDREN = "input_tuner", "memory_profiler", "optimized_trainer"


def begin(name: str) -> None:
    """Starts the imports of a node's children in the background, by the name of its class.

    In a process that has only imported so far, most are there at once; later they take ten seconds
    on two cores.
    """
    for each in _WITH_CHILDREN:
        package = f"tfx_perf.components.{each}"
        if name.startswith(f"{package}."):
            isolate.import_early([f"{package}.child"])
