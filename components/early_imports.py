"""Imports modules for the components' children before a process does anything else."""

from tfx_perf import isolate

_WITH_CHILDREN = "input_tuner", "memory_profiler", "optimized_trainer"


def begin(name: str) -> None:
    """Starts importing what a node's children need in the background, given its class's name.

    In a process that has done nothing but import modules, most are available at once; later, the
    imports take ten seconds on two cores.
    """
    for each in _WITH_CHILDREN:
        package = f"tfx_perf.components.{each}"
        if name.startswith(f"{package}."):
            isolate.import_early([f"{package}.child"])
