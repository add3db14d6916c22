"""Settings of OptimizedTrainer."""

from typing import Annotated, Literal

import pydantic

from tfx_perf.config.base import (
    Count,
    LocalPath,
    NotEmpty,
    NotNegative,
    Positive,
    PositiveInts,
    Section,
    Seed,
    Several,
    Whole,
)
from tfx_perf.core import storage

Speedup = Literal["xla", "fused_update", "xla_loop", "onednn"]


class TrainingSettings(Section):
    """OptimizedTrainer.

    Attributes:
        tuning_seconds: wall time of the trials that choose the plan, beside the start of
            their processes; 0 trains with Keras' `fit` and only measures.
        steps_per_execution: the numbers of steps per execution from Python that are tried.
        excluded_speedups: speed-ups that no plan may have, nor one of an earlier run; those with a
            setting of their own are turned off there. `inexact`: all that does not come to plain
            `fit`'s results bit for bit, as without the setting after `enable_op_determinism`.
        loss_tolerance: relative difference to Keras' loss that a plan may show where only
            the loss can be compared: in another precision, with oneDNN's kernels, or with random
            numbers that nobody can repeat.
        margin: how much faster than Keras' `fit` a plan must be, beyond its interval.
        seed: seeds Python, NumPy and TensorFlow before the user's code; None leaves them.
        precision: Keras' global dtype policy while the user's code runs; None leaves it, `auto` has
            the trials find out whether a narrower one is faster and trains the same.
        gradient_checkpointing: number of segments of the forward pass whose activations are
            computed again in the backward pass, which takes time and saves memory; `auto`: the
            number with the least estimated memory; None keeps all activations.
        checkpoint_folder: local folder where an interrupted training is found again; None:
            OptimizedTrainer's own working folder, and none outside of it.
        checkpoint_every_steps: steps between two checkpoints; 0 or null: not by steps.
        checkpoint_every_seconds: seconds between two checkpoints, if this comes first; 0 or null:
            not by time. Saving takes at most some 2 % of the time.
        max_loss: a loss above this ends in a rollback, as NaN and Inf do.
        resume_ignores: names of globals, attributes, arguments and variables in closures that may
            differ when a training goes on in another process.
        max_rollbacks: how often training goes back and on with a safer plan; None without a
            `max_loss`: never, and a loss may become NaN, as in Keras.
    """

    tuning_seconds: NotNegative = 120.0
    steps_per_execution: PositiveInts = (10, 50)
    excluded_speedups: Several[Literal[Speedup, "inexact"]] = ()
    loss_tolerance: Positive = 0.01
    margin: NotNegative = 0.02
    seed: Seed | None = None
    precision: Literal["float32", "mixed_bfloat16", "mixed_float16", "auto"] | None = None
    gradient_checkpointing: Annotated[Whole, pydantic.Field(ge=2)] | Literal["auto"] | None = None
    checkpoint_folder: LocalPath | None = None
    checkpoint_every_steps: Count | None = 1000
    checkpoint_every_seconds: NotNegative | None = 300.0
    max_loss: float | None = None
    resume_ignores: Several[NotEmpty] = ()
    max_rollbacks: Count | None = 2

    @property
    def is_watched(self) -> bool:
        """Whether NaN and Inf end a training."""
        return self.max_rollbacks is not None or self.max_loss is not None

    @pydantic.model_validator(mode="after")
    def _has_one_precision(self) -> "TrainingSettings":
        if self.precision == "auto" and "inexact" in self.excluded_speedups:
            raise ValueError("one precision, or excluded_speedups without inexact")
        return self

    @pydantic.field_validator("checkpoint_folder")
    @classmethod
    def _is_local(cls, folder: str | None) -> str | None:
        if folder is not None and storage.is_remote(folder):
            raise ValueError("a local folder for checkpoints, or a mounted one")
        return folder
