"""Read and change chosen fields of a message by its schema, in one pass over the bytes.

All other bytes stay as they are. Formats: Kafka's protocol guide and KIP-482 (compact types, tagged fields).
A schema is one of Kafka's own message definitions, which kafka-python includes.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Collection, Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain, repeat
from typing import Any, TypeVar

from zkmigrate.topics.gateway.rules.seen import MOST_NAMES

EPOCHS = frozenset({"LeaderEpoch", "CurrentLeaderEpoch", "CommittedLeaderEpoch"})
"""The names of the fields that hold a leader epoch, in every message that the gateway offers."""

SIZES = {"int8": 1, "bool": 1, "int16": 2, "uint16": 2, "int32": 4, "int64": 8, "float64": 8, "uuid": 16}
_SHORT, _INT = struct.Struct(">h"), struct.Struct(">i")
_NONE = _INT.pack(-1)
_VARINT_BYTES, _VARINT_MOST = 5, (1 << 32) - 1
_ENDLESS = 1 << 15
MOST_TEXT, MOST_TAGS = (1 << 15) - 1, 64
"""The longest text in bytes, which is the brokers' limit too, and the most tagged fields in one place.

Kafka itself uses only a few tagged fields.
"""
SLICE = 1024
"""The bytes of a message that are read at a time, so that no message delays other connections for long."""

T = TypeVar("T")
Where = Callable[[int], tuple[str, int]]
"""A function that returns the host and port of the listener for a broker's node id."""


class FrameError(ValueError):
    """Raised for a message that breaks a rule of the protocol, or a limit. Its connection is then closed.

    what: the kind of mistake, such as size, length, count, number, rest, api, order, time, memory, login or
    place.
    """

    def __init__(self, what: str, text: str) -> None:
        super().__init__(f"{what}: {text}")
        self.what = what


@dataclass(slots=True)
class Walk:
    """A message, and the position up to which it was read.

    kept: the position up to which ``pieces`` contains the message. pieces: the message with its changes, in
    parts. seen: the fields that were read, by name. todo: the remaining steps; the steps of the innermost
    array come last.
    """

    data: bytes | bytearray
    where: Where
    at: int = 0
    kept: int = 0
    pieces: list[bytes | memoryview] = field(default_factory=list)
    seen: dict[str, Any] = field(default_factory=dict)
    todo: list[Iterator[_Part]] = field(default_factory=list)

    def go(self, most: int) -> bool:
        """Read about ``most`` more bytes. Return True if the end was reached. Raises FrameError."""
        until = self.at + most
        while self.todo:
            for part in self.todo[-1]:
                items = part.step(self)
                if items:
                    self.todo.append(chain.from_iterable(repeat(part.inner, items)))
                    break
                if self.at > until:
                    return False
            else:
                self.todo.pop()
        return True

    def slices(self) -> Generator[None, None, Walk]:
        """Read the message to its end, and yield after each slice. Return this walk. Raises FrameError."""
        while not self.go(SLICE):
            yield
        return self

    def take(self, count: int) -> int:
        """Move forward by a number of bytes. Return the position before the move. Raises FrameError."""
        begun, self.at = self.at, self.at + count
        if self.at > len(self.data):
            raise FrameError(
                "length",
                f"a field has {count} bytes from byte {begun} on, but the frame ends at {len(self.data)}",
            )
        return begun

    def short(self) -> int:
        return int(_SHORT.unpack_from(self.data, self.take(2))[0])

    def number(self) -> int:
        return int(_INT.unpack_from(self.data, self.take(4))[0])

    def varint(self) -> int:
        """Read an unsigned varint of one to five bytes. Raises FrameError."""
        value = 0
        for n in range(_VARINT_BYTES):
            byte = self.data[self.take(1)]
            value |= (byte & 0x7F) << 7 * n
            if byte < 0x80:
                break
        else:
            raise FrameError("number", f"the number at byte {self.at} has more than {_VARINT_BYTES} bytes")
        if value > _VARINT_MOST:
            raise FrameError("number", f"the number {value} before byte {self.at} is too high")
        return value

    def length(self, *, compact: bool, wide: bool) -> int:
        """Read the length of a text, a byte string or an array. Return -1 for null.

        wide: whether a length that is not compact takes four bytes, and not two. Raises FrameError.
        """
        value = self.varint() - 1 if compact else self.number() if wide else self.short()
        if value < -1 or (value > MOST_TEXT and not wide):
            raise FrameError("length", f"the length {value} before byte {self.at} is not valid")
        return value

    def tags(self) -> int:
        """Skip the tagged fields at the current position. Return their number. Raises FrameError."""
        count = self.varint()
        if count > MOST_TAGS:
            raise FrameError(
                "count", f"there are {count} tagged fields at byte {self.at}; needed: at most {MOST_TAGS}"
            )
        for _ in range(count):
            self.varint()
            self.take(self.varint())
        return count

    def replace(self, begun: int, new: bytes) -> None:
        """Replace the bytes from position ``begun`` up to the current position with other bytes."""
        self.pieces += (memoryview(self.data)[self.kept : begun], new)
        self.kept = self.at

    def overwrite(self, begun: int, new: bytes, step: int = 1) -> None:
        """Overwrite bytes of the message from position ``begun`` on, one byte in every ``step`` bytes."""
        if isinstance(self.data, bytes):
            self.data = bytearray(self.data)
        self.data[begun : begun + len(new) * step : step] = new

    def done(self) -> bytes | bytearray:
        """Return the message with all changes made so far."""
        if not self.pieces:
            return self.data
        return b"".join((*self.pieces, memoryview(self.data)[self.kept :]))


