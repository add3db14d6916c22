"""TrainingPlan: how the steps of `fit` are run."""

from typing import Annotated, ClassVar, Literal

import pydantic

from tfx_perf import records

DtypePolicy = Literal["mixed_bfloat16", "mixed_float16"]


class TrainingPlan(records.Record):
    """One way to run the training steps.

    Attributes:
        steps_per_call: steps run by one call from Python; None is Keras' own `fit`.
        xla: compile forward and backward pass with XLA.
        micro_batches: slices of each batch that are run one after the other, their gradients
            summed; what the optimizer gets is the whole batch's gradient.
        fused_update: have one kernel update each variable; see `fused_update`.
        recompute: the number of segments of the forward pass whose activations are computed
            again in the backward pass; `auto`: as many as are estimated to need the least
            memory. None keeps all activations. See `recompute`.
        precision: the dtype policy that the model must be built under; None: as it is.
        xla_call: compile all steps of a call into one XLA computation, updates and metrics
            included; see `compiled_call`.
        onednn: in a process that uses oneDNN, where TensorFlow would not; see
            `hardware.onednn`.

    Example:
        >>> str(TrainingPlan(steps_per_call=50, xla=True, micro_batches=2))
        '50 steps per call, XLA, 2 micro-batches'
    """

    SCHEMA: ClassVar[str] = "tfx_perf.plan/1"

    steps_per_call: pydantic.PositiveInt | None = None
    xla: bool = False
    micro_batches: pydantic.PositiveInt = 1
    fused_update: bool = False
    recompute: Annotated[int, pydantic.Field(ge=2)] | Literal["auto"] | None = None
    precision: DtypePolicy | None = None
    xla_call: bool = False
    onednn: bool = False

    @pydantic.model_validator(mode="after")
    def _plain_fit_is_plain(self) -> "TrainingPlan":
        others = self.xla, self.micro_batches > 1, self.fused_update, self.recompute
        if self.is_plain_fit and (any(others) or self.xla_call):
            raise ValueError("steps_per_call is needed to change anything else about the steps")
        if self.xla_call and any(others):
            raise ValueError("xla_call compiles whole steps, and leaves nothing to the others")
        return self

    @property
    def uses_xla(self) -> bool:
        """Whether XLA compiles any part of the step."""
        return self.xla or self.xla_call

    @property
    def stepwise(self) -> "TrainingPlan":
        """This plan, or for steps that a compiled call cannot run, the nearest that can."""
        return self.model_copy(update={"xla_call": False})

    @property
    def plain(self) -> "TrainingPlan":
        """Keras' own `fit`, in the same precision and with the same kernels."""
        return TrainingPlan(precision=self.precision, onednn=self.onednn)

    @property
    def is_plain_fit(self) -> bool:
        """Whether this is Keras' own `fit`, untouched."""
        return self.steps_per_call is None

    def __str__(self) -> str:
        setting = f", {self.precision}" if self.precision else ""
        setting += ", oneDNN" if self.onednn else ""
        if self.is_plain_fit:
            return f"plain fit{setting}"
        steps = "1 step" if self.steps_per_call == 1 else f"{self.steps_per_call} steps"
        slices = f", {self.micro_batches} micro-batches" if self.micro_batches > 1 else ""
        xla = ", XLA" if self.xla else ""
        if self.xla_call:
            return f"{steps} per call in one XLA computation{setting}"
        fused = ", fused update" if self.fused_update else ""
        recompute = ""
        if self.recompute:
            segments = "auto" if self.recompute == "auto" else f"{self.recompute} segments"
            recompute = f", recompute ({segments})"
        return f"{steps} per call{xla}{slices}{fused}{recompute}{setting}"


PLAIN_FIT = TrainingPlan()
