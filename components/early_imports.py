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
    """Starts the imports of a node's children in the background, by the name of its class.

    In a process that has only imported so far, most are there at once; later they take ten seconds
    on two cores. `is_sure` is False if the process may only compile the pipeline.
    """
    for package, modules in _MODULES.items():
        if name.startswith(f"{package}."):
            isolate.import_early(modules, is_sure=is_sure)
