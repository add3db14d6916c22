"""An optimization in one class, through trials and a training; run as a script, prints JSON.

Arguments: the Keras package, the code of CONTRIBUTING.md.
"""

import importlib
import json
import sys
import time

import numpy as np

from tfx_perf.training.optimizations import OPTIMIZATIONS, Optimization

STEPS_PER_EPOCH, EPOCHS = 20, 2


class SkipWaits(Optimization):
    """Leaves out what the model waits for in each step."""

    name = "skip_waits"
    is_suspect = True
    hoped_share = 0.9

    def __init__(self):
        self.is_running = self.spoils_weights = False
        self.step_count = 0

    def words(self, value):
        return ", without waits"

    def obstacle(self, fit):
        waits = any(layer.name == "waits" for layer in fit.functions.model.layers)
        return None if waits else "no waits"

    def plans(self, fit, base):
        return [base.model_copy(update={self.name: True})]

    def around(self, runner, plan, functions):
        from tfx_perf.training.step.step_runner import StepRunnerWrapper

        class WithoutWaits(StepRunnerWrapper):
            def run(_, iterator, steps):
                self.is_running = True
                logs = runner.run(iterator, steps)
                self.is_running = False
                self.step_count += steps
                for weight in functions.model.trainable_variables if self.spoils_weights else ():
                    weight.assign(np.full(weight.shape, np.nan))
                return logs

        return WithoutWaits(runner)


class Elsewhere(Optimization):
    """Needs a process that nobody starts."""

    name = "elsewhere"
    hoped_share = 0.9

    def plans(self, fit, base):
        return [base.model_copy(update={self.name: True})]

    def environment(self):
        return {"NOBODY_SETS": "1"}


SKIP_WAITS = SkipWaits()


def build(keras):
    import tensorflow as tf

    def wait(x):
        time.sleep(0.0 if SKIP_WAITS.is_running else 0.005)
        return x

    class Waits(keras.layers.Layer):
        def call(self, inputs):
            return inputs + 0.0 * tf.ensure_shape(
                tf.py_function(wait, [tf.stop_gradient(inputs)], inputs.dtype), inputs.shape
            )

    model = keras.Sequential(
        [keras.layers.Input((4,)), Waits(name="waits"), keras.layers.Dense(1)]
    )
    model.compile(keras.optimizers.SGD(0.01), "mse", jit_compile=False)
    return model


def spoil(epoch, logs=None):
    """Does what only the training does: trials are before the end of an epoch."""
    SKIP_WAITS.spoils_weights = True


def main(package, contributed):
    names = {}
    exec(contributed, names)
    for each in (SKIP_WAITS, Elsewhere(), names["Uncollected"]()):
        OPTIMIZATIONS[each.name] = each  # before the plan is imported, which reads it
    import model_cases

    from tfx_perf.config import PerfConfig
    from tfx_perf.training.session import TrainingSession

    keras = importlib.import_module(package)
    model = build(keras)
    # More than a busy machine takes.
    settings = {"steps_per_call": [5], "trial_budget_seconds": 400}
    session = TrainingSession(
        PerfConfig.from_dict(
            {
                "training": settings,
                "compilation": {"enabled": False},
                "schedule": {"planned_runs": 10**6},
            }
        )
    )
    session.fit(
        model_cases.captured(
            model,
            model_cases.regression().repeat(),
            steps_per_epoch=STEPS_PER_EPOCH,
            epochs=EPOCHS,
            callbacks=[keras.callbacks.LambdaCallback(on_epoch_end=spoil)],
        )
    )
    record = session.record
    found = {
        "trials": {str(trial.plan): trial.status for trial in record.trials},
        "without_environment": next(t.reason for t in record.trials if t.plan.elsewhere),
        "is_read_again": type(record).from_text(record.to_text(), source="text") == record,
        "plan": str(record.plan),
        "notes": record.notes,
        "run_step_count": SKIP_WAITS.step_count,
        "step_count": int(model.optimizer.iterations),
        "is_finite": all(np.isfinite(weight).all() for weight in model.get_weights()),
    }
    print(json.dumps(found))


if __name__ == "__main__":
    main(*sys.argv[1:])