_Step = Callable[[Walk], int | None]


@dataclass(frozen=True)
class _Part:
    """A field of a message.

    step: a function that reads the field; for an array it returns the number of items.
    least: the fewest bytes that the field can take.
    fixed: whether the field always takes ``least`` bytes, so that it can be skipped.
    epochs: in a fixed field, the positions of leader epochs.
    inner: for an array, the fields of an item.
    name: the name of the field, if its value is kept.
    """

    step: _Step
    least: int
    fixed: bool = False
    epochs: tuple[int, ...] = ()
    inner: tuple[_Part, ...] = ()
    name: str = ""


@dataclass(frozen=True)
class Layout:
    """The fields of one version of a message.

    flexible: whether the version has compact types and tagged fields. first: the fields up to the last field
    whose value is kept.
    """

    parts: tuple[_Part, ...]
    flexible: bool
    first: tuple[_Part, ...] = ()

    def start(self, data: bytes | bytearray, where: Where, at: int = 0) -> Walk:
        """Return a walk that is at the beginning of a message.

        where: a function that returns the host and port for a node id. at: the position of the message in the
        data.
        """
        return Walk(data, where, at, todo=[iter(self.parts)])

    def whole(self, data: bytes | bytearray, where: Where, at: int = 0) -> Generator[None, None, Walk]:
        """Read a whole message from position ``at`` on, slice by slice.

        Returns the walk. Raises FrameError.
        """
        walk = yield from self.start(data, where, at).slices()
        if walk.at != len(data):
            raise FrameError("rest", f"{len(data) - walk.at} bytes follow the message")
        return walk

    def begin(self, data: bytes | bytearray, where: Where, at: int = 0) -> Generator[None, None, Walk]:
        """Read a message up to the last field whose value is kept, slice by slice.

        Returns the walk. Raises FrameError.
        """
        return (yield from Walk(data, where, at, todo=[iter(self.first)]).slices())


def finished(steps: Generator[None, None, T]) -> T:
    """Run a generator to its end without a pause, and return the generator's result."""
    while True:
        try:
            next(steps)
        except StopIteration as end:
            told: T = end.value
            return told


def span(text: str | None) -> tuple[int, int]:
    """Return the first and last version of a range such as ``0+``, ``2-5``, ``3`` or ``none``."""
    if text is None or text.strip() in ("", "none"):
        return 0, -1
    first, _, last = text.strip().removesuffix("+").partition("-")
    return int(first), _ENDLESS if text.strip().endswith("+") else int(last or first)


def within(text: str | None, version: int) -> bool:
    """Return True if a schema's range of versions contains a version."""
    first, last = span(text)
    return first <= version <= last


def layout(schema: Mapping[str, Any], version: int, look: Collection[str] = ()) -> Layout:
    """Return the layout of a version of a message.

    look: the names of the top-level fields whose values are kept. The value of an array is the set of its
    items' names. The value is None if the array is null, or if it is empty in a version that has no null.
    Kafka takes such an array as all items.
    """
    flexible = within(schema.get("flexibleVersions"), version)
    parts = tuple(_parts(schema["fields"], version, flexible, look))
    read = [at for at, part in enumerate(parts, 1) if part.name]
    return Layout(parts, flexible, parts[: max(read, default=0)])


def _parts(
    fields: Sequence[Mapping[str, Any]], version: int, flexible: bool, look: Collection[str]
) -> list[_Part]:
    parts: list[_Part] = []
    own = [one for one in fields if within(one["versions"], version)]
    own = [one for one in own if not within(one.get("taggedVersions"), version)]
    names = [one["name"] for one in own]
    hosts = {at for at in range(1, len(own)) if names[at - 1 : at + 2] == ["NodeId", "Host", "Port"]}
    skip, epochs = 0, list[int]()
    for at, one in enumerate(own):
        if at in hosts:
            part = _Part(_address(flexible), 5 if flexible else 6)
        elif at - 1 in hosts:
            continue  # the step of the host took the port too
        else:
            part = _part(one, version, flexible, look)
        if part.fixed:
            epochs += (skip + epoch for epoch in part.epochs)
            skip += part.least
            continue
        parts += [_skip(skip, *epochs)] if skip else []
        parts.append(part)
        skip, epochs = 0, []
    parts += [_skip(skip, *epochs)] if skip else []
    return [*parts, _Part(_tags, 1)] if flexible else parts


