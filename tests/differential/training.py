"""One training in the process that it is called in: Keras' `fit`, or tfx-perf."""

import contextlib
import importlib
import json
import logging
import pathlib
from typing import Any

import numpy as np

from tfx_perf.core import interception

from . import callbacks, data, interruption, layers, models, threads
from .cases import Case


def train(case: Case, folder: pathlib.Path, *, role: str) -> dict[str, Any]:
    """Runs the case's code; returns all that must be as in Keras' `fit`, and how it went.

    Args:
        case: the case.
        folder: for all files of the case; a rerun gets the same.
        role: `plain`: uninterrupted `fit` of Keras. `whole`: tfx-perf, uninterrupted. `first`:
            tfx-perf, interrupted. `again`: the run after it. `plain first`, `plain again`: these of
            Keras, where a callback resumes.
    """
    keras = importlib.import_module(case.package)
    keras.utils.set_random_seed(3)
    _set_dtype(keras, case)
    is_first = role.endswith("first")
    if not is_first and case.edit:
        case = _edited(case)
    event = interruption.Event(case, folder, is_armed=is_first or case.interruption == "nan")
    with contextlib.ExitStack() as stack:
        session = None
        if not role.startswith("plain"):
            session = training_under_test(case, folder / "checkpoints")
            stack.enter_context(interception.intercepting_fit(session.fit))
        seen: dict[str, Any] = {}
        model = models.compiled(keras, case, event)
        given = data.training_data(case, folder, event)
        histories = _fits(keras, case, model, given, folder=folder, seen=seen, is_first=is_first)
    interruption.empty_the_disk()
    return {
        **_state(keras, model),
        "history": [(history.epoch, history.history) for history in histories],
        "counters": _counters(seen),
        "seen": {name: value for name, value in seen.items() if name != "counters"},
        "files": _files(folder),
        **_told(session),
    }


def training_under_test(case: Case, checkpoints: pathlib.Path) -> Any:
    """Returns what trains in the place of `fit`: a session that takes the case's plan.

    All that the tester knows of tfx-perf's inside is here.
    """
    from tfx_perf.config import PerfConfig
    from tfx_perf.training import model_flops
    from tfx_perf.training.fit import callback_hooks
    from tfx_perf.training.loop import eligibility, turns
    from tfx_perf.training.recovery import checkpoint_writer
    from tfx_perf.training.session import TrainingSession
    from tfx_perf.training.speedups import fused_update
    from tfx_perf.training.speedups.plan import TrainingPlan
    from tfx_perf.training.step import compiled_call
    from tfx_perf.training.tuning import choice, choosing

    checkpoint_writer._SAVE_SHARE = 0  # which a save of so short a training is not
    acts = callback_hooks._obstacle

    def without_interruption(callback: Any, module: Any) -> str | None:
        return None if interruption.is_interruption(callback) else acts(callback, module)

    callback_hooks._obstacle = without_interruption
    flops = model_flops.Flops(None, None, None)
    model_flops.count_flops = lambda model, batch: flops  # takes a second

    tried = PerfConfig.from_dict(
        {
            "training": {"tuning_seconds": 20, "steps_per_execution": [4]},
            "compilation": {"enabled": False},
            "schedule": {"expected_runs": 10**6},
        }
    )
    turns.BLOCK_SECONDS = 0.01

    def choose(call: Any, loop: Any) -> Any:
        """Returns the case's plan where the trials would have tried it."""
        plan = TrainingPlan(**dict(case.plan))
        reason = eligibility.obstacle(call, loop)
        if reason or plan.is_plain_fit:
            return choice.plain(reason or "given", is_settled=True)
        if case.is_tried:
            choosing.choose_and_restore(call, loop, settings=tried)
        model, keras_api = call.model, loop.keras_api
        if plan.xla_loop:
            reason = compiled_call.obstacle(model, keras_api, loop.element_spec)
        fields = plan.model_dump()
        splits = not keras_api.splitting_obstacle(model)
        fused = splits and fused_update.is_possible(model.optimizer, keras_api)
        fields["fused_update"] = fields["fused_update"] and fused
        fields["xla"] = fields["xla"] and splits
        if not splits or loop.functions.slicing_obstacle:
            fields["micro_batches"] = 1
        if reason:
            fields["xla_loop"] = False
        return choice.PlanChoice(plan=TrainingPlan(**fields), plan_reason="given")

    training = {
        "checkpoint_folder": str(checkpoints) if case.has_folder else None,
        "checkpoint_every_steps": case.checkpoint_every_steps,
    }
    session = TrainingSession(PerfConfig.from_dict({"training": training}))
    session._choose = choose
    return session


