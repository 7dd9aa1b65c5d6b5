"""Provide what all data sources here need: a schema of their own, and options.

Spark gives options as text by name in any case.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime

import pyarrow as pa
from pyspark.sql.datasource import DataSource
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import StructType

from zkmigrate.errors import UsageError

CORRUPT = "corrupt"
"""The column of every table for what could not be read."""


class OwnSchemaSource(DataSource):
    """A data source that knows its columns.

    format: its name in ``spark.read.format``.
    """

    format: str
    choice_of_columns = "but the option columns"

    @classmethod
    def name(cls) -> str:
        return cls.format

    def schema(self) -> StructType:
        return from_arrow_schema(self.arrow_schema())

    def arrow_schema(self) -> pa.Schema:
        """Return the schema of the batches that a reader gives."""
        raise NotImplementedError

    def refuse_other(self, schema: StructType) -> None:
        """Raise UsageError if the caller passed a schema of its own."""
        if schema.fieldNames() != self.arrow_schema().names:
            raise UsageError(
                f"{self.format} has its own schema. Needed: no call of schema(...), {self.choice_of_columns}"
            )


class OptionReader:
    """A reader of options, one by one; `end` rejects those that were not read.

    All methods raise UsageError.
    """

    def __init__(self, given: Mapping[str, str]) -> None:
        self._given = {key.lower(): value for key, value in given.items()}
        self._known: list[str] = []

    def paths(self) -> tuple[str, ...]:
        """Return the arguments of ``load``: one path, or several."""
        several = self._take("paths")
        one = self._take("path")
        found = [*(json.loads(several) if several is not None else []), *([one] if one else [])]
        if not found:
            raise UsageError(
                "no path is given. Needed: load(PATH) with a dataDir, its version-2, a file of it, or a glob"
            )
        return tuple(found)

    def text(self, name: str, otherwise: str = "") -> str:
        """Return an option's text unchanged."""
        found = self._take(name)
        return otherwise if found is None else found

    def choice(self, name: str, possible: Sequence[str]) -> str:
        """Return one of several words; the first is the default."""
        found = self.text(name, possible[0]).lower()
        if found not in possible:
            raise UsageError(f"{name} {found!r}. Possible: {', '.join(possible)}")
        return found

    def columns(self, schema: pa.Schema, permissive: bool) -> pa.Schema:
        """Return the columns named in `columns`, in their order, or all.

        permissive: `corrupt` must be among them, to mark the rows for what could not be read.
        """
        names = list(dict.fromkeys(self.words("columns"))) or schema.names
        unknown = [name for name in names if name not in schema.names]
        if unknown:
            raise UsageError(f"columns {', '.join(unknown)}. Possible: {', '.join(schema.names)}")
        if permissive and CORRUPT not in names:
            raise UsageError(
                f"columns {', '.join(names)} with mode permissive, but without {CORRUPT}: a row that could "
                f"not be read would look like any other. Needed: {CORRUPT} among the columns"
            )
        return pa.schema([schema.field(name) for name in names])

    def data(self) -> bool:
        """Return whether the option `data`, or a column named in `columns`, asks for the znodes' data."""
        return self.flag("data") or "data" in self.words("columns")

    def words(self, name: str) -> list[str]:
        """Return the words of a comma-separated option; none by default."""
        return [word.strip() for word in self.text(name).split(",") if word.strip()]

    def flag(self, name: str) -> bool:
        """Return whether an option is true; the default is false."""
        return self.choice(name, ("false", "true")) == "true"

    def number(self, name: str, otherwise: int) -> int:
        """Return a whole number that is not negative."""
        found = self.text(name, str(otherwise))
        if not (found.isascii() and found.isdecimal()):
            raise UsageError(f"{name} {found!r}. Needed: a whole number")
        return int(found)

    def prefix(self, name: str) -> str:
        """Return the beginning of a path, which must be ASCII.

        A log may have other bytes for other characters.
        """
        found = self.text(name)
        if not found.isascii():
            raise UsageError(f"{name} {found!r}. Needed: only ASCII; use a filter of Spark for other text")
        return found

    def zxid(self, name: str, otherwise: int) -> int:
        """Return a zxid, given as 0x and hexadecimal, as ZooKeeper writes it, or as decimal."""
        text = self.text(name)
        if not text:
            return otherwise
        try:
            return int(text, 0)
        except ValueError:
            raise UsageError(f"{name} {text!r}. Needed: a zxid, such as 0x1a00000000") from None

    def millis(self, name: str, otherwise: int) -> int:
        """Return a time in ISO 8601 as milliseconds since the epoch; without a zone it is UTC."""
        text = self.text(name)
        if not text:
            return otherwise
        try:
            at = datetime.fromisoformat(text)
        except ValueError:
            raise UsageError(f"{name} {text!r}. Needed: a time, such as 2026-11-22T03:00:00Z") from None
        return round((at if at.tzinfo else at.replace(tzinfo=UTC)).timestamp() * 1000)

    def end(self) -> None:
        """Raise UsageError for options that were not read."""
        known = {name.lower() for name in self._known}
        if left := sorted(self._given.keys() - known):
            named = ", ".join(left)
            raise UsageError(f"unknown option {named}. Possible: {', '.join(self._known)}")

    def _take(self, name: str) -> str | None:
        if name not in self._known:
            self._known.append(name)
        return self._given.get(name.lower())
