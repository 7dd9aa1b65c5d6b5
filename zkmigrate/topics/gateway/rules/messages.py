"""Read Kafka's requests and answers, and rewrite them for the gateway."""

from __future__ import annotations

import struct
from collections.abc import Callable, Generator, Mapping, Sequence
from functools import cache
from typing import Any, NamedTuple

from zkmigrate.topics.gateway.rules import producers
from zkmigrate.topics.gateway.rules.apis import API_VERSIONS, APIS, METADATA, Api, Ranges
from zkmigrate.topics.gateway.rules.denied import read, written
from zkmigrate.topics.gateway.rules.layout import (
    FrameError,
    Layout,
    Walk,
    Where,
    finished,
    layout,
    text,
    varint,
    within,
)

Bytes = bytes | bytearray
Schemas = Callable[[str], Mapping[str, Any]]
"""A function that returns Kafka's definition of a message by its name, such as ``MetadataResponse``."""

_HEADER, _CORRELATION, _RANGE = struct.Struct(">hhi"), struct.Struct(">i"), struct.Struct(">hhh")
_COUNT, _LENGTH = struct.Struct(">I"), struct.Struct(">H")
LEAST = _HEADER.size + 2
"""The smallest size of a request in bytes: a header without a client id."""
_FETCH_EPOCHS, _FETCH_TOPICS, _FETCH_PARTITION, _FETCH_EPOCH, _NO_EPOCH = 9, 25, 28, 4, b"\xff" * 4
"""The first version of FETCH with leader epochs, and the sizes that are needed to find these epochs.

The sizes are the bytes before the topics, the bytes of each partition, and the position of the epoch in a
partition. The last value is the epoch that means no epoch. Version 12 changes all these sizes.
"""
LONG = 4096
"""The largest FETCH, in bytes, that is searched for leader epochs without a pause."""
_ERROR = ("ErrorCode",)
_LOGIN = ("ErrorCode", "AuthBytes")
UNSUPPORTED_VERSION, _UNSUPPORTED_MECHANISM = 35, 33
_NOT_LED = (6).to_bytes(2, "big")
_BEGINS, _SESSIONS, _NEAREST = 5, 7, 11
"""The first versions of FETCH whose answers have a log start offset, a session, and a preferred replica."""
MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")
"""The SASL mechanisms that the gateway passes on. Other mechanisms were not tested."""


class Head(NamedTuple):
    """The header of a request.

    key: Kafka's number of the request. correlation: the correlation id. client: the client id, or an empty
    text. body: the position where the header ends and the message begins.
    """

    key: int
    version: int
    correlation: int
    client: str
    body: int

    @property
    def api(self) -> Api | None:
        """The kind of request, or None if the gateway does not offer the request in this version."""
        api = APIS.get(self.key)
        return api if api and api.least <= self.version <= api.most else None


def nowhere(_node: int) -> tuple[str, int]:
    """Raise AssertionError. This stands for the lookup of addresses in messages that contain none."""
    raise AssertionError("the request has no address")


