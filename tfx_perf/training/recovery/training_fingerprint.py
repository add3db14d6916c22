"""What a checkpoint must agree in with the training that goes on from it."""

import json
from typing import Any

import numpy as np

from tfx_perf import fingerprint
from tfx_perf.interception import FitCall
from tfx_perf.training.loop import Loop


def of(call: FitCall, loop: Loop) -> dict[str, str]:
    """Returns what a checkpoint must agree in to be used for `call`."""
    model, arguments = call.model, call.arguments
    shapes = [(str(v.dtype), tuple(v.shape)) for v in model.variables]
    optimizer = {
        f"optimizer {name}": json.dumps(value, default=_plain)
        for name, value in model.optimizer.get_config().items()
        if name != "name"  # numbered by Keras
    }
    return {
        "keras": loop.line.package,
        "variables": f"{len(shapes)} of {fingerprint.digest(str(shapes).encode())}",
        "optimizer": type(model.optimizer).__name__,
        **optimizer,
        "batch": str(arguments["x"].element_spec),
        "steps_per_epoch": str(loop.train_length),
        "epochs": f"{arguments['initial_epoch']} to {arguments['epochs']}",
    }


def _plain(value: Any) -> Any:
    """Returns what JSON can hold; of an object, which may print its address, only the class."""
    return value.item() if isinstance(value, np.generic) else type(value).__name__
