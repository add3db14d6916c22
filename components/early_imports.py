"""Imports for the children of our components, made while the nodes before them are at work."""

from collections.abc import Iterable

from tfx_perf.components.processes import child

_PACKAGE = "tfx_perf.components"
# What children are asked to run, by the type of the node that asks.
_MODULES = {
    f"{_PACKAGE}.input_tuner.component.InputTuner": (f"{_PACKAGE}.input_tuner.planning",),
    f"{_PACKAGE}.memory_profiler.component.MemoryProfiler": (f"{_PACKAGE}.memory_profiler.jobs",),
    f"{_PACKAGE}.optimized_trainer.component.OptimizedTrainer": (
        f"{_PACKAGE}.optimized_trainer.trial_job",
        f"{_PACKAGE}.optimized_trainer.training",
    ),
}


def begin(node_types: Iterable[str]) -> None:
    """Has the imports of a pipeline's children begin in the background.

    They take ten seconds on two cores, which the first of our nodes would wait for.

    Args:
        node_types: of all nodes that will run in this process; if none of them has children,
            nothing is imported.
    """
    types = set(node_types)
    modules = [module for name, found in _MODULES.items() if name in types for module in found]
    if modules:
        child.import_early(modules)
