"""Draws cases: mostly small ones, in which a few things come together."""

import dataclasses
from collections.abc import Iterator
from typing import Any

from hypothesis import strategies as st

from tests.fuzzing.drawing import mostly

from . import callbacks, data, layers, models, optimizers, threads
from .cases import Case
from .interruption import INTERRUPTIONS

PLANS: tuple[dict[str, Any], ...] = (
    {},
    {"steps_per_execution": 2},
    {"steps_per_execution": 4},
    {"steps_per_execution": 7},
    {"steps_per_execution": 1, "fused_update": True},
    {"steps_per_execution": 4, "xla": True},
    {"steps_per_execution": 4, "xla_loop": True},
    {"steps_per_execution": 2, "micro_batches": 3},
)
_PLAN_WEIGHTS = (5, 4, 4, 3, 2, 1, 2, 1)  # what uses XLA takes its time to compile


def _few(names: tuple[str, ...], most: int) -> Any:
    """Draws a set of names, often an empty one."""
    drawn = st.lists(st.sampled_from(names), unique=True, max_size=most)
    return drawn.map(lambda found: tuple(sorted(found)))


def cases(package: str, *, models_drawn: tuple[str, ...] = models.MODELS) -> Any:
    """Returns a strategy for cases of a Keras line."""
    weighted_plans = [p for p, n in zip(PLANS, _PLAN_WEIGHTS, strict=True) for _ in range(n)]
    drawn = st.builds(
        Case,
        package=st.just(package),
        model=st.sampled_from(models_drawn),
        parts=_few(layers.PARTS, 2),
        dtype=mostly("float32", ("mixed_bfloat16", "float64"), share=8),
        loss=st.sampled_from(models.LOSSES),
        metrics=_few(models.METRICS, 2),
        optimizer=st.sampled_from(optimizers.OPTIMIZERS),
        optimizer_options=mostly((), optimizers.OPTIONS, share=2),
        steps_per_execution=mostly(1, (2, 3), share=8),
        source=mostly("tensors", data.SOURCES, share=2),
        order=st.sampled_from(data.ORDERS),
        stages=_few(data.STAGES, 2),
        steps=st.integers(2, 9),
        is_uneven=mostly(False, (True,), share=4),
        is_endless=st.booleans(),
        steps_per_epoch=st.none() | st.integers(2, 9),
        epochs=st.integers(1, 3),
        initial_epoch=mostly(0, (1,), share=8),
        weights=mostly("", ("class", "sample"), share=4),
        validation=mostly("", data.VALIDATIONS, share=2),
        validation_steps=mostly(None, (1, 2), share=4),
        validation_freq=mostly(1, (2,), share=6),
        callbacks=_few(callbacks.KERAS + callbacks.OWN, 2),
        thread=mostly("", threads.CALLS, share=4),
        is_tried=mostly(False, (True,), share=6),
        fits=mostly("one", ("two", "loop"), share=5),
        plan=st.sampled_from([tuple(plan.items()) for plan in weighted_plans]),
        has_folder=st.booleans(),
        checkpoint_every_steps=st.integers(2, 12),
        interruption=st.sampled_from(("", "", "", "sigkill", "sigkill", *INTERRUPTIONS)),
        at=st.integers(1, 27),
        edit=mostly("", ("loss", "rate"), share=12),
    )
    return drawn.map(Case.consistent)


_CONTEXTS: tuple[dict[str, Any], ...] = (
    {},
    {"plan": (("steps_per_execution", 4),)},
    {"interruption": "sigkill", "at": 8},
    {"interruption": "sigkill", "at": 10, "plan": (("steps_per_execution", 4),)},
)


def singles(package: str) -> Iterator[Case]:
    """Yields cases with one thing unusual each, in every context: what fails names its cause."""
    base = Case(package=package, order="seeded", steps=6, epochs=3, metrics=("mae",))
    ways: list[dict[str, Any]] = [
        {},
        *({"model": name} for name in models.MODELS),
        *({"model": "late_built", "parts": (name,)} for name in layers.PARTS),
        *({"model": "late_built", "optimizer": name} for name in optimizers.OPTIMIZERS),
        *({"parts": (name,)} for name in layers.PARTS if name != "late"),
        *({"dtype": name} for name in ("mixed_bfloat16", "float64")),
        *({"loss": name} for name in models.LOSSES),
        *({"metrics": (name,)} for name in models.METRICS),
        *({"optimizer": name} for name in optimizers.OPTIMIZERS),
        *({"optimizer": "Adam", "optimizer_options": option} for option in optimizers.OPTIONS),
        {"steps_per_execution": 2},
        {"steps_per_execution": 4, "is_endless": True, "steps_per_epoch": 6},
        *({"source": name} for name in data.SOURCES),
        *({"order": name} for name in data.ORDERS),
        *({"stages": (name,)} for name in data.STAGES),
        {"is_uneven": True},
        {"is_endless": True, "steps_per_epoch": 6},
        {"is_endless": True, "steps_per_epoch": 4},
        {"steps_per_epoch": 3},
        {"steps_per_epoch": 4},
        {"initial_epoch": 1},
        {"loss": "sparse_categorical_crossentropy", "weights": "class"},
        {"weights": "sample", "metrics": ("mae", "weighted")},
        *({"validation": name} for name in data.VALIDATIONS),
        {"validation": "dataset", "validation_steps": 1, "validation_freq": 2},
        *({"callbacks": (name,)} for name in callbacks.KERAS + callbacks.OWN),
        *({"thread": name, "validation": "dataset"} for name in threads.CALLS),
        *(
            {"callbacks": (name,), "is_tried": True}
            for name in callbacks.OWN
            if name.startswith(("freezes", "late", "sets_rate"))
        ),
        {"fits": "two"},
        {"fits": "loop"},
        {"fits": "two", "is_tried": True},
    ]
    for way in ways:
        for context in _CONTEXTS:
            yield dataclasses.replace(base, **way, **context).consistent()
    for interruption in INTERRUPTIONS:
        for plan in PLANS[:6:2]:
            for at in (1, 6, 9):
                given = {"interruption": interruption, "plan": tuple(plan.items()), "at": at}
                yield dataclasses.replace(base, validation="dataset", **given).consistent()
    for edit in ("loss", "rate"):
        for context in _CONTEXTS[2:]:
            yield dataclasses.replace(base, edit=edit, **context).consistent()
    for plan in PLANS:
        for model in models.MODELS:
            yield dataclasses.replace(base, model=model, plan=tuple(plan.items())).consistent()
