"""Imports for the children of our components, made before a process does anything else."""

from collections.abc import Iterable

from tfx_perf import isolate

_PACKAGE = "tfx_perf.components"
# What children are asked to run, by the package of the component that asks.
_MODULES = {
    f"{_PACKAGE}.input_tuner": (f"{_PACKAGE}.input_tuner.child",),
    f"{_PACKAGE}.memory_profiler": (f"{_PACKAGE}.memory_profiler.child",),
    f"{_PACKAGE}.optimized_trainer": (f"{_PACKAGE}.optimized_trainer.child",),
}


def begin(names: Iterable[str]) -> None:
    """Has the imports of nodes' children begin in the background.

    In a process that has done nothing but imports so far, they are there at once; else they take
    ten seconds on two cores, which the first of our nodes would wait for.

    Args:
        names: of classes of all nodes that will run in this process, components' or executors';
            if none of them has children, nothing is imported.
    """
    names = list(names)
    modules = [
        module
        for package, found in _MODULES.items()
        if any(name.startswith(f"{package}.") for name in names)
        for module in found
    ]
    if modules:
        isolate.import_early(modules)
