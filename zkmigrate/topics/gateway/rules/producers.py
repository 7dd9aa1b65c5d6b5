"""Rename producer ids across switches, so that a broker takes a producer that comes back for a new producer.

A broker remembers the last sequence number of each idempotent producer for a day. The producer keeps counting
while it writes to another cluster, so after its return its next number would not follow. The broker therefore
sees a different id after each switch. It accepts any first number from a new id, and checks the later numbers
as usual. An id that the current cluster assigned is sent back unchanged. Records are not changed; each batch
gets a new CRC.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Generator

import crc32c

from zkmigrate.topics.gateway.rules.layout import SLICE, FrameError, Walk

_STEP, _STRANGE = 1 << 40, 1 << 50
"""The distances between original and renamed producer ids.

Brokers assign ids from 0, in blocks of a thousand. An id that was assigned after the n-th switch is shown to
clients as n times ``_STEP`` higher. An id that was assigned before that switch is sent to brokers as n + 1
times ``_STRANGE`` higher, which is still below the ids that the mirror uses.
"""
_MOST_FLIPS = (1 << 10) - 1
_LENGTH, _ID = struct.Struct(">i"), struct.Struct(">q")
_HEADER, _LENGTH_AT, _LENGTH_END, _MAGIC_AT, _CRC_AT, _CRC_FROM, _ID_AT = 61, 8, 12, 16, 17, 21, 43
"""Sizes and positions, in bytes, in a record batch of format 2 (Kafka's ``DefaultRecordBatch``)."""
_MAGIC, COMPACT = 2, 9
Rename = Callable[[int], int]


def id_for_client(id: int, flips: int) -> int:
    """Return the producer id that clients see for an id that a broker assigned.

    flips: how many times the application has switched.
    """
    return id + _era(flips) * _STEP if 0 <= id < _STEP else id


def id_for_broker(id: int, flips: int) -> int:
    """Return the producer id that a broker sees for an id that a client uses.

    flips: how many times the application has switched. An id of -1 is returned unchanged, because its
    producer is not idempotent.
    """
    era = _era(flips)
    if id < 0 or id >= _STRANGE:
        return id
    return id - era * _STEP if id // _STEP == era else id + (era + 1) * _STRANGE


def _era(flips: int) -> int:
    return flips & _MOST_FLIPS


def produced(version: int, frame: bytearray, at: int, rename: Rename) -> Generator[None, None, None]:
    """Replace the producer ids in a PRODUCE request in place, slice by slice.

    at: the position after the request's header. rename: a function that returns the new id for the old id.
    Raises FrameError.
    """
    compact = version >= COMPACT
    walk, last = Walk(frame, _nowhere, at), at
    walk.take(max(0, walk.length(compact=compact, wide=False)))  # the transactional id
    walk.take(6)  # acks and timeout
    for _ in range(walk.length(compact=compact, wide=True)):
        walk.take(max(0, walk.length(compact=compact, wide=False)))
        for _ in range(walk.length(compact=compact, wide=True)):
            walk.take(4)
            size = walk.length(compact=compact, wide=True)
            begun = walk.take(max(0, size))
            yield from renamed(frame, begun, walk.at, rename)
            if compact:
                walk.tags()
            if walk.at > last + SLICE:
                last = walk.at
                yield
        if compact:
            walk.tags()
        if walk.at > last + SLICE:
            last = walk.at
            yield
    if compact:
        walk.tags()
    if walk.at != len(frame):
        raise FrameError("rest", f"{len(frame) - walk.at} bytes follow the message")


def renamed(data: bytearray, at: int, most: int, rename: Rename) -> Generator[None, None, None]:
    """Replace the producer ids in the record batches from position ``at`` to position ``most``.

    rename: a function that returns the new id for the old id. The function stops at a batch that is damaged
    or not of format 2, so that the broker refuses the batch; a new CRC would hide the damage.
    """
    view, last = memoryview(data), at
    while at + _HEADER <= most:
        end = at + _LENGTH_END + _LENGTH.unpack_from(data, at + _LENGTH_AT)[0]
        if data[at + _MAGIC_AT] != _MAGIC or not at + _HEADER <= end <= most:
            return
        crc = crc32c.crc32c(view[at + _CRC_FROM : end])
        if crc != int.from_bytes(data[at + _CRC_AT : at + _CRC_FROM], "big"):
            return
        _ID.pack_into(data, at + _ID_AT, rename(_ID.unpack_from(data, at + _ID_AT)[0]))
        crc = crc32c.crc32c(view[at + _CRC_FROM : end])
        data[at + _CRC_AT : at + _CRC_FROM] = crc.to_bytes(4, "big")
        at = end
        if at > last + SLICE:
            last = at
            yield


def initiated(body: bytes, rename: Rename) -> bytes:
    """Return an answer to INIT_PRODUCER_ID in which the producer id is replaced.

    body: the answer after its header. rename: a function that returns the new id for the old id. Raises
    FrameError.
    """
    walk = Walk(body, _nowhere)
    walk.take(6)  # throttle time and error
    begun = walk.take(_ID.size)
    walk.replace(begun, _ID.pack(rename(_ID.unpack_from(body, begun)[0])))
    return bytes(walk.done())


def _nowhere(_node: int) -> tuple[str, int]:
    raise AssertionError("the message has no address")
