"""Reads what XLA makes of a training step, without running it.

`tf.function.experimental_get_compiler_ir` hands out the HLO that tf2xla wrote (for FLOPs) and the
compiled module with its buffer assignment (for memory, as JAX's `compiled.memory_analysis()`).
Works on a CPU, in about a second.
"""

import dataclasses
import math
import re
from collections.abc import Callable, Iterator
from typing import Any

import tensorflow as tf

from tfx_perf.core import errors
from tfx_perf.tf_internals.built_optimizer import build_used_optimizer
from tfx_perf.tf_internals.graphs import QuickFunction
from tfx_perf.tf_internals.messages import hlo_pb2, xla_data_pb2

_MAX_TRIPS = 100_000  # longer loops are not followed to their end
# Operations that write nothing even if they are not fused, or are part of their user anyway.
_FREE = {
    "parameter", "constant", "iota", "broadcast", "reshape", "bitcast", "tuple",
    "get-tuple-element",
}  # fmt: skip
_BITS = re.compile(r"[A-Z]+(\d+)")  # of a type, e.g. BF16
# A value as far as it is known: an int or bool, a tuple of values, or None for unknown.
_Value = Any


class NotCompilable(Exception):
    """XLA cannot compile the step; the message is the reason in one line."""


@dataclasses.dataclass(frozen=True)
class BufferSizes:
    """The buffers that XLA plans for a step."""

    argument_bytes: int
    temp_bytes: int
    total_bytes: int  # with results that have their own buffers; all exist at once


def step_hlo(
    step: Callable[[Any], Any], batch: Any, *, optimized: bool
) -> hlo_pb2.HloModuleProto | hlo_pb2.HloProto:
    """Compiles a step for a batch and returns its HLO; nothing is run.

    The step may read and assign existing variables. The batch must be eager tensors: XLA may need
    their values for a constant, e.g. the length of a bincount. `optimized` gives the compiled
    module with its buffer assignment (`HloProto`), otherwise HLO before optimization
    (`HloModuleProto`). Raises NotCompilable for strings, say, or a shape that depends on values.
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
        raise NotCompilable(errors.in_one_line(error)) from error


def model_step_hlo(
    model: Any, batch: Any, *, optimized: bool, step: Callable[[Any], Any] | None = None
) -> hlo_pb2.HloModuleProto | hlo_pb2.HloProto:
    """Compiles a model's `train_step`, or `step`; NotCompilable also for several replicas."""
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
    """Adds up XLA's buffer assignment as its `CompiledMemoryStats` does, without constants."""
    every = compiled.buffer_assignment.buffer_allocations
    buffers = [item for item in every if not (item.is_constant or item.is_thread_local)]
    others = [item for item in buffers if not item.is_entry_computation_parameter]
    total_bytes = sum(item.size for item in buffers)
    return BufferSizes(
        argument_bytes=total_bytes - sum(item.size for item in others),
        temp_bytes=sum(item.size for item in others if not item.maybe_live_out),
        total_bytes=total_bytes,
    )


def count_fusions(module: hlo_pb2.HloModuleProto) -> tuple[int, int]:
    """Returns the number of fusions in optimized HLO, and the bytes of the results inside them.

    A fusion is one kernel for several operations: their intermediate results stay in registers or
    caches (https://openxla.org/xla/architecture). Each in a loop counts once.
    """
    computations = {item.id: item for item in module.computations}
    fused = [
        computations[target]
        for computation in module.computations
        for instruction in computation.instructions
        if instruction.opcode == "fusion"
        for target in instruction.called_computation_ids
    ]
    # Fusions inside of other fusions are not kernels.
    inner = {
        target
        for computation in fused
        for item in computation.instructions
        for target in item.called_computation_ids
    }
    outer = [computation for computation in fused if computation.id not in inner]
    return len(outer), sum(_result_bytes(item) for each in outer for item in _intermediates(each))


def _intermediates(
    computation: hlo_pb2.HloComputationProto,
) -> Iterator[hlo_pb2.HloInstructionProto]:
    by_id = {item.id: item for item in computation.instructions}
    root = by_id[computation.root_id]
    leaving = {root.id, *(root.operand_ids if root.opcode == "tuple" else ())}
    for item in computation.instructions:
        if item.id not in leaving and item.opcode not in _FREE:
            yield item


def _result_bytes(item: hlo_pb2.HloInstructionProto) -> int:
    name = xla_data_pb2.PrimitiveType.Name(item.shape.element_type)
    bits = _BITS.fullmatch("U8" if name == "PRED" else name)
    return math.prod(item.shape.dimensions) * int(bits[1] if bits else 0) // 8


def count_flops(module: hlo_pb2.HloModuleProto) -> int:
    """Returns the FLOPs of one run of an HLO before optimization (`hlo_serialized`).

    Fusions, calls and loop bodies are followed. A loop counts as often as it runs, where that
    follows from constants in the HLO (Keras' recurrent layers), otherwise once. The most
    expensive branch of a conditional counts. Operations whose result is not used do not count.
    """
    counter = _Counter(module)
    return counter.flops(module.entry_computation_id)


