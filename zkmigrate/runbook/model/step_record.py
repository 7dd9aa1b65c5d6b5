"""The records that steps leave in the journal for later steps, as typed values.

A missing or wrong field raises :class:`~zkmigrate.errors.RecordError`; unknown fields are ignored.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, TypeVar

from pydantic import PlainSerializer, PlainValidator, TypeAdapter, ValidationError

from zkmigrate.errors import RecordError
from zkmigrate.runbook.model.step import Context

LISTED = 3


def _from_hex(text: object) -> int:
    if not isinstance(text, str):
        raise ValueError("should be hexadecimal text")
    return int(text, 16)


Hex = Annotated[int, PlainValidator(_from_hex), PlainSerializer(hex)]
"""A zxid or a session: hexadecimal text in the journal, because it may pass 2^53."""


@dataclass(frozen=True)
class Recorded:
    """Base class of every record; its annotated fields define the encoding. step: the step that writes it."""

    step: ClassVar[str]

    def encode(self) -> dict[str, Any]:
        """Return the record as the JSON value that the journal contains."""
        body: dict[str, Any] = _codec(type(self)).dump_python(self, mode="json")
        return body


R = TypeVar("R", bound=Recorded)


def recorded(kind: type[R], body: Mapping[str, Any], run: str) -> R:
    """Decode a journaled record. Raises RecordError if this version cannot read it."""
    last = _decoded.get(kind)
    if last is None or last[0] is not body:
        try:
            # As JSON, because only there strict mode takes a list for a tuple.
            last = body, _codec(kind).validate_json(json.dumps(body), strict=True)
        except ValidationError as error:
            wrong = "; ".join(_named(one) for one in error.errors()[:LISTED])
            raise RecordError(
                f"run {run}: the journal's record of {kind.step} cannot be read: {wrong}. Needed: a record "
                "as this version of zkmigrate writes it. Next: continue with the version that wrote it"
            ) from None
        _decoded[kind] = last
    record: R = last[1]
    return record


def known(kind: type[R], c: Context) -> R | None:
    """Return the last record of this kind from the journal, or None if there is none."""
    body = c.records.get(kind.step)
    return recorded(kind, body, c.run) if body else None


def needed(kind: type[R], c: Context) -> R:
    """Return the last record of this kind. Raises RecordError if the journal has none."""
    found = known(kind, c)
    if found is None:
        raise RecordError(
            f"run {c.run}: the journal holds no record of {kind.step}. Needed: that step, walked before. "
            "Next: zkmigrate rollback, then run again"
        )
    return found


_decoded: dict[type[Recorded], tuple[Mapping[str, Any], Any]] = {}
"""The last record of each kind with its source.

Every look reads the same records, some with many thousand sessions.
"""


def _codec(kind: type[Recorded]) -> TypeAdapter[Any]:
    if kind not in _codecs:
        _codecs[kind] = TypeAdapter(kind)
    return _codecs[kind]


_codecs: dict[type[Recorded], TypeAdapter[Any]] = {}


def _named(wrong: Any) -> str:
    field = ".".join(str(part) for part in wrong["loc"]) or "the record"
    return f"{field} is missing" if wrong["type"] == "missing" else f"{field}: {wrong['msg']}"
