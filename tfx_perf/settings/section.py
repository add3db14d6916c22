"""The bases of all settings: one section, and what a file of them holds."""

import pathlib
from collections.abc import Mapping
from typing import Any, ClassVar, TypeVar, cast

import pydantic

from tfx_perf import errors
from tfx_perf.settings import validation, yaml_file

SettingsT = TypeVar("SettingsT", bound="Settings")


class Section(pydantic.BaseModel):
    """An immutable group of settings that refuses unknown keys, other types, NaN and infinities.

    No value is made one of another type: true is no number, `"yes"` is neither true nor false. A
    key without a value that stands for keys with values has none of them.
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
    def _without_keys(cls, value: Any, info: pydantic.ValidationInfo) -> Any:
        default = cls.model_fields[str(info.field_name)].get_default(call_default_factory=True)
        return {} if value is None and isinstance(default, Mapping) else value


class Settings(Section):
    """The section that a whole file or dictionary holds.

    Attributes:
        ROOT_KEY: key that all others may stand under; empty: none.
    """

    ROOT_KEY: ClassVar[str] = ""

    @classmethod
    def from_dict(
        cls: type[SettingsT], values: Mapping[str, Any] | None, *, source: str = "settings"
    ) -> SettingsT:
        """Builds the settings from nested mappings.

        Args:
            values: the settings, with or without the outer `ROOT_KEY`; None for the defaults.
            source: what to call the settings in an error.

        Raises:
            UserError: an unknown key or a value of the wrong type or range.
        """
        return cls._validated(values, lambda _: source)

    @classmethod
    def of(
        cls: type[SettingsT], settings: SettingsT | Mapping[str, Any] | None
    ) -> SettingsT:
        """Returns the settings themselves, or what `from_dict` makes of them.

        Raises:
            UserError: an unknown key or a value of the wrong type or range.
        """
        if isinstance(settings, cls):
            return settings
        return cls.from_dict(cast("Mapping[str, Any] | None", settings))

    @classmethod
    def from_yaml(cls: type[SettingsT], path: str | pathlib.Path) -> SettingsT:
        """Reads the settings from a YAML file.

        Raises:
            UserError: the file cannot be read, is not YAML, or holds a wrong setting.
        """
        file = yaml_file.read(path)
        return cls._validated(file.values, file.place_of)

    @classmethod
    def _validated(cls: type[SettingsT], values: Any, place_of: validation.PlaceOf) -> SettingsT:
        if not (cls.ROOT_KEY and isinstance(values, Mapping) and cls.ROOT_KEY in values):
            return validation.validated(cls, values, place_of=place_of)
        beside = [key for key in values if key != cls.ROOT_KEY]
        if beside:  # which would hold for nothing
            raise errors.UserError(
                f"Expected every key below {cls.ROOT_KEY} in {place_of((beside[0],))}. "
                f"Received: {beside[0]}, which stands beside it. Move it there."
            )
        return validation.validated(
            cls,
            values[cls.ROOT_KEY],
            place_of=lambda location: place_of((cls.ROOT_KEY, *location)),
        )
