"""One ZooKeeper session over one connection, with many requests in flight.

A session costs the ensemble two transactions (createSession, closeSession), unless the server keeps local
sessions. A session that is not closed ends after its timeout, with the same transaction.
"""

from __future__ import annotations

import socket
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass

from zkmigrate.hosts.transport.failure import socket_text
from zkmigrate.zookeeper.clients.login import OPEN, UNPROVEN, Credentials
from zkmigrate.zookeeper.data.digest_md5 import Answer
from zkmigrate.zookeeper.data.errors import MalformedError
from zkmigrate.zookeeper.data.jute import JuteInput
from zkmigrate.zookeeper.data.messages import (
    AUTH_XID,
    Frames,
    auth_request,
    close_request,
    connect_request,
    connect_response,
    error_name,
    reply_header,
    sasl_request,
)

_CLOSE_XID = 0x7FFFFFFF
_CLOSE_S = 5.0
_AT_ONCE = 1 << 18
_CONNECT_RESPONSE_LIMIT = 1024


class SessionError(Exception):
    """The session failed or was lost. The text says why, without the server's name."""


@dataclass(frozen=True)
class Limits:
    """The limits of a session.

    connect_s: the time limit in seconds for the TCP connection, and again for opening the session.
    timeout_ms: the requested session timeout. largest: the size in bytes of the largest accepted reply.
    """

    connect_s: float = 5.0
    timeout_ms: int = 30_000
    largest: int = 64 << 20


class Session:
    """An open session, created by `session`.

    silence_s: the time limit for a reply in seconds: two thirds of the granted session timeout, as in
    ZooKeeper's own client. Requests keep the session alive; there are no pings.
    """

    def __init__(self, sock: socket.socket, silence_s: float, largest: int) -> None:
        self._sock = sock
        self._frames = Frames(largest)
        self._broken = False
        sock.settimeout(silence_s)

    def send(self, requests: bytes) -> None:
        """Send framed requests. Raises SessionError if the connection is lost."""
        try:
            self._sock.sendall(requests)
        except OSError as error:
            self._broken = True
            raise SessionError(f"the connection was lost: {socket_text(error)}") from error

    def receive(self) -> list[bytes]:
        """Wait for data, and return each reply that is now complete, without its length prefix.

        Raises SessionError if the connection is lost or the data is not a reply.
        """
        try:
            data = self._sock.recv(_AT_ONCE)
            if not data:
                raise ConnectionResetError("the server closed the connection")
            return self._frames.feed(data)
        except OSError as error:
            self._broken = True
            raise SessionError(f"the connection was lost: {socket_text(error)}") from error
        except MalformedError as error:
            self._broken = True
            raise SessionError(
                f"{error}. A reply is larger than --max-reply, or the server is not ZooKeeper"
            ) from error

    def close(self) -> None:
        """End the session now instead of at its timeout. Replies that arrive later are dropped.

        Waits at most `_CLOSE_S` seconds for the server's confirmation.
        """
        if self._broken:
            return
        end = time.monotonic() + _CLOSE_S
        self._sock.settimeout(_CLOSE_S)
        with suppress(SessionError, MalformedError):
            self.send(close_request(_CLOSE_XID))
            while time.monotonic() < end:
                if any(reply_header(JuteInput(frame)).xid == _CLOSE_XID for frame in self.receive()):
                    return


@contextmanager
def session(address: str, port: int, limits: Limits, credentials: Credentials = OPEN) -> Iterator[Session]:
    """Yield a session with a server, and end it after the block. It logs in first.

    Raises SessionError if that fails, and SecretError.
    """
    sasl, digest = credentials.sasl(), credentials.digest()
    try:
        sock = socket.create_connection((address, port), timeout=limits.connect_s)
        sock = credentials.secure(sock, address)
    except OSError as error:
        raise SessionError(f"cannot connect: {socket_text(error)}") from error
    with closing(sock):
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        held = Session(sock, _granted_ms(sock, limits) * 2 / 3 / 1000, limits.largest)
        try:
            if sasl is not None:
                _log_in(held, sasl, credentials.user)
            if digest is not None:
                _answer(held, auth_request("digest", digest), AUTH_XID, "the identity of the digest scheme")
            yield held
        finally:
            held.close()


def _log_in(held: Session, login: Callable[[bytes], Answer], user: str) -> None:
    """Log in with SASL DIGEST-MD5. Raises SessionError."""
    what = f"the login of {user} (SASL)"
    try:
        own = login(_answer(held, sasl_request(1, b""), 1, what).buffer() or b"")
        proof = _answer(held, sasl_request(2, own.message), 2, what).buffer()
    except MalformedError as error:
        raise SessionError(f"{what} failed: {error}") from None
    if proof != own.confirmation:
        raise SessionError(UNPROVEN)


def _answer(held: Session, request: bytes, xid: int, what: str) -> JuteInput:
    """Send a request and return the record of its reply. No other may be in flight. Raises SessionError."""
    try:
        held.send(request)
        frames: list[bytes] = []
        while not frames:
            frames = held.receive()
        reply = JuteInput(frames[0])
        header = reply_header(reply)
    except SessionError as error:
        raise SessionError(f"the server did not accept {what}, or the connection broke: {error}") from None
    except MalformedError as error:
        raise SessionError(f"the server's answer to {what} is malformed: {error}") from None
    if header.err or header.xid != xid:
        raise SessionError(f"the server did not accept {what}: {error_name(header.err)}")
    return reply


def _granted_ms(sock: socket.socket, limits: Limits) -> int:
    """Request a session, and return the timeout in ms that the server grants. Raises SessionError."""
    frames = Frames(_CONNECT_RESPONSE_LIMIT)
    end = time.monotonic() + limits.connect_s
    whole: list[bytes] = []
    try:
        sock.sendall(connect_request(limits.timeout_ms))
        while not whole:
            sock.settimeout(max(0.001, end - time.monotonic()))
            data = sock.recv(_AT_ONCE)
            if not data:
                raise SessionError(
                    "the server closed the connection without opening a session. It does not serve, or "
                    "accepts no more connections from this address (maxClientCnxns), or needs TLS, or is not "
                    "ZooKeeper"
                )
            whole = frames.feed(data)
        granted = connect_response(whole[0])
    except OSError as error:
        raise SessionError(
            f"the server accepted the connection, but opened no session: {socket_text(error)}"
        ) from error
    except MalformedError as error:
        raise SessionError(f"the server is not ZooKeeper: {error}") from error
    if granted.timeout_ms <= 0:
        raise SessionError("the server refused the session as expired")
    return granted.timeout_ms
