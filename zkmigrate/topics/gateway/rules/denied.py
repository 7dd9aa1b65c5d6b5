"""Build answers that refuse a request, with an error code for each topic, partition or name in the request.

A request and its answer have the same structure, so Kafka's definitions of both messages are enough.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from zkmigrate.topics.gateway.rules.layout import SIZES, FrameError, Walk, varint, within

MOST_ITEMS = 20_000
"""The most topics, partitions and tagged fields, counted together, of a request that can be answered here."""

_SHORT, _INT = struct.Struct(">h"), struct.Struct(">i")
_ERROR = "ErrorCode"

Fields = Sequence[Mapping[str, Any]]


def read(walk: Walk, schema: Mapping[str, Any], version: int) -> Mapping[str, Any]:
    """Return the fields of a request by name, without records.

    Fields are raw bytes, arrays are lists, and fields of type bytes or records are empty. Raises FrameError.
    """
    reader = _Reader(walk, version, within(schema.get("flexibleVersions"), version))
    found = reader.fields(schema["fields"])
    if walk.at != len(walk.data):
        raise FrameError("rest", f"{len(walk.data) - walk.at} bytes follow the message")
    return found


def written(
    schema: Mapping[str, Any], version: int, request: Mapping[str, Any], error: int, why: str
) -> bytes:
    """Return the body of an answer that has the error code in each of its error fields.

    request: the fields of the request, which are copied to the answer's fields of the same name. error:
    Kafka's error code. why: the error message, for answers that have a field for it.
    """
    flexible = within(schema.get("flexibleVersions"), version)
    return _Writer(version, flexible, _SHORT.pack(error), why.encode()).fields(schema["fields"], request)


def _untagged(fields: Fields, version: int) -> Iterator[Mapping[str, Any]]:
    """Yield the fields that exist in a version of a message and are not tagged."""
    for one in fields:
        if within(one["versions"], version) and not within(one.get("taggedVersions"), version):
            yield one


@dataclass
class _Reader:
    walk: Walk
    version: int
    flexible: bool
    items: int = 0

    def fields(self, fields: Fields) -> dict[str, Any]:
        found = {one["name"]: self._value(one, one["type"]) for one in _untagged(fields, self.version)}
        if self.flexible:
            self._count(self.walk.tags())
        return found

    def _count(self, items: int) -> None:
        self.items += items
        if self.items > MOST_ITEMS:
            raise FrameError(
                "count",
                f"the message has {self.items} items up to byte {self.walk.at}; needed: at most {MOST_ITEMS}",
            )

    def _value(self, one: Mapping[str, Any], kind: str) -> Any:
        walk = self.walk
        if kind.startswith("[]"):
            count = max(0, walk.length(compact=self.flexible, wide=True))
            self._count(count)
            return [self._value(one, kind[2:]) for _ in range(count)]
        if "fields" in one:
            return self.fields(one["fields"])
        wide = kind in ("bytes", "records")
        size = SIZES.get(kind) or max(0, walk.length(compact=self.flexible, wide=wide))
        begun = walk.take(size)
        return b"" if wide else bytes(walk.data[begun : walk.at])


@dataclass(frozen=True)
class _Writer:
    version: int
    flexible: bool
    error: bytes
    why: bytes

    def fields(self, fields: Fields, request: Mapping[str, Any]) -> bytes:
        pieces = [self._value(one, request) for one in _untagged(fields, self.version)]
        return b"".join((*pieces, b"\0" if self.flexible else b""))

    def _value(self, one: Mapping[str, Any], request: Mapping[str, Any]) -> bytes:
        name, kind = one["name"], one["type"]
        if kind.startswith("[]"):
            return self._array(one, request)
        if name.endswith(_ERROR):
            return self.error
        if kind in SIZES:
            default = b"\xff" if str(one.get("default")) == "-1" else b"\0"
            told: bytes = request.get(name, default * SIZES[kind])
            return told
        if name == "ErrorMessage":
            return self._text(self.why, kind)
        empty = None if within(one.get("nullableVersions"), self.version) else b""
        return self._text(request.get(name, empty), kind)

    def _array(self, one: Mapping[str, Any], request: Mapping[str, Any]) -> bytes:
        """Encode an array of the answer.

        If the items of the array have an error code, the result has one item for each item of the request's
        array of the same name. Otherwise the result has no items.
        """
        fields = one.get("fields", ())
        items = next((told for told in request.values() if isinstance(told, list)), [])
        items = items if _has_error_code(fields, self.version) else []
        first = next((field["name"] for field in _untagged(fields, self.version)), "")
        count = varint(len(items) + 1) if self.flexible else _INT.pack(len(items))
        named = (item if isinstance(item, dict) else {first: item} for item in items)
        return count + b"".join(self.fields(fields, item) for item in named)

    def _text(self, told: bytes | None, kind: str) -> bytes:
        length = -1 if told is None else len(told)
        if self.flexible:
            return varint(length + 1) + (told or b"")
        return (_INT if kind == "bytes" else _SHORT).pack(length) + (told or b"")


def _has_error_code(fields: Fields, version: int) -> bool:
    """Return True if one of the fields is an error code, or contains an error code in its own fields."""
    return any(
        one["name"].endswith(_ERROR) or _has_error_code(one.get("fields", ()), version)
        for one in _untagged(fields, version)
    )
