"""ZooKeeper's client messages that a reader of znodes needs, encoded and decoded.

Each message follows its length in bytes, an int. A connection begins with ConnectRequest and ConnectResponse.
Then a request is a RequestHeader (int xid, int type) and its record. A reply is a ReplyHeader (int xid, long
zxid, int err) and, if err is 0, its record. Replies come in the order of the requests.

Source: zookeeper.jute, and the constants of ZooDefs.OpCode and KeeperException.Code. Encoding: see `jute`.
"""

from __future__ import annotations

import struct
from typing import NamedTuple

from zkmigrate.zookeeper.data.errors import MalformedError
from zkmigrate.zookeeper.data.jute import JuteInput

EXISTS, SYNC, GET_CHILDREN2, CLOSE_SESSION, AUTH, SASL = 3, 9, 12, -11, 100, 102
AUTH_XID = -4
OK, NO_NODE, NO_AUTH = 0, -101, -102
ERRORS = {
    -1: "SystemError", -2: "RuntimeInconsistency", -3: "DataInconsistency", -4: "ConnectionLoss",
    -5: "MarshallingError", -6: "Unimplemented", -7: "OperationTimeout", -8: "BadArguments",
    NO_NODE: "NoNode", NO_AUTH: "NoAuth", -112: "SessionExpired", -115: "AuthFailed", -118: "SessionMoved",
    -119: "NotReadOnly", -122: "RequestTimeout", -124: "SessionClosedRequireSaslAuth", -127: "ThrottledOp",
}  # fmt: skip
LENGTH_SIZE = 4

_PASSWORD = bytes(16)
_CONNECT = struct.Struct(">iqiq")
_HEADER = struct.Struct(">ii")
_STAT = struct.Struct(">qqqqiiiqiiq")
_CONNECTED = 36, 37  # without and with readOnly, which 3.3 and before leave out


class ConnectResponse(NamedTuple):
    """The server's answer to a ConnectRequest.

    timeout_ms: the granted timeout; 0 or less if the server refuses the session. session: the signed id.
    """

    timeout_ms: int
    session: int


class ReplyHeader(NamedTuple):
    """The header of a reply. zxid: the newest transaction that the server had applied."""

    xid: int
    zxid: int
    err: int


class Stat(NamedTuple):
    """The Stat of a znode, with its fields in wire order."""

    czxid: int
    mzxid: int
    ctime: int
    mtime: int
    version: int
    cversion: int
    aversion: int
    ephemeral_owner: int
    data_length: int
    num_children: int
    pzxid: int


def error_name(code: int) -> str:
    """Return ZooKeeper's name of an error code."""
    return ERRORS.get(code, f"error {code}")


def framed(message: bytes) -> bytes:
    return struct.pack(">i", len(message)) + message


def connect_request(timeout_ms: int) -> bytes:
    """Return a framed ConnectRequest for a new session.

    readOnly is false, so a server without a quorum refuses the session.
    """
    head = _CONNECT.pack(0, 0, timeout_ms, 0)
    return framed(head + struct.pack(">i", len(_PASSWORD)) + _PASSWORD + b"\0")


def request(xid: int, kind: int, path: str) -> bytes:
    """Return a framed ExistsRequest or GetChildren2Request without a watch, or a SyncRequest."""
    raw = path.encode("utf-8", "surrogatepass")
    watch = b"" if kind == SYNC else b"\0"
    body = _HEADER.pack(xid, kind) + struct.pack(">i", len(raw)) + raw + watch
    return framed(body)


def sasl_request(xid: int, token: bytes) -> bytes:
    """Return a framed GetSASLRequest. The answer's record is a token too."""
    return framed(_HEADER.pack(xid, SASL) + struct.pack(">i", len(token)) + token)


def auth_request(scheme: str, identity: str) -> bytes:
    """Return a framed AuthPacket, which adds an identity to the connection."""
    parts = (scheme.encode(), identity.encode())
    record = b"".join(struct.pack(">i", len(part)) + part for part in parts)
    return framed(_HEADER.pack(AUTH_XID, AUTH) + struct.pack(">i", 0) + record)


def close_request(xid: int) -> bytes:
    """Return the framed request that ends the session. The request is a header without a record."""
    return framed(_HEADER.pack(xid, CLOSE_SESSION))


def connect_response(frame: bytes) -> ConnectResponse:
    """Decode a ConnectResponse. Raises MalformedError for another message."""
    if len(frame) not in _CONNECTED:
        raise MalformedError(f"a ConnectResponse has {len(frame)} bytes, but must have {_CONNECTED[-1]}")
    cursor = JuteInput(frame)
    cursor.int32()  # protocolVersion
    timeout_ms, session = cursor.int32(), cursor.int64()
    password = cursor.buffer()
    if password is None or len(password) != len(_PASSWORD):
        raise MalformedError("a ConnectResponse has no password of 16 bytes", offset=cursor.pos)
    return ConnectResponse(timeout_ms, session)


def reply_header(cursor: JuteInput) -> ReplyHeader:
    """Decode the header of a reply. Raises MalformedError for a shorter frame."""
    return ReplyHeader(cursor.int32(), cursor.int64(), cursor.int32())


def get_children2_response(cursor: JuteInput) -> tuple[list[str], Stat]:
    """Return the names of the children, in any order, and the znode's Stat. Raises MalformedError."""
    names = [cursor.string() for _ in range(cursor.count(LENGTH_SIZE))]
    if cursor.remaining() != _STAT.size:
        raise MalformedError(
            f"{cursor.remaining()} bytes follow the children, but a Stat has {_STAT.size}", offset=cursor.pos
        )
    return names, Stat(*_STAT.unpack(cursor.rest()))


class Frames:
    """A splitter of a connection's bytes into messages. largest: the largest message in bytes."""

    def __init__(self, largest: int) -> None:
        self._largest = largest
        self._data = bytearray()

    def feed(self, data: bytes) -> list[bytes]:
        """Add bytes, and return every message that is now complete.

        Raises MalformedError at once for a length that is negative or above `largest`, because later messages
        cannot be separated then.
        """
        self._data += data
        whole = []
        at = 0
        while len(self._data) - at >= LENGTH_SIZE:
            length = int.from_bytes(self._data[at : at + LENGTH_SIZE], "big", signed=True)
            if not 0 <= length <= self._largest:
                raise MalformedError(f"a message has {length} bytes, but 0 to {self._largest} are allowed")
            end = at + LENGTH_SIZE + length
            if end > len(self._data):
                break
            whole.append(bytes(self._data[at + LENGTH_SIZE : end]))
            at = end
        del self._data[:at]
        return whole
