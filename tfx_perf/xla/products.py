"""The matrix products of a model, read from XLA's HLO."""

import dataclasses
import math

from tfx_perf.tf_internals.messages import hlo_pb2, xla_data_pb2

_BACKWARD = "gradient_tape/"  # where TensorFlow names what a tape adds
_DTYPES = {
    xla_data_pb2.F32: "float32",
    xla_data_pb2.BF16: "bfloat16",
    xla_data_pb2.F16: "float16",
}


@dataclasses.dataclass(frozen=True)
class Product:
    """A product of `count` pairs of matrices, (rows x inner) and (inner x columns).

    Attributes:
        count: 1, or e.g. batch times heads of an attention.
        rows: of the left matrix; for a layer, examples times positions.
        inner: the contracted dimension.
        columns: of the right matrix; for a layer, its width.
        dtype: name of the type.
        layer: where in the model, e.g. `sequential/dense_1`.
    """

    count: int
    rows: int
    inner: int
    columns: int
    dtype: str
    layer: str

    @property
    def flops(self) -> int:
        """Floating-point operations, 2 for each multiply-add."""
        return 2 * self.count * self.rows * self.inner * self.columns

    def __str__(self) -> str:
        pairs = f"{self.count:,} x " if self.count > 1 else ""
        return f"{pairs}({self.rows:,} x {self.inner:,}) ({self.inner:,} x {self.columns:,})"


def forward_products(module: hlo_pb2.HloModuleProto) -> list[Product]:
    """Returns the products of the forward pass, the most expensive ones first.

    Args:
        module: HLO of a training step before optimisation.
    """
    found = []
    for computation in module.computations:
        shapes = {item.id: item.shape.dimensions for item in computation.instructions}
        for item in computation.instructions:
            name = item.metadata.op_name
            if item.opcode != "dot" or _BACKWARD in name or item.shape.element_type not in _DTYPES:
                continue
            left, right = (shapes[operand] for operand in item.operand_ids)
            axes = item.dot_dimension_numbers
            count = math.prod(left[axis] for axis in axes.lhs_batch_dimensions)
            inner = math.prod(left[axis] for axis in axes.lhs_contracting_dimensions)
            if count * inner == 0:
                continue
            found.append(
                Product(
                    count=count,
                    rows=math.prod(left) // (count * inner),
                    inner=inner,
                    columns=math.prod(right) // (count * inner),
                    dtype=_DTYPES[item.shape.element_type],
                    layer=name.rpartition("/")[0] or name,
                )
            )
    return sorted(found, key=lambda product: product.flops, reverse=True)
