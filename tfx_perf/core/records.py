"""The base of everything tfx-perf writes to disk as JSON."""

import hashlib
import json
from collections.abc import Mapping
from typing import Any, ClassVar, TypeVar

import pydantic

from tfx_perf.core import errors, storage, validation

RecordT = TypeVar("RecordT", bound="Record")

_CHECKSUM = "sha256"


class Record(pydantic.BaseModel):
    """An immutable, validated value with a lossless JSON form.

    Subclasses set `SCHEMA`, e.g. `"tfx_perf.training/1"`; it is written into the file as `schema`
    and checked when the file is read, so that a foreign or newer file is refused instead of being
    misread. A subclass that sets `SEALED` also writes a checksum of its content, `sha256`, so that
    a changed or damaged file is refused.
    """

    model_config = pydantic.ConfigDict(frozen=True, extra="forbid")

    SCHEMA: ClassVar[str] = ""
    SEALED: ClassVar[bool] = False
    REMOVED: ClassVar[frozenset[str]] = frozenset()  # fields that earlier versions wrote
    RENAMED: ClassVar[Mapping[str, str]] = {}  # names of fields by their earlier names

    @pydantic.model_validator(mode="before")
    @classmethod
    def _rename_earlier_fields(cls, values: Any) -> Any:
        if not isinstance(values, dict) or not (cls.REMOVED | cls.RENAMED.keys()) & values.keys():
            return values
        return {
            cls.RENAMED.get(name, name): value
            for name, value in values.items()
            if name not in cls.REMOVED
        }

    def to_text(self) -> str:
        """Returns the record as JSON."""
        document = {"schema": self.SCHEMA, **self.model_dump(mode="json")}
        if self.SEALED:
            document[_CHECKSUM] = _checksum(document)
        return json.dumps(document, indent=2) + "\n"

    @classmethod
    def from_text(cls: type[RecordT], text: str | bytes, *, source: str) -> RecordT:
        """Returns the record that `to_text` turned into `text`; errors call it `source`.

        UserError: it is not JSON, has another schema or checksum, or does not validate.
        """
        try:
            document = json.loads(text)
        except ValueError as error:
            raise errors.UserError(_unreadable(cls.SCHEMA, source, error)) from error
        schema = document.pop("schema", None) if isinstance(document, dict) else None
        if schema != cls.SCHEMA:
            raise errors.UserError(
                f"Expected a file of schema {cls.SCHEMA}. Received: schema={schema} in {source}. "
                "If another version of tfx-perf has written it, use that version."
            )
        if cls.SEALED:
            checksum = document.pop(_CHECKSUM, None)
            if checksum != _checksum({"schema": schema, **document}):
                raise errors.UserError(
                    f"Expected a checksum that fits the content of {source}, which has been "
                    f"changed or damaged since it was written. Received: {_CHECKSUM}={checksum}. "
                    "Restore or remove it."
                )
        try:
            return cls.model_validate(document)
        except pydantic.ValidationError as error:
            first = error.errors()[0]
            where = ".".join(str(part) for part in first["loc"])
            raise errors.UserError(
                f"Expected a valid {cls.SCHEMA} in {source}. Received: {where}={first['input']!r}"
                f" (expected {validation.expected(first)})."
            ) from error

    def write(self, path: storage.Place) -> None:
        """Writes the record as JSON to `path`, local or remote, whose folder must exist."""
        storage.write_text(path, self.to_text())

    @classmethod
    def read(cls: type[RecordT], path: storage.Place) -> RecordT:
        """Reads a record that `write` made; UserError: no file, or one that `from_text` refuses."""
        try:
            text = storage.read_bytes(path)
        except OSError as error:
            raise errors.UserError(_unreadable(cls.SCHEMA, path, error)) from error
        return cls.from_text(text, source=str(path))


class Advice(Record):
    """A warning: a sentence on what was measured and what to do, and a stable `code` for it."""

    code: str
    message: str


def _unreadable(schema: str, source: storage.Place, error: Exception) -> str:
    return f"Expected a JSON file of schema {schema}. Received: path={source} ({error})."


def _checksum(document: Mapping[str, Any]) -> str:
    """Returns the SHA-256 of a JSON document, regardless of white space and key order."""
    canonical = json.dumps(document, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(canonical.encode()).hexdigest()
