"""Describe how two records differ."""

from __future__ import annotations

from collections.abc import Iterator

from zkmigrate.topics.mirror.rules.batch import BatchError
from zkmigrate.topics.mirror.rules.records import read_varint

Read = tuple[int, int, bytes]
"""A record, as its offset, its timestamp in milliseconds, and its body."""

_SHOWN = 40


def named(one: Read | None, other: Read | None) -> str:
    """Describe how the next record of source differs from the next record of target.

    None means that the cluster has no further record.
    """
    if one is None or other is None or one[0] != other[0]:
        here, there = ("none" if read is None else f"offset {read[0]}" for read in (one, other))
        return f"source's next record: {here}, target's: {there}"
    try:
        found = next(_differing(one, other), None)
    except (BatchError, IndexError):
        return f"offset {one[0]}: the fields of source's or target's record cannot be read"
    if found is not None:
        name, value, seen = found
        return f"offset {one[0]}: source's {name} is {_short(value)}, target's {_short(seen)}"
    return f"offset {one[0]}: source's record is encoded in {len(one[2])} bytes, target's in {len(other[2])}"


def kind(one: Read | None, other: Read | None) -> str:
    """Return the kind of difference between the next record of source and the next record of target.

    The kinds are missing, if target lacks source's record, and extra, if source lacks target's record. They
    are time, key, value or headers for the first field that differs, and encoding if only the bytes differ.
    """
    if other is None or (one is not None and one[0] < other[0]):
        return "missing"
    if one is None or one[0] > other[0]:
        return "extra"
    try:
        return next((name for name, _, _ in _differing(one, other)), "encoding")
    except (BatchError, IndexError):
        return "encoding"


def _differing(one: Read, other: Read) -> Iterator[tuple[str, object, object]]:
    """Yield each field that differs as its name, its value in ``one`` and its value in ``other``."""
    fields, others = ({"time": read[1]} | _fields(read[2]) for read in (one, other))
    return ((name, value, others[name]) for name, value in fields.items() if value != others[name])


def _short(value: object) -> str:
    text = repr(value)
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}… ({len(text)} characters)"


def _fields(body: bytes) -> dict[str, object]:
    key, at = _field(body, 0)
    value, at = _field(body, at)
    count, at = read_varint(body, at)
    headers = []
    for _ in range(count):
        name, at = _field(body, at)
        told, at = _field(body, at)
        headers.append((name, told))
    return {"key": key, "value": value, "headers": headers}


def _field(body: bytes, at: int) -> tuple[bytes | None, int]:
    length, at = read_varint(body, at)
    return (None, at) if length < 0 else (body[at : at + length], at + length)
