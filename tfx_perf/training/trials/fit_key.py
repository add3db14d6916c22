"""What makes one `fit` another: a plan that was found for one says nothing of the other."""

import tensorflow as tf

from tfx_perf import fingerprint
from tfx_perf.interception import FitCall
from tfx_perf.memory import batches
from tfx_perf.training.loop import Loop


def fit_key(call: FitCall, loop: Loop) -> dict[str, str]:
    """Returns the parts of the key by name; the data are not read.

    Args:
        call: a `fit` that `eligibility.obstacle` does not object to, of a model that knows its
            parameters.
        loop: the loop that would run it.
    """
    model, data = call.model, call.arguments["x"]
    strategy = model.distribute_strategy
    return {
        "keras": loop.keras_api.package,
        "element_spec": fingerprint.digest(str(data.element_spec).encode()),
        "batch_size": str(batches.declared_batch_size(call)),
        "parameter_count": str(sum(int(tf.size(weight)) for weight in model.trainable_weights)),
        "optimizer": type(model.optimizer).__name__,
        "strategy": f"{type(strategy).__name__}, {strategy.num_replicas_in_sync} replicas",
    }
