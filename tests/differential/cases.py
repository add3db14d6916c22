"""Case: one training, what runs it, and what interrupts it; JSON both ways."""

import dataclasses
from typing import Any

from tests.fuzzing.cases import JsonCase

BATCH_SIZE = 8
CLASSES = 3

# Callbacks that get hooks, or change the model, while `fit` runs.
LATE = ("late_hook", "late_epoch_hook", "late_rate_hook")

# Kinds of models that have a step of their own.
OWN_STEP = ("own_step", "step_on_instance", "step_without_loss", "gan")


@dataclasses.dataclass(frozen=True)
class Case(JsonCase):
    """A training. The defaults are the simplest one; a failure is shrunk towards them."""

    package: str = "keras"  # the Keras line
    model: str = "sequential"  # which kind of model; see `models.py`
    parts: tuple[str, ...] = ()  # what the model has beside; see `layers.py`
    dtype: str = "float32"  # the dtype policy
    loss: str = "mse"  # name of the loss
    metrics: tuple[str, ...] = ()  # names of the metrics; see `models.py`
    optimizer: str = "SGD"  # name of the optimizer; see `optimizers.py`
    optimizer_options: tuple[tuple[str, Any], ...] = ()  # arguments of the optimizer, as pairs
    steps_per_execution: int = 1  # of the user's `compile`
    source: str = "tensors"  # where the rows come from; see `data.py`
    order: str = "as_is"  # how they are shuffled
    stages: tuple[str, ...] = ()  # other stages of the pipeline
    steps: int = 4  # batches in the data
    is_uneven: bool = False  # the last batch has fewer rows
    is_endless: bool = False  # the data are repeated
    steps_per_epoch: int | None = None  # of `fit`
    epochs: int = 1  # of `fit`
    initial_epoch: int = 0  # of `fit`
    weights: str = ""  # `class` or `sample` weights
    validation: str = ""  # kind of the validation data
    validation_steps: int | None = None  # of `fit`
    validation_freq: int = 1  # of `fit`
    callbacks: tuple[str, ...] = ()  # names of callbacks; see `callbacks.py`
    thread: str = ""  # what another thread calls meanwhile; see `threads.py`
    fits: str = "one"  # `one`, `two` with the same data, or a `loop` of one epoch each
    # fields of the TrainingPlan, as pairs; none is Keras' `fit`
    plan: tuple[tuple[str, Any], ...] = ()
    is_tried: bool = False  # whether plans are tried before, in this process
    has_folder: bool = False  # whether checkpoints are written
    checkpoint_every_steps: int = 4  # how often
    interruption: str = ""  # what happens; see `interruption.py`
    at: int = 1  # in which of the steps, the first is 1
    edit: str = ""  # what is changed in the code before it is run again

    @property
    def epoch_length(self) -> int:
        """Steps of an epoch."""
        return self.steps_per_epoch or self.steps

    @property
    def step_count(self) -> int:
        steps = (self.epochs - self.initial_epoch) * self.epoch_length
        return 2 * steps if self.fits == "two" else steps

    @property
    def may_run_out(self) -> bool:
        """Whether a step is tried for which there are no data."""
        if self.is_endless:
            return False
        if not self.steps_per_epoch:
            return "unknown" in self.stages or self.source in ("generator", "records")
        return self.steps_per_epoch * self.epochs > self.steps

    @property
    def classifies(self) -> bool:
        return self.loss == "sparse_categorical_crossentropy"

    def consistent(self) -> "Case":
        """Returns the nearest case that a user could have written, and that is worth running."""
        case = self
        for rule in (_interruption, _model, _data, _fit):
            case = dataclasses.replace(case, **rule(case))
        last = (case.epochs - case.initial_epoch) * case.epoch_length
        return dataclasses.replace(case, at=min(case.at, last))


def _interruption(case: Case) -> dict[str, Any]:
    if case.thread or case.is_tried or set(LATE) & set(case.callbacks):
        # The interruption acts on every batch, so that there are no plans to try or to leave.
        case = dataclasses.replace(case, interruption="")
        return {**_interruption_alone(case), "interruption": ""}
    return _interruption_alone(case)


