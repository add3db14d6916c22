"""What stands around each `fit` of a user's, so that several replicas or devices train as one."""

import contextlib
from collections.abc import Iterator

from tfx_perf.interception import FitCall
from tfx_perf.settings.distribution import DistributionSettings
from tfx_perf.training.keras_api import either_keras
from tfx_perf.training.measuring import strategies
from tfx_perf.training.placement.placement import Placement
from tfx_perf.training.placement.placing import over_devices
from tfx_perf.training.step import evaluation, row_shares


@contextlib.contextmanager
def trained(call: FitCall, distribution: DistributionSettings) -> Iterator[Placement | None]:
    """Has a `fit` come to one device's weights and figures, if it is run in the context.

    Args:
        call: the `fit`.
        distribution: what is sent, how, and where the layers are.

    Yields:
        Where the layers are, if they were placed.

    Raises:
        UserError: the model, or this machine, cannot do what the settings say.
    """
    keras_api, strategy = either_keras.api_of(call.model), call.model.distribute_strategy
    is_alone = strategies.servers_of(strategy) is not None  # beside parameter servers
    draws_by_rows = distribution.sharding_invariant_random and not is_alone
    with (
        keras_api.drawing_by_rows(call.model) if draws_by_rows else contextlib.nullcontext(),
        keras_api.over_replicas(
            call.model,
            reduction_dtype=distribution.reduction_dtype,
            draws_by_rows=draws_by_rows,
        ),
        row_shares.counting_rows(call.model, keras_api),
        evaluation.as_one_device(),
        over_devices(call, distribution) as placement,
    ):
        yield placement
