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

    No value is made one of another type: true is no number, `"yes"` is neither true nor false.
    """

    model_config = pydantic.ConfigDict(
        frozen=True, extra="forbid", strict=True, allow_inf_nan=False
    )


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
            return validation.validated(cls, {} if values is None else values, place_of=place_of)
        beside = [key for key in values if key != cls.ROOT_KEY]
        if beside:  # which would hold for nothing
            raise errors.UserError(
                f"Expected every key below {cls.ROOT_KEY} in {place_of((beside[0],))}. "
                f"Received: {beside[0]}, which stands beside it. Move it there."
            )
        below = values[cls.ROOT_KEY]
        return validation.validated(
            cls,
            {} if below is None else below,
            place_of=lambda location: place_of((cls.ROOT_KEY, *location)),
        )