def _fits(
    keras: Any, case: Case, model: Any, given: dict[str, Any], *, folder: pathlib.Path,
    seen: dict[str, Any], is_first: bool,
) -> list[Any]:  # fmt: skip
    own, histories = callbacks.make(keras, case, folder, seen), []
    given.update(data.validation_arguments(case), steps_per_epoch=case.steps_per_epoch)
    if case.weights == "class":
        given["class_weight"] = {0: 0.2, 1: 3.0, 2: 1.0}
    spans = [(case.initial_epoch, case.epochs)]
    if case.fits == "loop":
        spans = [(epoch, epoch + 1) for epoch in range(case.epochs)]
    if case.fits == "two":
        spans *= 2
    with threads.meanwhile(keras, case, model) as waiting:
        for index, (begin, end) in enumerate(spans):
            before = index * (end - begin) * case.epoch_length if case.fits == "two" else 0
            last = interruption.callback(keras, case, is_armed=is_first, steps_before=before)
            used = [*own, *waiting, *([last] if case.interruption else [])]
            history = model.fit(**given, initial_epoch=begin, epochs=end, callbacks=used, verbose=0)
            histories.append(history)
    return histories


def _set_dtype(keras: Any, case: Case) -> None:
    if case.dtype == "float64":
        keras.backend.set_floatx("float64")
    policies = keras.mixed_precision
    setter = getattr(policies, "set_global_policy", None) or policies.set_dtype_policy
    setter(case.dtype)


def _edited(case: Case) -> Case:
    """Returns the case as it is after the edit: the optimizer sees a marked one."""
    import dataclasses

    if case.edit == "loss":
        return dataclasses.replace(case, loss="mae" if case.loss != "mae" else "huber")
    return dataclasses.replace(case, edit="now: rate")


def _state(keras: Any, model: Any) -> dict[str, Any]:
    optimizers = [model.optimizer, *([model.second] if hasattr(model, "second") else [])]
    return {
        "weights": _values({_name(i, v): v for i, v in enumerate(model.weights)}),
        "optimizer": _values(
            {
                f"{number}/{_name(index, variable)}": variable
                for number, optimizer in enumerate(optimizers)
                for index, variable in enumerate(_variables(optimizer))
            }
        ),
        "raw": _values(layers.raw_state(model, keras.layers)),
    }


def _name(index: int, variable: Any) -> str:
    return f"{index}:{getattr(variable, 'path', variable.name)}"


def _variables(optimizer: Any) -> list[Any]:
    listed = optimizer.variables
    return list(listed() if callable(listed) else listed)


def _values(variables: dict[str, Any]) -> dict[str, np.ndarray]:
    import tensorflow as tf

    found = {name: tf.convert_to_tensor(v).numpy() for name, v in variables.items()}
    # bfloat16 is no type of NumPy's own.
    return {n: v.astype("float32") if v.dtype.kind == "V" else v for n, v in found.items()}


def _counters(seen: dict[str, Any]) -> dict[str, Any]:
    wanted = ("number", "_hidden", "best", "items", "table", "array")
    return {name: value for name, value in seen.get("counters", {}).items() if name in wanted}


def _files(folder: pathlib.Path) -> dict[str, str]:
    found = {path.name: path.read_text() for path in sorted(folder.glob("*.csv"))}
    kept = sorted(path.name for path in folder.glob("kept-*"))
    return {**found, "kept": json.dumps(kept)}


def _told(session: Any) -> dict[str, Any]:
    if session is None or session.record is None:
        return {}
    record = session.record
    return {
        "told": {
            "plan": str(record.plan),
            "resumed": record.resumed_step,
            "notes": list(record.notes),
        }
    }


logging.getLogger("tensorflow").setLevel(logging.ERROR)
