"""A training of several workers ends early for all of them, or for none."""

import logging
from typing import Any

import numpy as np

from tfx_perf.training.keras_api.base_api import KerasApi
from tfx_perf.training.team import Team

_LOGGER = logging.getLogger(__name__)


def callback(model: Any, keras_api: KerasApi, team: Team) -> Any:
    """Returns the callback that has all workers stop after an epoch in which one of them would.

    A callback that goes by the clock, say, does not stop them all; the others would wait for it.

    Args:
        model: that is trained.
        keras_api: the model's.
        team: who trains it. The callback stands behind the user's.
    """

    def ask(epoch: int, logs: Any = None) -> None:
        stops = team.gathered([bool(model.stop_training)])[:, 0]
        if stops.any() and not model.stop_training:
            first = int(np.argmax(stops))
            _LOGGER.warning("Worker %d stops the training after epoch %d.", first, epoch + 1)
            model.stop_training = True

    return keras_api.callback(on_epoch_end=ask)
