"""The bases of all settings: a section, a whole file of settings, and types of values."""

import datetime
import numbers
import os
import pathlib
import re
from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, TypeVar, cast

import pydantic
import pydantic_core

from tfx_perf.config import yaml_file
from tfx_perf.core import errors, validation

ItemT = TypeVar("ItemT")
SettingsT = TypeVar("SettingsT", bound="Settings")


class Section(pydantic.BaseModel):
    """An immutable group of settings that refuses unknown keys, other types, NaN and infinities.

    No value is converted: true is no number, `"yes"` is neither true nor false. A key without a
    value is an empty mapping where one is expected.
    """

    model_config = pydantic.ConfigDict(
        frozen=True, extra="forbid", strict=True, allow_inf_nan=False
    )

    @pydantic.model_validator(mode="before")
    @classmethod
    def _empty(cls, values: Any) -> Any:
        return {} if values is None else values  # `training:` alone in YAML

    @pydantic.field_validator("*", mode="before")
    @classmethod
    def _empty_mapping(cls, value: Any, info: pydantic.ValidationInfo) -> Any:
        default = cls.model_fields[str(info.field_name)].get_default(call_default_factory=True)
        return {} if value is None and isinstance(default, Mapping) else value


class Settings(Section):
    """The section that a whole file or dictionary holds, maybe under a `ROOT_KEY`."""

    ROOT_KEY: ClassVar[str] = ""

    @classmethod
    def from_dict(cls: type[SettingsT], values: Mapping[str, Any] | None) -> SettingsT:
        """Builds the settings from nested mappings.

        Args:
            values: the settings, with or without the outer `ROOT_KEY`; None for the defaults.

        Raises:
            UserError: an unknown key or a value of the wrong type or range.
        """
        return cls._validated(values, lambda _: "settings")

    @classmethod
    def of(cls: type[SettingsT], settings: SettingsT | Mapping[str, Any] | None) -> SettingsT:
        """Returns the settings, built by `from_dict` if necessary; UserError if one is wrong."""
        if isinstance(settings, cls):
            return settings
        return cls.from_dict(cast("Mapping[str, Any] | None", settings))

    @classmethod
    def from_yaml(cls: type[SettingsT], path: str | pathlib.Path) -> SettingsT:
        """Reads the settings from a YAML file; UserError if the file or a setting is wrong."""
        file = yaml_file.read(path)
        return cls._validated(file.values, file.place_of)

    @classmethod
    def _validated(cls: type[SettingsT], values: Any, place_of: validation.PlaceOf) -> SettingsT:
        root: validation.Location = ()
        if cls.ROOT_KEY and isinstance(values, Mapping) and cls.ROOT_KEY in values:
            beside = [key for key in values if key != cls.ROOT_KEY]
            if beside:  # they would have no effect
                raise errors.UserError(
                    f"Expected every key below {cls.ROOT_KEY} in {place_of((beside[0],))}. "
                    f"Received: {beside[0]}, which is beside it. Move it there."
                )
            root, values = (cls.ROOT_KEY,), values[cls.ROOT_KEY]
        return validation.validated(
            cls, values, place_of=lambda inner: place_of((*root, *inner)), advice=_ADVICE
        )


def _whole(value: Any) -> Any:
    """Returns a whole number of another type as an int: 1e9 in YAML, or NumPy's."""
    is_whole = isinstance(value, float) and value.is_integer()
    is_numpys = isinstance(value, numbers.Integral) and not isinstance(value, bool)
    return int(value) if is_whole or is_numpys else value


Whole = Annotated[int, pydantic.BeforeValidator(_whole)]
Positive = Annotated[float, pydantic.Field(gt=0)]
NotNegative = Annotated[float, pydantic.Field(ge=0)]
Seed = Annotated[Whole, pydantic.Field(ge=0, lt=2**32)]  # the range that NumPy accepts
PositiveInt = Annotated[Whole, pydantic.Field(gt=0)]
Count = Annotated[Whole, pydantic.Field(ge=0)]
Share = Annotated[float, pydantic.Field(gt=0, le=1)]
NotEmpty = Annotated[str, pydantic.Field(min_length=1)]


def _as_text(value: Any) -> Any:
    return os.fspath(value) if isinstance(value, os.PathLike) else value