def _interruption_alone(case: Case) -> dict[str, Any]:
    if not case.interruption:
        steps = case.checkpoint_every_steps if case.has_folder else 4
        return {"at": 1, "edit": "", "checkpoint_every_steps": steps}
    changes: dict[str, Any] = {"has_folder": True}
    if case.interruption not in ("sigkill", "raise"):
        changes["edit"] = ""
    if case.interruption == "disk_full":  # which ends Keras' `fit` where callbacks write
        writing = ("csv", "csv_append", "checkpoint", "backup", "tensorboard")
        # AutoGraph writes what it makes of Keras' loop, which Keras' `fit` has traced before.
        out = (*writing, "trains", "fits")
        changes["callbacks"] = tuple(name for name in case.callbacks if name not in out)
        changes["steps_per_execution"] = 1
    if case.interruption == "oom_in_step":  # XLA compiles no Python
        changes["plan"] = tuple(pair for pair in case.plan if "xla" not in pair[0])
        # What a callback trains is as under Keras' `fit`, which does not survive it, and so is all
        # with Keras' own recovery.
        out = ("trains", "fits", "backup")
        kept = tuple(name for name in case.callbacks if name not in out)
        changes["callbacks"] = kept
        # reliability.md: in Keras 3, finite data that steps_per_epoch does not divide
        is_cut = case.steps_per_execution > 1 or case.steps % case.epoch_length > 0
        is_finite = not case.is_endless and case.steps_per_epoch is not None
        if case.package == "keras" and is_finite and is_cut:
            changes.update(interruption="", edit="", at=1)
    in_data = case.interruption in ("nan_once", "read_error", "memory_error")
    if (case.source == "arrays" and in_data) or (
        case.interruption == "nan_once" and not _goes_back_from_nan(case)
    ):
        changes.update(interruption="", edit="", at=1)
    return changes


def _goes_back_from_nan(case: Case) -> bool:
    """Whether tfx-perf trains on as if a NaN that was read once had not been there."""
    # It comes again from a cache; loss scaling passes it over; a stream cannot be read again; and
    # as an index it is an error.
    stays = any(stage.startswith("cache") for stage in case.stages)
    stays = stays or case.optimizer == "LossScale" or case.source == "once"
    stays = stays or case.model in ("masked", "recurrent", "embedding")
    # reliability.md: Keras ends such a training, or is not supported
    leaves = bool({"backup", "terminate_on_nan"} & set(case.callbacks))
    is_cut = not case.is_endless and case.steps % case.epoch_length > 0
    return not (stays or leaves or (case.package == "keras" and is_cut))


def _model(case: Case) -> dict[str, Any]:
    changes: dict[str, Any] = {}
    metrics = case.metrics
    if not case.classifies:
        metrics = tuple(name for name in metrics if name != "accuracy")
    if case.model in OWN_STEP:
        changes.update(weights="")
        metrics = ()
    if case.model == "gan":
        changes.update(loss="mse", validation="")
    if case.model == "outputs" or (case.weights == "class" and not case.classifies):
        changes.update(weights="")
    if case.dtype == "float64" and case.package == "keras":
        changes.update(parts=tuple(part for part in case.parts if part != "noise"))
    if case.dtype != "float32":
        changes.update(plan=tuple(pair for pair in case.plan if pair[0] != "micro_batches"))
    return {**changes, "metrics": metrics}


def _data(case: Case) -> dict[str, Any]:
    changes: dict[str, Any] = {}
    if case.model in ("ragged", "sparse"):
        kept = tuple(c for c in case.callbacks if c not in ("evaluates", "trains", "fits"))
        source = "tensors" if case.source == "arrays" else case.source
        changes.update(callbacks=kept, source=source)
    elif case.source == "arrays":
        weights = "" if case.weights == "sample" else case.weights
        changes.update(order="as_is", stages=(), is_endless=False, weights=weights)
    if case.source == "once":  # has no end
        stages = tuple(stage for stage in case.stages if not stage.startswith("cache"))
        changes.update(is_endless=True, is_uneven=False, stages=stages)
        changes.update(fits="one")  # how far a fit has read ahead when it ends is chance
    if changes.get("is_endless", case.is_endless) and not case.steps_per_epoch:
        changes.update(steps_per_epoch=case.steps)
    return changes


def _fit(case: Case) -> dict[str, Any]:
    changes: dict[str, Any] = {}
    if case.fits != "one":  # a later one has a plan; what was frozen before it: keras.md
        changes.update(is_tried=False)
    if case.fits == "loop":
        changes.update(initial_epoch=0, epochs=max(2, case.epochs))
    elif case.initial_epoch >= case.epochs:
        changes.update(initial_epoch=0)
    if case.may_run_out:
        # Whether Keras' `fit` counts the step for which there are no data is chance, and what comes
        # after it depends on the count.
        changes.update(fits="one", optimizer="SGD", optimizer_options=())
    if case.package == "tf_keras" and case.steps_per_execution > 1 and case.thread == "predicts":
        # Both threads set one variable to the steps of their calls: Keras' `fit` loses steps.
        changes.update(thread="")
    if not case.validation:
        changes.update(validation_steps=None, validation_freq=1)
    if case.validation == "endless" and not case.validation_steps:
        changes.update(validation_steps=2)
    return changes
