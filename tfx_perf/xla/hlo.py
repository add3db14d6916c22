"""What XLA makes of a training step, read without running it.

`tf.function.experimental_get_compiler_ir` hands out the HLO that tf2xla wrote (for FLOPs) and the
compiled module with its buffer assignment (for memory, as JAX's `compiled.memory_analysis()`).
Works on a CPU, in about a second.
"""

import dataclasses
from collections.abc import Callable
from typing import Any

import tensorflow as tf

from tfx_perf.tf_internals.built_optimizer import build_used_optimizer
from tfx_perf.tf_internals.graphs import QuickFunction
from tfx_perf.tf_internals.messages import hlo_pb2
from tfx_perf.xla.flops import count_flops

__all__ = [
    "BufferSizes",
    "NotCompilable",
    "buffer_sizes",
    "count_flops",
    "model_step_hlo",
    "step_hlo",
]

_REASON_LENGTH = 300


class NotCompilable(Exception):
    """XLA cannot compile the step; the message is the reason in one line."""


@dataclasses.dataclass(frozen=True)
class BufferSizes:
    """XLA's plan for a step: arguments, results in buffers of their own, and all between."""

    argument_bytes: int
    output_bytes: int
    temp_bytes: int

    @property
    def total_bytes(self) -> int:
        """Arguments, outputs and temporaries, all of which exist at once."""
        return self.argument_bytes + self.output_bytes + self.temp_bytes


def step_hlo(
    step: Callable[[Any], Any], batch: Any, *, optimized: bool
) -> hlo_pb2.HloModuleProto | hlo_pb2.HloProto:
    """Compiles a step for a batch and returns its HLO; nothing is run.

    The step may read and assign existing variables. The batch must be eager tensors: XLA may need
    their values for a constant, e.g. the length of a bincount. `optimized` gives the compiled
    module with its buffer assignment (`HloProto`), else HLO before optimisation (`HloModuleProto`).
    NotCompilable: strings, say, or a shape that depends on values.
    """

    def on_flat(*tensors: tf.Tensor) -> Any:  # nested arguments lose their constant values
        return step(tf.nest.pack_sequence_as(batch, tensors, expand_composites=True))

    try:
        compiled = QuickFunction(on_flat, jit_compile=True)
        read = compiled.compiler_ir(*tf.nest.flatten(batch, expand_composites=True))
        if optimized:
            return hlo_pb2.HloProto.FromString(read(stage="optimized_hlo_proto_serialized"))
        return hlo_pb2.HloModuleProto.FromString(read(stage="hlo_serialized"))
    except Exception as error:  # tracing runs the user's code, which may raise anything
        raise NotCompilable(_one_line(error)) from error


def model_step_hlo(
    model: Any, batch: Any, *, optimized: bool, step: Callable[[Any], Any] | None = None
) -> hlo_pb2.HloModuleProto | hlo_pb2.HloProto:
    """Compiles a model's `train_step`, or `step`; NotCompilable over several replicas, too."""
    strategy = model.distribute_strategy
    replicas = strategy.num_replicas_in_sync
    if replicas > 1:
        raise NotCompilable(f"the model is mirrored over {replicas} replicas")
    build_used_optimizer(model)
    return step_hlo(
        lambda data: strategy.run(step or model.train_step, args=(data,)),
        batch,
        optimized=optimized,
    )


def buffer_sizes(compiled: hlo_pb2.HloProto) -> BufferSizes:
    """Adds up XLA's buffer assignment as its `CompiledMemoryStats`: without constants."""
    allocations = compiled.buffer_assignment.buffer_allocations
    arguments = [item for item in allocations if item.is_entry_computation_parameter]
    others = [
        item
        for item in allocations
        if not (item.is_entry_computation_parameter or item.is_constant or item.is_thread_local)
    ]
    return BufferSizes(
        argument_bytes=sum(item.size for item in arguments),
        output_bytes=sum(item.size for item in others if item.maybe_live_out),
        temp_bytes=sum(item.size for item in others if not item.maybe_live_out),
    )


def _one_line(error: Exception) -> str:
    text = " ".join(str(error).split()) or type(error).__name__
    return text if len(text) <= _REASON_LENGTH else text[: _REASON_LENGTH - 3] + "..."