def _part(one: Mapping[str, Any], version: int, flexible: bool, look: Collection[str]) -> _Part:
    name, kind = one["name"], one["type"]
    if name in EPOCHS:
        return _skip(4, 0)
    if name in look and kind.startswith("[]"):
        inner = _parts(one["fields"], version, flexible, ("Name",))
        nullable = within(one.get("nullableVersions"), version)
        items = tuple(replace(part, step=_name(name, part.step)) if part.name else part for part in inner)
        return _Part(_names(name, inner, flexible, nullable), 1, inner=items, name=name)
    if name in look:
        return _Part(_read(name, kind, flexible), 1, name=name)
    if kind in SIZES:
        return _skip(SIZES[kind])
    if kind.startswith("[]"):
        inner = (
            _parts(one["fields"], version, flexible, ())
            if "fields" in one
            else [_part({**one, "type": kind[2:]}, version, flexible, ())]
        )
        fixed = all(part.fixed for part in inner)
        return _Part(_array(inner, flexible), 1 if flexible else 4, inner=() if fixed else tuple(inner))
    wide = kind in ("bytes", "records")
    return _Part(_text(flexible, wide), 1 if flexible else 4 if wide else 2)


def _skip(count: int, *epochs: int) -> _Part:
    """Return a part that skips ``count`` bytes, and sets the leader epochs at the given positions to -1."""

    def step(walk: Walk) -> None:
        begun = walk.take(count)
        for at in epochs:
            if walk.data[begun + at : begun + at + 4] != _NONE:
                walk.overwrite(begun + at, _NONE)

    return _Part(step, count, fixed=True, epochs=epochs)


def _tags(walk: Walk) -> None:
    walk.tags()


def _text(flexible: bool, wide: bool) -> _Step:
    def step(walk: Walk) -> None:
        walk.take(max(0, walk.length(compact=flexible, wide=wide)))

    return step


def _read(name: str, kind: str, flexible: bool) -> _Step:
    def step(walk: Walk) -> None:
        if kind == "int16":
            walk.seen[name] = walk.short()
            return
        count = walk.length(compact=flexible, wide=kind == "bytes")
        begun = walk.take(max(0, count))
        told = bytes(walk.data[begun : walk.at])
        walk.seen[name] = None if count < 0 else told if kind == "bytes" else told.decode(errors="replace")

    return step


def _array(inner: Sequence[_Part], flexible: bool) -> _Step:
    least = _least(inner)
    whole = all(part.fixed for part in inner)
    epochs = inner[0].epochs if whole else ()

    def step(walk: Walk) -> int | None:
        count = _count(walk, least, flexible)
        if not whole:
            return max(0, count)
        begun = walk.take(max(0, count) * least)
        for at in epochs:
            for byte in range(begun + at, begun + at + 4):
                if walk.data[byte : walk.at : least] != b"\xff" * count:
                    walk.overwrite(byte, b"\xff" * count, least)
        return None

    return step


def _names(name: str, inner: Sequence[_Part], flexible: bool, nullable: bool) -> _Step:
    """Return the step that reads an array, and keeps only the names of its items."""
    least = _least(inner)

    def step(walk: Walk) -> int:
        count = _count(walk, least, flexible)
        walk.seen[name] = set() if count > 0 or (nullable and not count) else None
        return max(0, count)

    return step


def _name(array: str, read: _Step) -> _Step:
    """Return the step that reads the name of an array's item.

    One name more than the limit is kept, so that a reader sees that names are missing.
    """

    def step(walk: Walk) -> None:
        read(walk)
        told, names = walk.seen.pop("Name"), walk.seen[array]
        if told is not None and len(names) <= MOST_NAMES:
            names.add(told)

    return step


def _least(inner: Sequence[_Part]) -> int:
    """Return the fewest bytes that an item of an array can take."""
    return max(1, sum(part.least for part in inner))


def _count(walk: Walk, least: int, flexible: bool) -> int:
    """Read the number of items of an array. Return -1 for null. Raises FrameError.

    least: the fewest bytes of an item, from which the highest possible number follows.
    """
    count = walk.length(compact=flexible, wide=True)
    if count * least > len(walk.data) - walk.at:
        raise FrameError("count", f"an array of {count} items at byte {walk.at} does not fit into the frame")
    return count


def _address(flexible: bool) -> _Step:
    """Return the step that replaces the host and port after a node id.

    The node id -1 means that there is no node.
    """

    def step(walk: Walk) -> None:
        node = int(_INT.unpack_from(walk.data, walk.at - 4)[0])
        begun = walk.at
        walk.take(max(0, walk.length(compact=flexible, wide=False)))
        walk.take(4)
        if node >= 0:
            host, port = walk.where(node)
            walk.replace(begun, text(host, compact=flexible) + _INT.pack(port))

    return step


def text(value: str, *, compact: bool) -> bytes:
    """Return a text encoded with its length before it."""
    told = value.encode()
    return varint(len(told) + 1) + told if compact else _SHORT.pack(len(told)) + told


def varint(value: int) -> bytes:
    """Return an unsigned number encoded in one to five bytes."""
    told = bytearray()
    while value >= 0x80:
        told.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes((*told, value))
