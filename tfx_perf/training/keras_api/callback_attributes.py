"""What Keras' own callbacks remember under private names."""

from typing import Any

ALSO = {
    "ModelCheckpoint": ("_batches_seen_since_last_saving", "_last_batch_seen"),
    "SwapEMAWeights": ("_ema_weights_in_model",),
}
"""What counts beside their public attributes, by class."""

ONLY = {
    "CSVLogger": ("keys",),
    "TensorBoard": ("_global_train_batch", "_global_test_batch", "_should_write_train_graph"),
}
"""All that is to be remembered of those whose other attributes are those of open files."""

BASE = frozenset({"params", "model", "_model"})
"""What every callback may have, and Keras sets."""


def profiles_batches(callback: Any) -> bool:
    """Whether a `TensorBoard` profiles certain batches."""
    return bool(callback._start_batch)
