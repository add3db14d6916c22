"""Why a model's batches cannot be trained in slices."""

from typing import Any

from tfx_perf.training.keras_api.base_api import KerasApi, all_layers


def slicing_obstacle(model: Any, keras_api: KerasApi) -> str | None:
    """Returns why the gradient of a batch cannot be summed over slices, None if it can.

    A user's own `compute_loss` is taken to be a mean over the rows, as Keras' losses are.

    Args:
        model: compiled and built.
        keras_api: the model's.
    """
    reason = keras_api.splitting_obstacle(model)
    if reason:
        return reason
    if not keras_api.averages_loss(model):
        return "a loss is not the mean over the rows of the batch"
    if not keras_api.scales_loss_as_keras_does(model):
        return "the optimizer scales the loss in its own way"
    if keras_api.overrides_metrics(model):  # it may read weights, which must not have changed then
        return "the model has its own compute_metrics"
    if keras_api.recurrent_states(model):
        return "a stateful layer remembers each row of the batch"
    asks_others = any(getattr(layer, "synchronized", False) for layer in all_layers(model))
    if asks_others and model.distribute_strategy.num_replicas_in_sync > 1:
        return "a layer asks the other replicas, which may have fewer slices"
    return None
