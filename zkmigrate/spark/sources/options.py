"""What all data sources here share: a schema of their own, and options, which Spark gives as text by name in
any case."""

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
    """A data source that knows its columns. format: its name in ``spark.read.format``."""

    format: str
    choice_of_columns = "but the option columns"

    @classmethod
    def name(cls) -> str:
        return cls.format

    def schema(self) -> StructType:
        return from_arrow_schema(self.arrow_schema())

    def arrow_schema(self) -> pa.Schema:
        """Of the batches that a reader gives."""
        raise NotImplementedError

    def refuse_other(self, schema: StructType) -> None:
        """Raises UsageError for a schema that the caller made."""
        if schema.fieldNames() != self.arrow_schema().names:
            raise UsageError(
                f"{self.format} has its own schema. Needed: no schema(...), {self.choice_of_columns}"
            )


class OptionReader:
    """Reads options one by one; `end` refuses those that were not read. All raise UsageError."""

    def __init__(self, given: Mapping[str, str]) -> None:
        self._given = {key.lower(): value for key, value in given.items()}
        self._known: list[str] = []

    def paths(self) -> tuple[str, ...]:
        """The arguments of ``load``: one path, or several."""
        several = self._take("paths")
        one = self._take("path")
        found = [*(json.loads(several) if several is not None else []), *([one] if one else [])]
        if not found:
            raise UsageError("no path. Needed: load(PATH), a dataDir, its version-2, a file of it, or a glob")
        return tuple(found)

    def text(self, name: str, otherwise: str = "") -> str:
        """As it is."""
        found = self._take(name)
        return otherwise if found is None else found

    def choice(self, name: str, possible: Sequence[str]) -> str:
        """One of several words; the first is the default."""
        found = self.text(name, possible[0]).lower()
        if found not in possible:
            raise UsageError(f"{name} {found!r}. Possible: {', '.join(possible)}")
        return found

    def columns(self, schema: pa.Schema, permissive: bool) -> pa.Schema:
        """The names in `columns`, in their order, or all. permissive: `corrupt` must be among them, to mark
        the rows for what could not be read."""
        names = list(dict.fromkeys(self.words("columns"))) or schema.names
        unknown = [name for name in names if name not in schema.names]
        if unknown:
            raise UsageError(f"columns {', '.join(unknown)}. Possible: {', '.join(schema.names)}")
        if permissive and CORRUPT not in names:
            raise UsageError(
                f"columns {', '.join(names)} with mode permissive: a row for what could not be read would "
                f"look like any other. Needed: {CORRUPT} among them"
            )
        return pa.schema([schema.field(name) for name in names])

    def data(self) -> bool:
        """Whether the data of znodes is wanted, by `data` or in `columns`."""
        return self.flag("data") or "data" in self.words("columns")

    def words(self, name: str) -> list[str]:
        """Words with commas between; none by default."""
        return [word.strip() for word in self.text(name).split(",") if word.strip()]

    def flag(self, name: str) -> bool:
        """true or false (default)."""
        return self.choice(name, ("false", "true")) == "true"

    def number(self, name: str, otherwise: int) -> int:
        """A whole number, not negative."""
        found = self.text(name, str(otherwise))
        if not (found.isascii() and found.isdecimal()):
            raise UsageError(f"{name} {found!r}. Needed: a whole number")
        return int(found)

    def prefix(self, name: str) -> str:
        """The beginning of a path in ASCII: a log may have other bytes than ours for other characters."""
        found = self.text(name)
        if not found.isascii():
            raise UsageError(f"{name} {found!r}. Needed: ASCII alone; Spark can filter what is not")
        return found

    def zxid(self, name: str, otherwise: int) -> int:
        """0x and hexadecimal, as ZooKeeper writes it, or decimal."""
        text = self.text(name)
        if not text:
            return otherwise
        try:
            return int(text, 0)
        except ValueError:
            raise UsageError(f"{name} {text!r}. Needed: a zxid, such as 0x1a00000000") from None

    def millis(self, name: str, otherwise: int) -> int:
        """A time in ISO 8601, in UTC without a zone, as milliseconds since the epoch."""
        text = self.text(name)
        if not text:
            return otherwise
        try:
            at = datetime.fromisoformat(text)
        except ValueError:
            raise UsageError(f"{name} {text!r}. Needed: a time, such as 2026-11-22T03:00:00Z") from None
        return round((at if at.tzinfo else at.replace(tzinfo=UTC)).timestamp() * 1000)

    def end(self) -> None:
        """Refuses the options that were not read."""
        known = {name.lower() for name in self._known}
        if left := sorted(self._given.keys() - known):
            named = ", ".join(left)
            raise UsageError(f"unknown option {named}. There are: {', '.join(self._known)}")

    def _take(self, name: str) -> str | None:
        if name not in self._known:
            self._known.append(name)
        return self._given.get(name.lower())
