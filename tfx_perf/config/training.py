"""Settings of OptimizedTrainer."""

from typing import Annotated, Literal

import pydantic

from tfx_perf.config import base
from tfx_perf.core import storage

SpeedupName = Literal["xla", "fused_update", "xla_loop", "onednn"]
_SegmentCount = Annotated[base.Whole, pydantic.Field(ge=2)]


class TrainingSettings(base.Section):
    """OptimizedTrainer: tuning, precision, checkpoints, recovery.

    Attributes:
        tuning_seconds: limit for tuning, beside the start of its processes. 0: train with Keras'
            `fit` and only measure, e.g. for trainings of seconds. Raise it if steps are slow and
            the training is long.
        steps_per_execution: numbers of steps per execution to try; a call takes at most 0.1 s.
            Larger numbers are for steps far below 1 ms.
        excluded_speedups: speedups that are neither tried nor used, also not from an earlier run:
            `xla`, `xla_loop`, `fused_update`, `onednn`. `inexact`: all that do not give Keras'
            results bit for bit, as after `enable_op_determinism`.
        loss_tolerance: relative difference that a plan's loss may show where only the loss can be
            compared: another precision, oneDNN, random numbers that cannot be repeated.
        margin: how much faster than Keras' `fit` a plan must be, beyond its interval.
        seed: seeds Python, NumPy and TensorFlow before your code runs; None leaves them. A tf.data
            service is not used with a seed.
        precision: Keras' dtype policy while your code runs. `auto`: tuning finds out whether a
            narrower type is faster and reaches the same loss; not for the workers of a `job` or of
            `tfx-perf launch`. None leaves your policy.
        gradient_checkpointing: number of segments of the forward pass whose activations are
            computed again in the backward pass: less memory, slower steps. `auto`: the number with
            the least estimated memory. None keeps all activations.
        checkpoint_folder: local folder for checkpoints; None: OptimizedTrainer's own working
            folder, and no checkpoints outside of a pipeline. Name a path in a volume where
            containers lose their folders.
        checkpoint_every_steps: steps between two checkpoints; 0 or None: not by steps.
        checkpoint_every_seconds: seconds between two checkpoints, whichever comes first; 0 or None:
            not by time. Saving takes at most some 2% of the time.
        max_loss: a loss above this causes a rollback, as NaN and Inf do.
        resume_ignores: names of globals, attributes, arguments and closure variables that may
            differ when a training resumes in another process, such as a timestamp.
        max_rollbacks: how often a training goes back and continues with a safer plan. 0: NaN ends
            it at once with its cause. None without `max_loss`: NaN passes, as in Keras.
    """

    tuning_seconds: base.NotNegative = 120.0
    steps_per_execution: base.PositiveInts = (10, 50)
    excluded_speedups: base.Several[Literal[SpeedupName, "inexact"]] = ()
    loss_tolerance: base.Positive = 0.01
    margin: base.NotNegative = 0.02
    seed: base.Seed | None = None
    precision: Literal["float32", "mixed_bfloat16", "mixed_float16", "auto"] | None = None
    gradient_checkpointing: _SegmentCount | Literal["auto"] | None = None
    checkpoint_folder: base.LocalPath | None = None
    checkpoint_every_steps: base.Count | None = 1000
    checkpoint_every_seconds: base.NotNegative | None = 300.0
    max_loss: float | None = None
    resume_ignores: base.Several[base.NotEmpty] = ()
    max_rollbacks: base.Count | None = 2

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