class _Counter:
    def __init__(self, module: hlo_pb2.HloModuleProto) -> None:
        self._computations = {item.id: item for item in module.computations}
        self._instructions = {
            item.id: {instruction.id: instruction for instruction in item.instructions}
            for item in module.computations
        }
        self._flops: dict[int, int] = {}

    def flops(self, computation: int) -> int:
        if computation not in self._flops:
            self._flops[computation] = sum(
                self._instruction_flops(computation, item) for item in self._live(computation)
            )
        return self._flops[computation]

    def _live(self, computation: int) -> Iterator[hlo_pb2.HloInstructionProto]:
        instructions = self._instructions[computation]
        waiting = [self._computations[computation].root_id]
        seen = set(waiting)
        while waiting:
            instruction = instructions[waiting.pop()]
            yield instruction
            new = set(instruction.operand_ids) - seen
            seen |= new
            waiting.extend(new)

    def _instruction_flops(self, computation: int, item: hlo_pb2.HloInstructionProto) -> int:
        called = [self.flops(target) for target in item.called_computation_ids]
        if item.opcode == "while":
            if not any(called):
                return 0
            state = self._evaluate(computation, item.operand_ids[0], (), {})
            trips, _ = self._run(item, state)
            return sum(called) * (1 if trips is None else trips)
        if item.opcode == "conditional":
            return max(called)
        if item.opcode in ("dot", "convolution"):
            left, right = (
                self._instructions[computation][operand].shape.dimensions
                for operand in item.operand_ids
            )
            return _dot(item, left) if item.opcode == "dot" else _convolution(item, left, right)
        return sum(called)

    def _run(self, loop: hlo_pb2.HloInstructionProto, state: _Value) -> tuple[int | None, _Value]:
        """Runs a loop on the known part of its state; returns its trips and its last state."""
        body, condition = loop.called_computation_ids
        for trips in range(_MAX_TRIPS):
            proceed = self._call(condition, (state,))
            if proceed is None:
                break
            if not proceed:
                return trips, state
            state = self._call(body, (state,))
        return None, None

    def _call(self, computation: int, arguments: tuple[_Value, ...]) -> _Value:
        return self._evaluate(computation, self._computations[computation].root_id, arguments, {})

    def _evaluate(
        self,
        computation: int,
        identity: int,
        arguments: tuple[_Value, ...],
        known: dict[int, _Value],
    ) -> _Value:
        """Returns an instruction's value, computing only scalars, tuples, calls and loops."""
        if identity in known:
            return known[identity]
        item = self._instructions[computation][identity]

        def operands() -> list[_Value]:
            return [
                self._evaluate(computation, operand, arguments, known)
                for operand in item.operand_ids
            ]

        value: _Value = None
        match item.opcode:
            case "parameter" if arguments:
                value = arguments[item.parameter_number]
            case "constant" if not item.shape.dimensions:
                value = _scalar(item.literal)
            case "tuple":
                value = tuple(operands())
            case "get-tuple-element":
                (source,) = operands()
                value = None if source is None else source[item.tuple_index]
            case "call":
                value = self._call(item.called_computation_ids[0], tuple(operands()))
            case "while":
                _, value = self._run(item, *operands())
            case "reshape" | "copy" | "convert" if not item.shape.dimensions:
                (value,) = operands()
            case "add" | "and" | "compare" if not item.shape.dimensions:
                left, right = operands()
                if left is not None and right is not None:
                    value = _binary(item, left, right)
        known[identity] = value
        return value


def _scalar(literal: Any) -> _Value:
    for values in (literal.s32s, literal.s64s, literal.preds):
        if values:
            return values[0]
    return None


def _binary(item: hlo_pb2.HloInstructionProto, left: int, right: int) -> _Value:
    if item.opcode == "add":
        return left + right
    if item.opcode == "and":
        return left and right
    return left < right if item.comparison_direction == "LT" else None


def _dot(item: hlo_pb2.HloInstructionProto, left: Any) -> int:
    contracted = item.dot_dimension_numbers.lhs_contracting_dimensions
    return 2 * math.prod(item.shape.dimensions) * math.prod(left[axis] for axis in contracted)


def _convolution(item: hlo_pb2.HloInstructionProto, left: Any, right: Any) -> int:
    """Counts as textbooks do: padding counts, zeros put in by a stride's dilation do not.

    Along each spatial axis, every position of the kernel meets every position of the smaller of
    input and output. So a strided convolution and its two gradients, which XLA writes as dilated
    convolutions, count alike.
    """
    axes = item.convolution_dimension_numbers
    output = item.shape.dimensions
    spatial = math.prod(
        right[kernel_axis] * min(left[input_axis], output[output_axis])
        for input_axis, kernel_axis, output_axis in zip(
            axes.input_spatial_dimensions,
            axes.kernel_spatial_dimensions,
            axes.output_spatial_dimensions,
            strict=True,
        )
    )
    channels = output[axes.output_batch_dimension] * output[axes.output_feature_dimension]
    return 2 * spatial * channels * right[axes.kernel_input_feature_dimension]