# A path or URI, perhaps on another machine; and one on this machine, where `~` is the home folder.
PathText = Annotated[NotEmpty, pydantic.BeforeValidator(_as_text)]
LocalPath = Annotated[PathText, pydantic.AfterValidator(os.path.expanduser)]
# Types that neither JSON nor YAML has are converted from another type (`strict=False`).
Several = Annotated[tuple[ItemT, ...], pydantic.Field(strict=False)]


def _refuse_bool(value: Any) -> Any:
    if isinstance(value, bool):  # pydantic would read it as one second or none
        raise pydantic_core.PydanticKnownError("time_delta_type")
    return value


def _refuse_number(value: Any) -> Any:
    if isinstance(value, (int, float)):  # pydantic would read it as seconds since 1970
        raise pydantic_core.PydanticKnownError("datetime_type")
    return value


# In YAML seconds, or ISO 8601 such as PT5M.
Duration = Annotated[
    datetime.timedelta,
    pydantic.Field(gt=datetime.timedelta(0), strict=False),
    pydantic.BeforeValidator(_refuse_bool),
]
# In YAML a date, or ISO 8601.
Time = Annotated[
    datetime.datetime, pydantic.Field(strict=False), pydantic.BeforeValidator(_refuse_number)
]


def _listed(value: Any) -> Any:
    return (value,) if type(value) is int else value  # not isinstance: True is an int, too


# A single number is read as a list of one.
PositiveInts = Annotated[Several[PositiveInt], pydantic.BeforeValidator(_listed)]


def grpc_address(text: str) -> tuple[str, int]:
    """Returns host and port of `grpc://HOST:PORT`; ValueError if it is something else."""
    match = re.fullmatch(r"grpc://([^\s/:@\[\]]+|\[[0-9A-Fa-f:.]+\]):(\d{1,5})", text)
    if not match or not 0 < int(match[2]) <= 65535:
        raise ValueError("grpc://HOST:PORT")
    return match[1].strip("[]"), int(match[2])


def _checked_address(text: str) -> str:
    grpc_address(text)
    return text


GrpcAddress = Annotated[str, pydantic.AfterValidator(_checked_address)]


# Settings that were removed, by name, with advice on what to do instead.
REMOVED: dict[str, str] = {
    "distribution.collective": "Give tf.distribute.experimental.CommunicationOptions to your own "
    "strategy. The timeout of the workers that OptimizedTrainer starts is "
    "distribution.collective_timeout_seconds.",
    "distribution.cpu_binding": "Start a script with `tfx-perf launch --cpu-binding exclusive`, or "
    "bind processes with taskset or numactl.",
    "input.materialize": "`block_reader` reads compressed files beside the step.",
    "distribution.job.namespace": "A job runs in the namespace of OptimizedTrainer's pod or else "
    "of the kube config's context.",
    "distribution.job.poll_seconds": "The job is looked at every ten seconds.",
    "distribution.top_k_ratio": "Set distribution.reduction_dtype: bfloat16 to send less.",
    "gate.policy.limit": "Drop the limit, or make its rule `advisory`.",
    "target": "Leave it out; for Vertex AI use TFX's KubeflowV2DagRunner.",
}

# Settings that had another name in version 0.1.0, by the old name; `*` is any metric.
RENAMED: dict[str, str] = {
    "gate.anchor": "reference_run",
    "gate.escalate_seconds": "rerun_seconds",
    "gate.kept_runs": "ledger_size",
    "gate.policy.not_comparable": "incomparable",
    "gate.policy.not_compared": "no_baseline",
    "gate.rules.*.budget": "max_regression",
    "gate.rules.*.margin": "tolerance",
    "gate.rules.*.noise": "expected_std",
    "gate.rules.*.scale": "min_baseline",
    "input.time_budget_seconds": "tuning_seconds",
    "schedule.planned_runs": "expected_runs",
    "training.checkpoint_seconds": "checkpoint_every_seconds",
    "training.checkpoint_steps": "checkpoint_every_steps",
    "training.loss_upper_bound": "max_loss",
    "training.recompute": "gradient_checkpointing",
    "training.recovery_max_trials": "max_rollbacks",
    "training.steps_per_call": "steps_per_execution",
    "training.trial_budget_seconds": "tuning_seconds",
}

_ADVICE = {
    **{name: f"This setting was removed. {instead}" for name, instead in REMOVED.items()},
    **{name: f"It is called {new} now." for name, new in RENAMED.items()},
}
