"""Speak TLS between a socket and the protocol of a client's connection or of a link to a broker.

The event loop has TLS of its own, but that one does not say when the system has taken all bytes of an answer.
An answer counts as given only then: a switch closes connections, and a lost answer would be sent again.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable
from contextlib import suppress
from typing import Any, cast

from zkmigrate.topics.gateway.serving.buffer import SIZE
from zkmigrate.topics.gateway.serving.turns import CLIENT, TURN

HANDSHAKE = 2 * TURN
"""The cost of a handshake, counted in requests. An RSA key of 2,048 bits needs about 0.9 ms."""
_FIRST = 22
"""The first byte of every TLS connection: the type of a record of the handshake."""
_CIPHER = memoryview(bytearray(SIZE))
"""The buffer that all connections share for reading; its bytes are copied before the next one reads."""


class Inner(asyncio.BufferedProtocol):
    """A protocol that can have TLS between itself and its socket."""

    def get_buffer(self, _hint: int) -> memoryview:
        raise NotImplementedError

    def due(self, call: Callable[[], None], cost: int) -> None:
        """Call a function in one of the next turns of the event loop. cost: its cost in requests."""
        raise NotImplementedError

    def read_records(self, records: int, idle: int) -> None:
        """Charge for TLS records that were read. idle: how many bytes of them had no content."""

    def secured(self) -> None:
        """Record that the handshake has succeeded."""

    def not_secured(self, error: Exception) -> None:
        """Close the connection, because TLS failed. error: the reason."""
        raise NotImplementedError


class PlainText(Exception):
    """Raised when the other side does not speak TLS."""


async def connect(inner: Inner, address: str, context: ssl.SSLContext | None) -> None:
    """Connect to a broker, with TLS if there is a context. Raises OSError.

    address: ``host:port`` of the broker.
    """
    loop, (host, _, number) = asyncio.get_running_loop(), address.rpartition(":")
    if context is None:
        await loop.create_connection(lambda: inner, host, int(number))
        return
    outer = Secured(inner, context, host)
    await loop.create_connection(lambda: outer, host, int(number))
    try:
        await outer.ready
    except BaseException:
        outer.abort()
        raise


def why_not_the_client(error: Exception, listener: str) -> str:
    """Return why no TLS with a client came about, and what is needed."""
    reason = getattr(error, "reason", None) or str(error) or type(error).__name__
    if isinstance(error, PlainText):
        seen, needed = "the client sent plain text", "security.protocol SSL or SASL_SSL at the client"
    elif reason == "PEER_DID_NOT_RETURN_A_CERTIFICATE":
        seen, needed = "the client showed no certificate", f"one that listeners.{listener}.tls.ca has signed"
    elif isinstance(error, ssl.SSLCertVerificationError):
        seen = f"the client's certificate is not accepted: {error.verify_message}"
        needed = f"a valid one that listeners.{listener}.tls.ca has signed"
    elif "ALERT" in reason:
        seen = f"the client ended the handshake of TLS: {reason}"
        needed = (
            f"the authority of listeners.{listener}.tls.certificate in the client's truststore, and the "
            "listener's advertise in that certificate"
        )
    else:
        seen, needed = f"the handshake of TLS failed: {reason}", "a client with TLS 1.2 or 1.3"
    return f"{seen}; needed: {needed}"


def why_not_the_broker(error: Exception, cluster: str, *, tls: bool) -> str:
    """Return why a broker cannot be used, and what may be needed.

    tls: whether the gateway uses TLS towards the cluster.
    """
    seen = f"{type(error).__name__}: {error}"
    if isinstance(error, ssl.SSLCertVerificationError):
        return (
            f"the broker's certificate is not accepted: {error.verify_message}; needed: a valid certificate "
            f"that tls.{cluster}.ca has signed, and that names the broker's host in the gateway's file"
        )
    if tls and not isinstance(error, ConnectionRefusedError):
        return (
            f"{seen}; needed: a port of the broker that speaks TLS, and a certificate of the gateway in "
            f"tls.{cluster} if the broker asks for one"
        )
    if isinstance(error, asyncio.IncompleteReadError | ConnectionResetError | TimeoutError):
        return f"{seen}; if this port of the broker speaks TLS, the gateway's file needs tls.{cluster}"
    return seen


class Secured(asyncio.BufferedProtocol, asyncio.Transport):
    """TLS on one connection: the protocol of its socket, and the transport of another protocol.

    inner: that protocol. context: the certificates. server: whether the other side begins. host: the name
    that a broker's certificate must have.
    """

    def __init__(self, inner: Inner, context: ssl.SSLContext, host: str | None = None) -> None:
        self._inner: Inner | None = inner
        self._context, self._host = context, host
        self._from, self._to = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._tls: ssl.SSLObject | None = None
        self._raw: asyncio.Transport
        self._shaken = self._ended = self._queued = False
        if host is not None:
            self.ready: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            """Done after the handshake with a broker; has an exception if the handshake failed."""
        self._reads = True

    # -- what the loop calls

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._raw = cast(asyncio.Transport, transport)
        assert self._inner is not None
        self._inner.connection_made(self)
        if self._host is not None:
            self._later()

    def connection_lost(self, error: Exception | None) -> None:
        inner, self._inner = self._inner, None  # no cycle of objects remains
        self._tls = None
        self._became(ConnectionResetError("the broker ended the connection in the handshake of TLS"))
        if inner is not None:
            inner.connection_lost(error)

    def get_buffer(self, hint: int) -> memoryview:
        assert self._inner is not None
        return _CIPHER[: len(self._inner.get_buffer(hint))]

    def buffer_updated(self, count: int) -> None:
        self._from.write(_CIPHER[:count])
        if self._shaken:
            self._decrypt(count)
        elif self._tls is None and self._host is None and _CIPHER[0] != _FIRST:
            self._fail(PlainText())
        else:
            self._later()

    def eof_received(self) -> bool | None:
        if not self._shaken:
            return False
        self._decrypt(0)
        return self._end()

    def pause_writing(self) -> None:
        if self._inner is not None:
            self._inner.pause_writing()

    def resume_writing(self) -> None:
        if self._inner is not None:
            self._inner.resume_writing()

    # -- the handshake

    def _later(self) -> None:
        """Read nothing more until the next step of the handshake is due in the order of turns."""
        assert self._inner is not None
        self._raw.pause_reading()
        self._inner.due(self._shake, HANDSHAKE if self._tls is None else CLIENT)

    def _shake(self) -> None:
        if self._inner is None or self._raw.is_closing():
            return
        if self._tls is None:
            server = self._host is None
            self._tls = self._context.wrap_bio(self._from, self._to, server, self._host)
        try:
            self._tls.do_handshake()
        except ssl.SSLWantReadError:
            self._flush()
            self._raw.resume_reading()
            return
        except (ssl.SSLError, ValueError) as error:
            self._flush()
            self._fail(error)
            return
        self._shaken = True
        self._flush()
        self._became(None)
        self._inner.secured()
        if not self._raw.is_closing() and self._reads:
            self._raw.resume_reading()
            self._decrypt(0)

    def _became(self, error: Exception | None) -> bool:
        """Report the outcome of the handshake with a broker. Return False if it was known before."""
        if self._host is None or self.ready.done():
            return False
        if error is None:
            self.ready.set_result(None)
        else:
            self.ready.set_exception(error)
        return True

    def _fail(self, error: Exception) -> None:
        if not self._became(error) and self._inner is not None:
            self._inner.not_secured(error)

    # -- reading

    def _decrypt(self, count: int) -> None:
        """Pass on the content of the records that have arrived, while the inner protocol reads.

        count: how many bytes were just read from the socket.
        """
        self._queued = False
        found = records = 0
        failed: ssl.SSLError | None = None
        while (inner := self._inner) is not None and self._tls is not None and self._reads:
            view, at = inner.get_buffer(-1), 0
            try:
                while at < len(view):
                    size = cast(int, self._tls.read(len(view) - at, cast(bytearray, view[at:])))
                    at += size
                    records += 1
                    if not size:
                        self._ended = True
                        break
            except ssl.SSLWantReadError:
                pass
            except ssl.SSLError as error:
                failed = error
            found += at
            full = at == len(view)
            if at:
                inner.buffer_updated(at)
            if not full:
                break
        if self._inner is None:
            return
        if failed is not None:
            self._fail(failed)
        elif self._ended:
            if not self._end():
                self._raw.close()
        elif count or records:
            self._inner.read_records(records, 0 if found else count)
            self._flush()

    def _end(self) -> bool:
        """Report the end of the client's requests once. Return True if answers may still follow."""
        return bool(self._inner is not None and self._inner.eof_received())

    def pause_reading(self) -> None:
        self._reads = False
        self._raw.pause_reading()

    def resume_reading(self) -> None:
        self._reads = True
        if not self._shaken:
            return
        self._raw.resume_reading()
        if not self._queued:
            self._queued = True
            asyncio.get_running_loop().call_soon(self._decrypt, 0)

    def is_reading(self) -> bool:
        return self._reads

    # -- writing

    def write(self, data: Any) -> None:
        if self._tls is None or self._raw.is_closing():
            return
        try:
            with memoryview(data) as whole:
                at = 0
                while at < len(whole):
                    at += self._tls.write(whole[at:])
        except ssl.SSLError as error:
            self._fail(error)
            return
        self._flush()

    def _flush(self) -> None:
        if self._to.pending and not self._raw.is_closing():
            self._raw.write(self._to.read())

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        self._raw.set_write_buffer_limits(high, low)

    def get_write_buffer_size(self) -> int:
        return self._raw.get_write_buffer_size()

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return self._raw.get_extra_info(name, default)

    def is_closing(self) -> bool:
        return self._raw.is_closing()

    def abort(self) -> None:
        """Close the connection at once, after TLS's own word for the end if the socket takes it."""
        if self._shaken and self._tls is not None and not self._raw.is_closing():
            with suppress(ssl.SSLError):  # the other side's word for the end is not waited for
                self._tls.unwrap()
            if not self._raw.get_write_buffer_size():
                self._flush()
        self._raw.abort()
