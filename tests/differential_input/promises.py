"""What a candidate need not serve."""

from .cases import AMPLE_BYTES, IN_GRAPH, SPARSE, SPARSE_MATRIX, Call, Case


def excuse(case: Case, call: Call, *, epoch_rows: int) -> str:
    """Returns why a candidate may leave a call to TFXIO's default; empty if it must serve it."""
    if call.use in IN_GRAPH:
        return "inside of a graph"
    if case.memory_budget_bytes < AMPLE_BYTES:
        return "a tight budget"
    if not epoch_rows:
        return "no examples"
    if any(file.damage for file in case.files):
        return "damaged files"
    kinds = {feature.kind for feature in case.features}
    if case.base == "columns" and kinds & {SPARSE, SPARSE_MATRIX}:
        return "values at places of their own"
    return ""
