"""XlaAccount: what XLA made of the step that it compiled."""

from tfx_perf import records


class XlaAccount(records.Record):
    """XLA's side of a training.

    Attributes:
        compiled_shapes: the input shapes that it compiled for, one program each; None if Keras
            has its own step compiled, which tells nobody.
        fusion_count: see `hlo_fusions.Fusions`; None if the HLO cannot be read.
        fusion_saved_bytes: likewise.
        executed_flops: of a run of the compiled part: what is computed again counts again.
        note: why there is no HLO; empty if there is.
    """

    compiled_shapes: tuple[str, ...] | None
    fusion_count: int | None = None
    fusion_saved_bytes: int | None = None
    executed_flops: int | None = None
    note: str = ""
