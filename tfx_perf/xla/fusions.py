"""Counts what XLA fused in a compiled step, and what that keeps out of memory.

A fusion is one kernel for several operations: their intermediate results stay in registers or
caches instead of memory (https://openxla.org/xla/architecture).
"""

import dataclasses
import math
from collections.abc import Iterator

from tfx_perf.tf_internals.messages import hlo_pb2, xla_data_pb2

# Operations that write nothing even if they are not fused, or are part of their user anyway.
_FREE = {
    "parameter", "constant", "iota", "broadcast", "reshape", "bitcast", "tuple",
    "get-tuple-element",
}  # fmt: skip
_BITS = {
    xla_data_pb2.PRED: 8, xla_data_pb2.S8: 8, xla_data_pb2.U8: 8,
    xla_data_pb2.S16: 16, xla_data_pb2.U16: 16, xla_data_pb2.F16: 16, xla_data_pb2.BF16: 16,
    xla_data_pb2.S32: 32, xla_data_pb2.U32: 32, xla_data_pb2.F32: 32,
    xla_data_pb2.S64: 64, xla_data_pb2.U64: 64, xla_data_pb2.F64: 64, xla_data_pb2.C64: 64,
    xla_data_pb2.C128: 128,
}  # fmt: skip


@dataclasses.dataclass(frozen=True)
class Fusions:
    """The number of fusions (each in a loop counts once), and the bytes of results inside."""

    count: int
    saved_bytes: int


def count_fusions(module: hlo_pb2.HloModuleProto) -> Fusions:
    """Counts the fusions of HLO after optimization."""
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
    return Fusions(
        count=len(outer),
        saved_bytes=sum(_bytes(item) for each in outer for item in _intermediates(each)),
    )


def _intermediates(
    computation: hlo_pb2.HloComputationProto,
) -> Iterator[hlo_pb2.HloInstructionProto]:
    by_id = {item.id: item for item in computation.instructions}
    root = by_id[computation.root_id]
    leaving = {root.id, *(root.operand_ids if root.opcode == "tuple" else ())}
    for item in computation.instructions:
        if item.id not in leaving and item.opcode not in _FREE:
            yield item


def _bytes(item: hlo_pb2.HloInstructionProto) -> int:
    return math.prod(item.shape.dimensions) * _BITS.get(item.shape.element_type, 0) // 8
