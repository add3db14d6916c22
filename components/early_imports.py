"""Imports for the children of our components, made before a process does anything else."""

from tfx_perf import isolate

_PACKAGE = "tfx_perf.components"
# What children are asked to run, by the package of the component that asks.
_MODULES = {
    f"{_PACKAGE}.input_tuner": (f"{_PACKAGE}.input_tuner.child",),
    f"{_PACKAGE}.memory_profiler": (f"{_PACKAGE}.memory_profiler.child",),
    f"{_PACKAGE}.optimized_trainer": (f"{_PACKAGE}.optimized_trainer.child",),
}


def begin(name: str, *, is_sure: bool = True) -> None:
    """Has the imports of a node's children begin in the background, if it has any.

    In a process that has done nothing but imports so far, most are there at once; else they take
    ten seconds on two cores, which the first of our nodes would wait for.

    Args:
        name: of the node's class, the component's or the executor's, or of its module.
        is_sure: whether this process runs the node: it may be that it compiles a pipeline.
    """
    for package, modules in _MODULES.items():
        if name.startswith(f"{package}."):
            isolate.import_early(modules, is_sure=is_sure)
