"""A stand-in for a ZooKeeper server's client port, for faults that a real server cannot be made to have.

It takes sessions and answers sync, exists and getChildren2 about a tree that is given, bytes made here by
themselves, after zookeeper.jute.
"""

from __future__ import annotations

import socket
import struct
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field

from tests.unit.loopback import listening

EXISTS, GET_DATA, GET_CHILDREN, SYNC, PING, GET_CHILDREN2, CLOSE_SESSION = 3, 4, 8, 9, 11, 12, -11
NO_NODE, NO_AUTH = -101, -102
ZXID = 0x500
CONNECTED = struct.pack(">iiqi", 0, 30_000, 0x77, 16) + bytes(16) + b"\0"
EXPIRED = struct.pack(">iiqi", 0, 0, 0, 16) + bytes(16) + b"\0"

Zxids = tuple[int, int, int]
"""czxid, mzxid, pzxid."""


def framed(message: bytes) -> bytes:
    return struct.pack(">i", len(message)) + message


def text(value: str) -> bytes:
    return framed(value.encode())


def stat(zxids: Zxids, children: int = 0) -> bytes:
    return struct.pack(">qqqqiiiqiiq", zxids[0], zxids[1], 1, 1, 0, 0, 0, 0, 0, children, zxids[2])


def header(xid: int, err: int = 0, zxid: int = ZXID) -> bytes:
    return struct.pack(">iqi", xid, zxid, err)


def children_reply(xid: int, names: list[str], zxids: Zxids, zxid: int = ZXID) -> bytes:
    listed = struct.pack(">i", len(names)) + b"".join(map(text, names))
    return header(xid, zxid=zxid) + listed + stat(zxids, len(names))


def asked(request: bytes) -> tuple[int, int, str]:
    """xid, type and path of a request without its length."""
    xid, kind = struct.unpack_from(">ii", request)
    if kind in (PING, CLOSE_SESSION):
        return xid, kind, ""
    (length,) = struct.unpack_from(">i", request, 8)
    rest = request[12 + length :]
    assert rest == (b"" if kind == SYNC else b"\0"), (
        "a watch was asked for, or the request is longer than it is"
    )
    return xid, kind, request[12 : 12 + length].decode()


def children(nodes: Mapping[str, Zxids], path: str) -> list[str]:
    return [each.rpartition("/")[2] for each in nodes if each != "/" and parent(each) == path]


def parent(path: str) -> str:
    return path.rpartition("/")[0] or "/"


@dataclass
class TreeServer:
    """nodes: path → zxids. gone: listed and not there any more. greeting: what answers a ConnectRequest,
    without its length; None closes instead. drop_after: replies after which a connection is closed. garble:
    what a reply becomes, with its length. zxids: what the replies' headers say, one after the other, the last
    of them from then on.

    requests: what came, in order. closed: how many sessions were ended by their client.
    """

    nodes: Mapping[str, Zxids]
    denied: frozenset[str] = frozenset()
    gone: frozenset[str] = frozenset()
    greeting: bytes | None = CONNECTED
    drop_after: int | None = None
    garble: Callable[[bytes], bytes] | None = None
    zxids: tuple[int, ...] = (ZXID,)
    port: int = 0
    requests: list[tuple[int, str]] = field(default_factory=list)
    closed: int = 0
    _replies: int = 0

    def serve(self, client: socket.socket) -> None:
        reader = client.makefile("rb")
        self._request(reader)
        if self.greeting is None:
            return
        client.sendall(framed(self.greeting))
        replies = 0
        while (request := self._request(reader)) is not None:
            xid, kind, path = asked(request)
            if replies == self.drop_after:
                return
            replies += 1
            if kind == CLOSE_SESSION:
                self.closed += 1
                client.sendall(framed(header(xid)))
                return
            self.requests.append((kind, path))
            reply = framed(self.reply(xid, kind, path))
            client.sendall(self.garble(reply) if self.garble else reply)

    def reply(self, xid: int, kind: int, path: str) -> bytes:
        zxid = self.zxids[min(self._replies, len(self.zxids) - 1)]
        self._replies += 1
        if kind == SYNC:
            return header(xid, zxid=zxid) + text(path)
        if path not in self.nodes or path in self.gone:
            return header(xid, NO_NODE, zxid)
        if kind == EXISTS:
            return header(xid, zxid=zxid) + stat(self.nodes[path])
        if path in self.denied:
            return header(xid, NO_AUTH, zxid)
        return children_reply(xid, children(self.nodes, path), self.nodes[path], zxid)

    @staticmethod
    def _request(reader: object) -> bytes | None:
        read = reader.read  # type: ignore[attr-defined]
        head = read(4)
        return read(*struct.unpack(">i", head)) if len(head) == 4 else None


@dataclass
class DataServer(TreeServer):
    """The same with data, for clients that ask by getData and getChildren. age_s: since it was written."""

    data: Mapping[str, bytes] = field(default_factory=dict)
    age_s: float = 0.0

    def reply(self, xid: int, kind: int, path: str) -> bytes:
        if kind == PING:
            return header(xid)
        if kind not in (GET_DATA, GET_CHILDREN) or path not in self.nodes:
            return super().reply(xid, kind, path)
        if kind == GET_DATA:
            told = bytearray(stat(self.nodes[path]))
            struct.pack_into(">qq", told, 16, *[round((time.time() - self.age_s) * 1000)] * 2)
            return header(xid) + framed(self.data.get(path, b"")) + bytes(told)
        names = children(self.nodes, path)
        return header(xid) + struct.pack(">i", len(names)) + b"".join(map(text, names))


@contextmanager
def running(server: TreeServer) -> Iterator[TreeServer]:
    """The server on a port of loopback, for one connection after the other."""
    with listening(server.serve) as port:
        server.port = port
        yield server
