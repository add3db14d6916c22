"""The base of everything tfx-perf writes to disk as JSON."""

import json
import pathlib
from typing import ClassVar, TypeVar

import pydantic

from tfx_perf import errors

RecordT = TypeVar("RecordT", bound="Record")


class Record(pydantic.BaseModel):
    """An immutable, validated value with a lossless JSON form.

    Subclasses set `SCHEMA`, e.g. `"tfx_perf.training/1"`; it is written into the file as
    `schema` and checked when the file is read, so that a foreign or newer file is
    refused instead of being misread.
    """

    model_config = pydantic.ConfigDict(frozen=True, extra="forbid")

    SCHEMA: ClassVar[str] = ""

    def write(self, path: str | pathlib.Path) -> None:
        """Writes the record as JSON to `path`, whose folder must exist."""
        document = {"schema": self.SCHEMA, **self.model_dump(mode="json")}
        pathlib.Path(path).write_text(json.dumps(document, indent=2) + "\n", encoding="utf-8")

    @classmethod
    def read(cls: type[RecordT], path: str | pathlib.Path) -> RecordT:
        """Reads a record that `write` made.

        Raises:
            UserError: the file is missing, is not JSON, has another schema, or does not validate.
        """
        try:
            document = json.loads(pathlib.Path(path).read_text(encoding="utf-8"))
        except (OSError, ValueError) as error:
            raise errors.UserError(
                f"Expected a JSON file of schema {cls.SCHEMA}. Received: path={path} ({error})."
            ) from error
        schema = document.pop("schema", None) if isinstance(document, dict) else None
        if schema != cls.SCHEMA:
            raise errors.UserError(
                f"Expected a file of schema {cls.SCHEMA}. Received: schema={schema} in {path}."
            )
        try:
            return cls.model_validate(document)
        except pydantic.ValidationError as error:
            first = error.errors()[0]
            where = ".".join(str(part) for part in first["loc"])
            raise errors.UserError(
                f"Expected a valid {cls.SCHEMA} in {path}. Received: {where}={first['input']!r}"
                f" ({first['msg']})."
            ) from error
