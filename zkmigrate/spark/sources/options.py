"""Define the base class of our data sources, and a reader of their options.

Spark passes options as text; the case of their names does not matter.
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
"""The name of the column of every table that says why a file or record could not be read."""


class OwnSchemaSource(DataSource):
    """A data source that defines its own columns.

    format: the name of the data source in ``spark.read.format``.
    """

    format: str
    choice_of_columns = "use the option columns"

    @classmethod
    def name(cls) -> str:
        return cls.format

    def schema(self) -> StructType:
        return from_arrow_schema(self.arrow_schema())

    def arrow_schema(self) -> pa.Schema:
        """Return the schema of the batches that a reader yields."""
        raise NotImplementedError

    def refuse_other(self, schema: StructType) -> None:
        """Raise UsageError if the caller passed another schema than that of the data source."""
        if schema.fieldNames() != self.arrow_schema().names:
            raise UsageError(
                f"{self.format} has its own schema. Next: remove the call of schema(...), and "
                f"{self.choice_of_columns}"
            )


class OptionReader:
    """A reader of options, one by one. Its method `end` rejects options that were not read.

    All methods raise UsageError for a wrong value.
    """

    def __init__(self, given: Mapping[str, str]) -> None:
        self._given = {key.lower(): value for key, value in given.items()}
        self._known: list[str] = []

    def paths(self) -> tuple[str, ...]:
        """Return the paths that were passed to ``load``, one or several."""
        several = self._take("paths")
        one = self._take("path")
        found = [*(json.loads(several) if several is not None else []), *([one] if one else [])]
        if not found:
            raise UsageError(
                "no path is given. Needed: load(PATH) with a dataDir, its version-2, a file of it, or a glob"
            )
        return tuple(found)

    def text(self, name: str, otherwise: str = "") -> str:
        """Return an option's text unchanged, or `otherwise` if the option is not given."""
        found = self._take(name)
        return otherwise if found is None else found

    def choice(self, name: str, possible: Sequence[str]) -> str:
        """Return an option's value, which must be a possible word. The first word is the default."""
        found = self.text(name, possible[0]).lower()
        if found not in possible:
            raise UsageError(f"the option {name} is {found!r}. Possible: {', '.join(possible)}")
        return found

    def columns(self, schema: pa.Schema, permissive: bool) -> pa.Schema:
        """Return the schema of the columns in the option `columns`, in that order, or of all columns.

        permissive: the column `corrupt` must be among the columns, to mark the rows of unreadable records.
        """
        names = list(dict.fromkeys(self.words("columns"))) or schema.names
        unknown = [name for name in names if name not in schema.names]
        if unknown:
            raise UsageError(
                f"there are no columns {', '.join(unknown)}. Possible: {', '.join(schema.names)}"
            )
        if permissive and CORRUPT not in names:
            raise UsageError(
                f"the columns are {', '.join(names)}, without {CORRUPT}, but the mode is permissive. A row "
                f"that could not be read would look like any other. Needed: {CORRUPT} among the columns"
            )
        return pa.schema([schema.field(name) for name in names])

    def data(self) -> bool:
        """Return whether the option `data` or the option `columns` requests the znodes' data."""
        return self.flag("data") or "data" in self.words("columns")

    def words(self, name: str) -> list[str]:
        """Return the words of a comma-separated option; none by default."""
        return [word.strip() for word in self.text(name).split(",") if word.strip()]

    def flag(self, name: str) -> bool:
        """Return whether an option is true; the default is false."""
        return self.choice(name, ("false", "true")) == "true"

    def number(self, name: str, otherwise: int) -> int:
        """Return an option's value as a whole number that is not negative; `otherwise` by default."""
        found = self.text(name, str(otherwise))
        if not (found.isascii() and found.isdecimal()):
            raise UsageError(f"the option {name} is {found!r}. Needed: a whole number")
        return int(found)

    def prefix(self, name: str) -> str:
        """Return an option's value as the beginning of a path, which must be ASCII.

        A log may have different bytes for the same character outside ASCII.
        """
        found = self.text(name)
        if not found.isascii():
            raise UsageError(
                f"the option {name} is {found!r}. Needed: only ASCII. For other text, use a filter of Spark"
            )
        return found

    def zxid(self, name: str, otherwise: int) -> int:
        """Return an option's value as a zxid, given in hexadecimal with 0x or as a decimal number."""
        text = self.text(name)
        if not text:
            return otherwise
        try:
            return int(text, 0)
        except ValueError:
            raise UsageError(f"the option {name} is {text!r}. Needed: a zxid, such as 0x1a00000000") from None

    def millis(self, name: str, otherwise: int) -> int:
        """Return a time in ISO 8601 as milliseconds since 1970. A time without a zone is UTC."""
        text = self.text(name)
        if not text:
            return otherwise
        try:
            at = datetime.fromisoformat(text)
        except ValueError:
            raise UsageError(
                f"the option {name} is {text!r}. Needed: a time, such as 2026-11-22T03:00:00Z"
            ) from None
        return round((at if at.tzinfo else at.replace(tzinfo=UTC)).timestamp() * 1000)

    def end(self) -> None:
        """Raise UsageError for options that were given but not read."""
        known = {name.lower() for name in self._known}
        if left := sorted(self._given.keys() - known):
            named = ", ".join(left)
            raise UsageError(f"unknown option {named}. Possible: {', '.join(self._known)}")

    def _take(self, name: str) -> str | None:
        if name not in self._known:
            self._known.append(name)
        return self._given.get(name.lower())
