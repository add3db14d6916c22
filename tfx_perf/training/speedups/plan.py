"""TrainingPlan: how the steps of `fit` are run."""

from collections.abc import Callable, Mapping
from typing import Any, ClassVar

import pydantic

from tfx_perf.core import records
from tfx_perf.training.speedups import SPEEDUPS, Speedup

_FIELDS: dict[str, Any] = {name: (each.annotation, each.off) for name, each in SPEEDUPS.items()}
_Fields: Any = pydantic.create_model("_Fields", __base__=records.Record, **_FIELDS)


class TrainingPlan(_Fields):
    """One way to run the training steps, with a field for each of `SPEEDUPS`.

    Example:
        >>> str(TrainingPlan(steps_per_execution=50, xla=True, micro_batches=2))
        '50 steps per execution, XLA, 2 micro-batches'
    """

    SCHEMA: ClassVar[str] = "tfx_perf.plan/1"
    REMOVED: ClassVar[frozenset[str]] = frozenset({"top_k_ratio"})
    RENAMED: ClassVar[Mapping[str, str]] = {
        "recompute": "gradient_checkpointing",
        "steps_per_call": "steps_per_execution",
        "xla_call": "xla_loop",
    }

    @pydantic.model_validator(mode="after")
    def _has_no_conflict(self) -> "TrainingPlan":
        for each in self.speedups:
            if reason := each.conflict(self):
                raise ValueError(reason)
        return self

    @property
    def speedups(self) -> tuple[Speedup, ...]:
        """The speedups that are on."""
        return tuple(each for name, each in SPEEDUPS.items() if getattr(self, name) != each.off)

    @property
    def uses_xla(self) -> bool:
        """Whether XLA compiles any part of the step."""
        return any(each.uses_xla for each in self.speedups)

    @property
    def plain(self) -> "TrainingPlan":
        """Keras' `fit`, in the same precision and with the same kernels."""
        return self.only(lambda each: each.in_plain_fit)

    @property
    def is_plain_fit(self) -> bool:
        """Whether this is Keras' `fit`, untouched."""
        return self.steps_per_execution is None

    @property
    def safer(self) -> "TrainingPlan | None":
        """The plan without a speedup that may have corrupted the numbers; None if it has none."""
        suspects = [each for each in self.speedups if each.is_suspect]
        if suspects:
            return self.only(lambda each: each is not suspects[0])
        return None if self.is_plain_fit else self.plain

    def in_slices(self, count: int, *, steps_per_execution: int) -> "TrainingPlan":
        """Returns the plan with `count` slices of each batch, which Keras' own step cannot have."""
        sliceable = self.only(lambda each: each.name != "xla_loop")
        steps = self.steps_per_execution or steps_per_execution
        return sliceable.model_copy(update={"steps_per_execution": steps, "micro_batches": count})

    @property
    def in_whole_batches(self) -> "TrainingPlan":
        """The plan without slices, for when there is enough memory."""
        return self.model_copy(update={"micro_batches": 1})

    @property
    def step_arguments(self) -> dict[str, Any]:
        """The arguments of `SplitStep`; plans with the same ones share a traced step."""
        arguments: dict[str, Any] = {}
        for each in self.speedups:
            arguments |= each.step_arguments(getattr(self, each.name))
        return arguments

    @property
    def environment(self) -> dict[str, str]:
        """The environment variables that a process needs for it."""
        variables: dict[str, str] = {}
        for each in self.speedups:
            variables |= each.environment()
        return variables

    def only(self, keep: Callable[[Speedup], bool]) -> "TrainingPlan":
        """Returns the plan with those of its speedups for which `keep` returns true."""
        return TrainingPlan(
            **{each.name: getattr(self, each.name) for each in self.speedups if keep(each)}
        )

    def __str__(self) -> str:
        in_order = sorted(self.speedups, key=lambda each: each.in_plain_fit)
        words = [each.words(getattr(self, each.name)) for each in in_order]
        return "".join(["Keras fit", *words] if self.is_plain_fit else words)


PLAIN_FIT = TrainingPlan()