class Messages:
    """A reader and writer of Kafka's messages.

    schemas: a function that returns Kafka's definition of a message by its name.
    """

    def __init__(self, schemas: Schemas) -> None:
        @cache
        def flexible(key: int, version: int) -> bool:
            return within(schemas(f"{APIS[key].schema}Request")["flexibleVersions"], version)

        @cache
        def of(name: str, version: int, look: tuple[str, ...]) -> Layout:
            return layout(schemas(name), version, look)

        self._schemas, self._flexible, self._layout = schemas, flexible, of

    def head(self, frame: Bytes, at: int = 0) -> Head:
        """Read the header of a request that begins at position ``at``.

        frame: the bytes of the request; its first bytes are enough. Raises FrameError.
        """
        if len(frame) < at + LEAST:
            raise FrameError("size", f"the request has {len(frame) - at} bytes; needed: at least {LEAST}")
        key, version, correlation = _HEADER.unpack_from(frame, at)
        walk = Walk(frame, nowhere, at + _HEADER.size)
        count = walk.length(compact=False, wide=False)
        begun = walk.take(max(0, count))
        client = frame[begun : walk.at].decode(errors="replace")
        api = APIS.get(key)
        if api and api.least <= version <= api.most and self._flexible(key, version):
            walk.tags()
        return Head(key, version, correlation, client, walk.at)

    def read_request(
        self, head: Head, frame: Bytes
    ) -> Generator[None, None, tuple[Bytes, Mapping[str, Any]]]:
        """Read a request slice by slice, and remove its leader epochs.

        Returns the request for the broker, and the values of the fields that were read. frame: the whole
        request, or the beginning of a request that is streamed. Raises FrameError.
        """
        api = APIS[head.key]
        told = self._layout(f"{api.schema}Request", head.version, api.look)
        if api.streamed or head.key == METADATA:  # librdkafka sends a byte behind it, and brokers do not mind
            walk = yield from told.begin(frame, nowhere, head.body)
        else:
            walk = yield from told.whole(frame, nowhere, head.body)
        return walk.data, walk.seen

    @staticmethod
    def acks_end(head: Head, frame: Bytes) -> int:
        """Return the position after the field acks of a PRODUCE request. Raises FrameError."""
        walk = Walk(frame, nowhere, head.body)
        walk.take(max(0, walk.length(compact=head.version >= producers.COMPACT, wide=False)))
        walk.take(2)
        return walk.at

    def read_answer(self, head: Head, frame: Bytes, where: Where) -> Generator[None, None, Bytes]:
        """Rewrite an answer slice by slice, with the gateway's addresses and without leader epochs.

        Returns the new answer. frame: the answer from its correlation id on. where: a function that returns
        the gateway's host and port for a node id. Raises FrameError.
        """
        api = APIS[head.key]
        told = self._layout(f"{api.schema}Response", head.version, ())
        walk = yield from told.whole(frame, where, self._body_start(told, frame))
        return walk.done()

    def denied(self, head: Head, frame: Bytes, error: int, why: str) -> bytes:
        """Return an answer that refuses a request with an error for each name in the request.

        frame: the whole request. error: Kafka's error code. why: the error message. Raises FrameError.
        """
        api, flexible = APIS[head.key], self._flexible(head.key, head.version)
        asked = read(Walk(frame, nowhere, head.body), self._schemas(f"{api.schema}Request"), head.version)
        told = written(self._schemas(f"{api.schema}Response"), head.version, asked, error, why)
        return _CORRELATION.pack(head.correlation) + (b"\0" if flexible else b"") + told

    def not_led(self, head: Head, frame: Bytes) -> bytes:
        """Return the answer to a FETCH that a broker gives if it leads none of the partitions.

        The answer has no records and no fetch session, and NOT_LEADER_OR_FOLLOWER for each partition. frame:
        the whole request. Raises FrameError.
        """
        version = head.version
        asked = read(Walk(frame, nowhere, head.body), self._schemas("FetchRequest"), version)
        told = [_CORRELATION.pack(head.correlation), bytes(10 if version >= _SESSIONS else 4)]
        # the end of the log, the last stable offset, and the begin of the log
        offsets = b"\xff" * (24 if version >= _BEGINS else 16)
        # no aborted transactions, no preferred replica, and no bytes of records
        rest = b"\xff" * (8 if version >= _NEAREST else 4) + bytes(4)
        told.append(_CORRELATION.pack(len(asked["Topics"])))
        for topic in asked["Topics"]:
            parts = topic["Partitions"]
            told += [len(topic["Topic"]).to_bytes(2, "big"), topic["Topic"], _CORRELATION.pack(len(parts))]
            told += [part["Partition"] + _NOT_LED + offsets + rest for part in parts]
        return b"".join(told)

    @staticmethod
    def _body_start(told: Layout, frame: Bytes) -> int:
        """Return where the message of an answer begins, after its header."""
        walk = Walk(frame, nowhere, _CORRELATION.size)
        if told.flexible:
            walk.tags()
        return walk.at

    def initiated(self, head: Head, frame: Bytes, rename: Callable[[int], int]) -> bytes:
        """Return an answer to INIT_PRODUCER_ID in which the producer id is replaced.

        rename: a function that returns the new id for the old id. Raises FrameError.
        """
        begun = self._body_start(self._layout("InitProducerIdResponse", head.version, ()), frame)
        return bytes(frame[:begun]) + producers.initiated(bytes(frame[begun:]), rename)

    def accepted(self, head: Head, frame: Bytes) -> bool:
        """Return True if an answer to SYNC_GROUP or HEARTBEAT has no error. Raises FrameError."""
        told = self._layout(f"{APIS[head.key].schema}Response", head.version, _ERROR)
        walk = finished(told.begin(frame, nowhere, self._body_start(told, frame)))
        return bool(walk.seen["ErrorCode"] == 0)

    def logged_in(self, head: Head, frame: Bytes) -> bool:
        """Return True if an answer to SASL_AUTHENTICATE completes a login. Raises FrameError.

        With PLAIN, the last answer is empty. With SCRAM, it is the server's proof, which begins with ``v=``
        (RFC 5802, section 7). The first answer of SCRAM has no error either, although the client has proven
        nothing by then.
        """
        told = self._layout("SaslAuthenticateResponse", head.version, _ERROR)
        begun = self._body_start(told, frame)
        if finished(told.begin(frame, nowhere, begun)).seen["ErrorCode"]:
            return False
        told = self._layout("SaslAuthenticateResponse", head.version, _LOGIN)
        sent = finished(told.begin(frame, nowhere, begun)).seen["AuthBytes"]
        return not sent or sent.startswith(b"v=")


