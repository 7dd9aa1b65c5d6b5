"""Encode and decode those of ZooKeeper's client messages that the load needs.

The source of the formats is ``zookeeper.jute`` (RequestHeader, ReplyHeader, CreateRequest, SetDataRequest,
Stat, …). Numbers are big-endian, and each message follows its 4-byte length.
"""

from __future__ import annotations

import struct
from typing import NamedTuple

from zkmigrate.zookeeper.data.messages import Stat as Stat  # answers of exists and get

CREATE, DELETE, EXISTS, GET_DATA, SET_DATA, GET_CHILDREN, SYNC, PING = 1, 2, 3, 4, 5, 8, 9, 11
CLOSE_SESSION = -11
PERSISTENT, EPHEMERAL, SEQUENTIAL = 0, 1, 2
OK, CONNECTION_LOSS, NO_NODE, NODE_EXISTS = 0, -4, -101, -110
ERROR_NAMES = {
    -1: "SystemError", -4: "ConnectionLoss", -5: "MarshallingError", -6: "Unimplemented", -8: "BadArguments",
    -101: "NoNode", -102: "NoAuth", -103: "BadVersion", -108: "NoChildrenForEphemerals", -110: "NodeExists",
    -111: "NotEmpty", -112: "SessionExpired", -118: "SessionMoved", -119: "NotReadOnly",
}  # fmt: skip
_STAT = struct.Struct(">qqqqiiiqiiq")


class Reply(NamedTuple):
    """The answer to one request; ``error`` is CONNECTION_LOSS when no answer came.

    sent_ns, at_ns: when the request was sent and the answer received, CLOCK_MONOTONIC.
    """

    error: int
    zxid: int
    body: bytes
    sent_ns: int
    at_ns: int


def error_name(code: int) -> str:
    return ERROR_NAMES.get(code, f"error {code}")


def hex_id(value: int) -> str:
    """Return a zxid or session id (signed in messages) in the form in which ZooKeeper prints it."""
    return hex(value & 0xFFFFFFFFFFFFFFFF)


def with_parents(path: str) -> list[str]:
    """Return the paths of all znodes above this one, from the top, and its own."""
    parts = path.strip("/").split("/")
    return ["/" + "/".join(parts[:end]) for end in range(1, len(parts) + 1)]


def buffer(data: bytes) -> bytes:
    """Return a jute buffer or string: 4-byte length, then the bytes."""
    return struct.pack(">i", len(data)) + data


def create_request(path: str, data: bytes, flags: int) -> bytes:
    """Return a CreateRequest with the open ACL (world:anyone, all permissions)."""
    acl = struct.pack(">ii", 1, 31) + buffer(b"world") + buffer(b"anyone")
    return buffer(path.encode()) + buffer(data) + acl + struct.pack(">i", flags)


def set_request(path: str, data: bytes) -> bytes:
    """Return a SetDataRequest for any version."""
    return buffer(path.encode()) + buffer(data) + struct.pack(">i", -1)


def delete_request(path: str) -> bytes:
    """Return a DeleteRequest for any version."""
    return buffer(path.encode()) + struct.pack(">i", -1)


def read_request(path: str) -> bytes:
    """Return an ExistsRequest, GetDataRequest or GetChildrenRequest (they are the same) without a watch."""
    return buffer(path.encode()) + b"\0"


def sync_request(path: str) -> bytes:
    return buffer(path.encode())


def path_of(body: bytes) -> str:
    """Return the path in a CreateResponse."""
    return take(body, 0)[0].decode()


def stat_of(body: bytes) -> Stat:
    """Return the Stat at the start of an ExistsResponse or SetDataResponse."""
    return Stat(*_STAT.unpack_from(body))


def data_of(body: bytes) -> bytes:
    """Return the data in a GetDataResponse."""
    return take(body, 0)[0]


def children_of(body: bytes) -> list[str]:
    """Return the names in a GetChildrenResponse."""
    (count,) = struct.unpack_from(">i", body)
    names, at = [], 4
    for _ in range(count):
        name, at = take(body, at)
        names.append(name.decode())
    return names


def take(body: bytes, at: int) -> tuple[bytes, int]:
    """Return the buffer at offset ``at`` and the offset after it.

    A null buffer (length -1) is returned as empty.
    """
    (length,) = struct.unpack_from(">i", body, at)
    start = at + 4
    end = start + max(length, 0)
    return body[start:end], end
