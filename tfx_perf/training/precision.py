"""The precision that a model computes in, set before the user's code builds it."""

import contextlib
import importlib
from collections.abc import Iterator, Sequence
from typing import Any

import tensorflow as tf

from tfx_perf.hardware import devices, host
from tfx_perf.training.keras_api.base_api import KerasApi
from tfx_perf.training.optimizations.precision import DtypePolicy, policy_name
from tfx_perf.training.record import TrainingRecord
from tfx_perf.training.trials.choice import TrialRecord

_PACKAGES = ("keras", "tf_keras")
# What makes a narrow type faster than float32 on a CPU; without it each operation converts.
_CPU_FEATURES = {
    "mixed_bfloat16": {"amx_bf16", "avx512_bf16", "bf16"},
    "mixed_float16": {"avx512_fp16", "asimdhp"},
}


def fixed(setting: str | None) -> str | None:
    """Returns the policy that the setting `training.precision` asks for whatever trials find."""
    return None if setting == "auto" else setting


def candidates() -> tuple[DtypePolicy, ...]:
    """Returns the policies to try beside float32: float16 only where it is more than storage."""
    return ("mixed_bfloat16",) if devices.is_cpu_alone() else ("mixed_bfloat16", "mixed_float16")


@contextlib.contextmanager
def policy(name: str | None) -> Iterator[None]:
    """Sets the global dtype policy, as `mixed_bfloat16`, of both Keras APIs inside the context.

    Weights stay float32, and under `mixed_float16` `compile` wraps the optimizer in one that
    scales the loss: both are Keras' doing. None leaves the user's policy.
    """
    if name is None:  # without importing the Keras API that is not used
        yield
        return
    modules = [importlib.import_module(f"{package}.mixed_precision") for package in _PACKAGES]
    before = [module.global_policy() for module in modules]
    for module in modules:
        module.set_global_policy(name)
    try:
        yield
    finally:
        for module, own in zip(modules, before, strict=True):
            module.set_global_policy(own)


def notes(model: Any, batch: Any, keras_api: KerasApi) -> list[str]:
    """Returns what is wrong with a model's precision, a sentence each."""
    name = policy_name(model)
    if not name.startswith("mixed_"):
        return []
    found = []
    narrow = sorted({dtype.name for dtype in _output_dtypes(model, batch, keras_api)} - {"float32"})
    if narrow:
        found.append(
            f"the model's outputs are {', '.join(narrow)}: give the last layer dtype='float32', "
            "so that softmax and loss do not lose digits"
        )
    needed = _CPU_FEATURES.get(name, set())
    if devices.is_cpu_alone() and not needed & set(host.cpu_features()):
        found.append(
            f"this CPU does not compute in {name.removeprefix('mixed_')}, so that {name} is slower "
            f"than float32 on it (it would take one of {', '.join(sorted(needed))})"
        )
    return found


def _output_dtypes(model: Any, batch: Any, keras_api: KerasApi) -> list[tf.DType]:
    x = tf.nest.map_structure(tf.type_spec_from_value, keras_api.unpack(batch)[0])
    traced = tf.function(lambda x: keras_api.forward(model, x), autograph=False)
    outputs = traced.get_concrete_function(x).structured_outputs
    return [output.dtype for output in tf.nest.flatten(outputs)]


def reasons_for_own(record: TrainingRecord) -> list[str]:
    """Returns a sentence for each other precision tried, on why the model keeps its own."""
    if record.plan.precision is not None:
        return []
    own = record.environment.get("precision", "the model's own precision")
    names = dict.fromkeys(each.plan.precision for each in record.trials if each.plan.precision)
    return [f"{own} stays: {name} {_outcome(name, record.trials)}." for name in names]


def _outcome(name: str, trials: Sequence[TrialRecord]) -> str:
    tried = [each for each in trials if each.plan.precision == name]
    ratios = [ratio for each in tried for ratio in _ratios(each, trials)]
    if ratios:
        return f"is {max(ratios):.2f} times as fast"
    # What was tried says more than what was not.
    first = min(tried, key=lambda each: each.status == "untried")
    return f"was not chosen ({first.reason})"


def _ratios(trial: TrialRecord, trials: Sequence[TrialRecord]) -> Iterator[float]:
    """Yields step times in the model's own precision over those of the same plan in another."""
    if trial.status != "slower" or trial.step_time is None:
        return
    own_plan = trial.plan.model_copy(update={"precision": None})
    for own in trials:
        if own.plan == own_plan and own.step_time is not None:
            yield own.step_time.value / trial.step_time.value
