"""Trains in a process that has done something before; run as a script, prints the figures as JSON.

Arguments: the Keras package, what comes before, and the width of the model.
"""

import importlib
import json
import sys

import model_cases
import numpy as np

from tfx_perf.config import PerfConfig
from tfx_perf.core import interception
from tfx_perf.tf_internals import autograph
from tfx_perf.training.session import TrainingSession

_SETTINGS = PerfConfig.from_dict({"training": {"trial_budget_seconds": 0}})
_MEBIBYTE = 2**20


def trained(keras, *, width):
    """Makes a model and trains it, as a `run_fn` does; returns the figures."""
    session = TrainingSession(_SETTINGS)
    layers = [keras.layers.Dense(width, activation="relu") for _ in range(3)]
    model = keras.Sequential([keras.layers.Input((4,)), *layers, keras.layers.Dense(1)])
    model.compile("adam", "mse")
    with interception.intercepting_fit(session.fit), autograph.libraries_unconverted():
        model.fit(model_cases.regression().repeat(), steps_per_epoch=60, verbose=0)
    return session.record.figures()


def before(what):
    """Does what other nodes of a pipeline might do; returns what stays."""
    if what == "ballast":
        return np.ones(300 * _MEBIBYTE, np.uint8)
    if what == "freed":  # in pieces that the allocator keeps, with small ones between them
        pieces = [bytes(5000) for _ in range(300 * _MEBIBYTE // 5000)]
        return pieces[::97]
    if what == "other trainings":
        for package in ("keras", "tf_keras"):
            trained(importlib.import_module(package), width=2500)
    return None


def main(package: str, what: str, width: str) -> None:
    held = before(what)
    print(json.dumps(trained(importlib.import_module(package), width=int(width))))
    del held


if __name__ == "__main__":
    main(*sys.argv[1:])
