"""Why a model's batches cannot be trained in slices."""

from typing import Any

from tfx_perf.training.keras_api.base_line import KerasLine


def slicing_obstacle(model: Any, line: KerasLine) -> str | None:
    """Returns why the gradient of a batch cannot be summed over slices, None if it can.

    A user's own `compute_loss` is taken to be a mean over the rows, as Keras' losses are.

    Args:
        model: compiled and built.
        line: the model's.
    """
    reason = line.splitting_obstacle(model)
    if reason:
        return reason
    if model.distribute_strategy.num_replicas_in_sync > 1:
        return "micro-batches on several replicas are not supported yet"
    if not line.averages_loss(model):
        return "a loss is not the mean over the rows of the batch"
    if not line.scales_loss_as_keras_does(model):
        return "the optimizer scales the loss in its own way"
    if line.overrides_metrics(model):  # it may read weights, which must not have changed then
        return "the model has its own compute_metrics"
    if line.recurrent_states(model):
        return "a stateful layer remembers each row of the batch"
    return None
