"""A narrower type to compute in, set before the user's code builds the model."""

import contextlib
import importlib
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Literal

from tfx_perf.training.speedups.speedup import Speedup

if TYPE_CHECKING:
    from tfx_perf.training.keras_api.base_api import KerasApi

DtypePolicy = Literal["mixed_bfloat16", "mixed_float16"]
_PACKAGES = ("keras", "tf_keras")
# CPU features that make a narrow type faster than float32; without one, each operation converts.
_CPU_FEATURES = {
    "mixed_bfloat16": {"amx_bf16", "avx512_bf16", "bf16"},
    "mixed_float16": {"avx512_fp16", "asimdhp"},
}


class Precision(Speedup):
    """The dtype policy that the model must be built under; None leaves the user's.

    Layers take it when they are created, so the code that starts the trials' processes tries it.
    """

    name = "precision"
    annotation = DtypePolicy | None
    off = None
    in_plain_fit = True

    def words(self, value: str) -> str:
        """Returns the policy's name."""
        return f", {value}"


def policy_name(model: Any) -> str:
    """Returns the name of the model's dtype policy, e.g. `mixed_bfloat16`."""
    policy = getattr(model, "dtype_policy", None)
    return getattr(policy, "name", None) or str(policy)


def fixed(setting: str | None) -> str | None:
    """Returns the policy that `training.precision` sets regardless of trials."""
    return None if setting == "auto" else setting


def candidates() -> tuple[DtypePolicy, ...]:
    """Returns the policies to try beside float32: float16 unless it is only a storage type."""
    from tfx_perf.hardware import devices

    return ("mixed_bfloat16",) if devices.is_cpu_alone() else ("mixed_bfloat16", "mixed_float16")


@contextlib.contextmanager
def policy(name: str | None) -> Iterator[None]:
    """Sets the global dtype policy, e.g. `mixed_bfloat16`, of both Keras APIs in the context.

    Weights stay float32, and under `mixed_float16` `compile` wraps the optimizer in one that
    scales the loss: Keras does both. None leaves the user's policy.
    """
    if name is None:  # avoids importing the Keras API that is not used
        yield
        return
    modules = [importlib.import_module(f"{package}.mixed_precision") for package in _PACKAGES]
    before = [module.global_policy() for module in modules]
    for module in modules:
        module.set_global_policy(name)
    try:
        yield
    finally:
        for module, previous in zip(modules, before, strict=True):
            module.set_global_policy(previous)


def notes(model: Any, batch: Any, keras_api: "KerasApi") -> list[str]:
    """Returns the problems of a model's precision, one sentence each."""
    name = policy_name(model)
    if not name.startswith("mixed_"):
        return []
    sentences = []
    narrow = sorted({dtype.name for dtype in _output_dtypes(model, batch, keras_api)} - {"float32"})
    if narrow:
        sentences.append(
            f"the model's outputs are {', '.join(narrow)}: give the last layer dtype='float32', "
            "so that softmax and loss do not lose digits"
        )
    from tfx_perf.hardware import devices, host

    needed = _CPU_FEATURES.get(name, set())
    if devices.is_cpu_alone() and not needed & set(host.cpu_features()):
        sentences.append(
            f"this CPU does not compute in {name.removeprefix('mixed_')}, so that {name} is slower "
            f"than float32 on it (it would take one of {', '.join(sorted(needed))})"
        )
    return sentences


def _output_dtypes(model: Any, batch: Any, keras_api: "KerasApi") -> list[Any]:
    import tensorflow as tf

    x = tf.nest.map_structure(tf.type_spec_from_value, keras_api.unpack(batch)[0])
    traced = tf.function(lambda x: keras_api.forward(model, x), autograph=False)
    outputs = traced.get_concrete_function(x).structured_outputs
    return [output.dtype for output in tf.nest.flatten(outputs)]
