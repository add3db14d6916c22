"""The base of every section of the settings."""

import pydantic


class Section(pydantic.BaseModel):
    """An immutable group of settings that refuses unknown keys, NaN and infinities."""

    model_config = pydantic.ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)