def without_epochs(head: Head, frame: bytes) -> bool:
    """Return True if no partition of a FETCH has a leader epoch.

    Returns False also if this cannot be checked quickly. frame: the whole request.
    """
    if head.version < _FETCH_EPOCHS:
        return True
    at, end = head.body + _FETCH_TOPICS + 4, len(frame)
    if not at <= end <= LONG:
        return False
    for _ in range(_COUNT.unpack_from(frame, at - 4)[0]):
        if at + 2 > end:
            return False
        at += 6 + _LENGTH.unpack_from(frame, at)[0]
        if at > end:
            return False
        count = _COUNT.unpack_from(frame, at - 4)[0]
        first, at = at + _FETCH_EPOCH, at + count * _FETCH_PARTITION
        if at > end or (count == 1 and frame[first : first + 4] != _NO_EPOCH):
            return False
        if count > 1 and any(
            frame[byte:at:_FETCH_PARTITION] != _NO_EPOCH[:1] * count for byte in range(first, first + 4)
        ):
            return False
    return True


def correlation(frame: Bytes) -> int:
    """Return the correlation id of an answer. Raises FrameError."""
    if len(frame) < _CORRELATION.size:
        raise FrameError("size", f"the response has only {len(frame)} bytes")
    return int(_CORRELATION.unpack_from(frame)[0])


def ranges(frame: Bytes, version: int) -> tuple[int, Ranges]:
    """Return the error code and the supported versions from an answer to API_VERSIONS.

    version: the version of the request. A broker that does not support this version answers in version 0.
    Raises FrameError.
    """
    walk = Walk(frame, nowhere, _CORRELATION.size)
    error = walk.short()
    compact = version >= 3 and error != UNSUPPORTED_VERSION
    found: Ranges = {}
    for _ in range(walk.length(compact=compact, wide=True)):
        key, first, last = _RANGE.unpack_from(frame, walk.take(_RANGE.size))
        found[key] = (first, last)
        if compact:
            walk.tags()
    return error, found


def versions(head: Head, error: int, found: Ranges) -> bytes:
    """Return an answer to API_VERSIONS that lists no features.

    The header of this answer is the old one in every version. found: the versions of each request to list.
    """
    version = 0 if error == UNSUPPORTED_VERSION else head.version
    compact = version >= 3
    end = b"\0" if compact else b""
    items = [_RANGE.pack(key, *span) + end for key, span in sorted(found.items())]
    count = varint(len(items) + 1) if compact else _CORRELATION.pack(len(items))
    throttle = _CORRELATION.pack(0) if version >= 1 else b""
    error_code = error.to_bytes(2, "big", signed=True)
    return b"".join((_CORRELATION.pack(head.correlation), error_code, count, *items, throttle, end))


def too_new(head: Head) -> bytes:
    """Return the answer to an API_VERSIONS request of a version that is not supported.

    The answer makes the client ask again in a version that is supported.
    """
    api = APIS[API_VERSIONS]
    return versions(head, UNSUPPORTED_VERSION, {API_VERSIONS: (api.least, api.most)})


def other_mechanism(head: Head, mechanisms: Sequence[str] = MECHANISMS) -> bytes:
    """Return the answer to a SASL_HANDSHAKE that asks for a mechanism that is not passed on.

    mechanisms: the mechanisms that are passed on, which the answer lists.
    """
    names = b"".join(text(one, compact=False) for one in mechanisms)
    error = _UNSUPPORTED_MECHANISM.to_bytes(2, "big")
    return _CORRELATION.pack(head.correlation) + error + _CORRELATION.pack(len(mechanisms)) + names


def principal(mechanism: str, token: bytes | None) -> str | None:
    """Return the user's name from a client's first SASL message, or None if the message has no name.

    The formats are those of RFC 4616 (PLAIN) and RFC 5802 (SCRAM).
    """
    if not token:
        return None
    told = token.decode(errors="replace")
    if mechanism == "PLAIN":
        parts = told.split("\0")
        return parts[1] if len(parts) == 3 else None
    for part in told.split(","):
        if part.startswith("n=") and not part.startswith("n=,"):
            return part[2:].replace("=2C", ",").replace("=3D", "=")
    return None
