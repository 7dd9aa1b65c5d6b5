"""Connect the recorded load to ZooKeeper: a kazoo client whose requests and connections can be recorded.

kazoo's methods do not return the zxid in the header of a reply. They return the czxid of a new znode only
with Create2, which ZooKeeper 3.4 does not know. Therefore `Session.send` uses kazoo's private method
``_call``.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any

from kazoo.client import KazooClient
from kazoo.exceptions import (
    ConnectionClosedError,
    ConnectionLoss,
    OperationTimeoutError,
    SessionExpiredError,
    WriterNotClosedException,
)
from kazoo.handlers.threading import AsyncResult, SequentialThreadingHandler
from kazoo.protocol.serialization import Create, Delete, SetData
from kazoo.protocol.states import KazooState
from kazoo.retry import KazooRetry

from zkmigrate.lab.failure import NotReady
from zkmigrate.lab.login import OPEN, Login
from zkmigrate.lab.wait import wait_until
from zkmigrate.zookeeper.data.session import format_session

UNANSWERED = "unanswered"
_NO_ANSWER = (ConnectionLoss, ConnectionClosedError, OperationTimeoutError, SessionExpiredError)
_CONNECT_S = 4.0
_RETRY_S = 0.1
_CLOSE_S = 5.0
_EPHEMERAL, _SEQUENTIAL = 1, 2

EventSink = Callable[..., None]
"""A function that receives the name of an event, and the event's fields as keyword arguments."""


class Reply(AsyncResult):  # type: ignore[misc]
    """The reply to one request.

    zxid: the zxid in the reply's header; for a successful create it is the czxid. value: the content that
    kazoo decodes from the reply: the path of a create, the stat of a set. sent_ns, at_ns: when the request
    was sent and when the reply arrived (CLOCK_MONOTONIC).
    """

    def __init__(self, client: KazooClient) -> None:
        super().__init__(client.handler)
        self._client = client
        self.zxid = self.at_ns = 0
        self.sent_ns = time.monotonic_ns()

    @property
    def error(self) -> str:
        """The error's name, UNANSWERED if no reply came, or "" for success."""
        if self.exception is None:
            return ""
        if isinstance(self.exception, _NO_ANSWER):
            return UNANSWERED
        return type(self.exception).__name__.removesuffix("Error")

    # kazoo calls both methods on the thread that reads the connection, right after it has set ``last_zxid``.

    def set(self, value: Any = None) -> None:
        self.at_ns, self.zxid = time.monotonic_ns(), self._client.last_zxid
        super().set(value)

    def set_exception(self, exception: BaseException) -> None:
        self.at_ns, self.zxid = time.monotonic_ns(), self._client.last_zxid
        super().set_exception(exception)


class _Handler(SequentialThreadingHandler):  # type: ignore[misc]
    """kazoo's handler, with a time limit for each attempt to connect.

    The limit is needed, because packets to a fenced host are dropped.
    """

    def create_connection(self, *args: Any, **options: Any) -> Any:
        return super().create_connection(*args, **{**options, "timeout": _CONNECT_S})


class Session:
    """A session that is kept open on ``servers``, one ``host:port`` or several, until `end`.

    With a ``login`` it logs in at each connection, and creates znodes with the login's ACL.
    ``sink`` is called for connected, disconnected, connect_failed and expired, on a thread of kazoo; the
    package's docstring lists the fields. Callbacks of requests run on another thread, one after the other, in
    the order of the replies.
    """

    def __init__(self, servers: Sequence[str], timeout_ms: int, sink: EventSink, login: Login = OPEN) -> None:
        self._sink = sink
        self._acl = login.acl
        self._pending: set[Reply] = set()
        self._reason = ""
        self._ending = False
        self.connected = False
        self.id = 0
        log = logging.Logger("load")
        log.addFilter(self._logged)
        self.client = login.client(
            ",".join(servers),
            timeout=timeout_ms / 1000,
            handler=_Handler(),
            randomize_hosts=False,
            connection_retry=KazooRetry(max_tries=-1, delay=_RETRY_S, backoff=1, max_jitter=0),
            logger=log,
        )
        self.client.add_listener(self._changed)
        self.client.start_async()

    @property
    def in_flight(self) -> int:
        """The number of requests that have no reply yet."""
        return len(self._pending)

    # --- requests -------------------------------------------------------------------------------------------

    def create(
        self,
        path: str,
        answered: Callable[[Reply], None],
        data: bytes = b"",
        *,
        ephemeral: bool = False,
        sequential: bool = False,
    ) -> None:
        flags = _EPHEMERAL * ephemeral | _SEQUENTIAL * sequential
        self.send(Create(path, data, self._acl, flags), answered)

    def set(self, path: str, data: bytes, answered: Callable[[Reply], None]) -> None:
        self.send(SetData(path, data, -1), answered)

    def delete(self, path: str, answered: Callable[[Reply], None]) -> None:
        self.send(Delete(path, -1), answered)

    def send(self, request: Any, answered: Callable[[Reply], None]) -> None:
        """Send a request of ``kazoo.protocol.serialization``. answered: called once with the reply."""
        reply = Reply(self.client)
        self._pending.add(reply)

        def done(reply: Reply) -> None:
            if reply in self._pending:
                self._pending.remove(reply)
                answered(reply)

        reply.rawlink(done)
        self.client._call(request, reply)

    # --- ending ---------------------------------------------------------------------------------------------

    def wait_answered(self, limit_s: float) -> bool:
        """Wait until no request is in flight. Return False if this takes more than ``limit_s`` seconds."""
        try:
            wait_until("replies", lambda: f"{self.in_flight}" if self._pending else None, limit_s, 0.01)
        except NotReady:
            return False
        return True

    def end(self) -> None:
        """Wait at most 5 seconds for replies, then end the session. Open requests become UNANSWERED."""
        self.wait_answered(_CLOSE_S)
        self._ending = True
        # A thread of kazoo that still waits for a silent server does not stop in time.
        with suppress(WriterNotClosedException):
            self.client.stop()
            self.client.close()
        for reply in list(self._pending):
            reply.set_exception(ConnectionLoss())

    # --- events ---------------------------------------------------------------------------------------------

    def _changed(self, state: str) -> None:
        if self._ending:
            return
        if state == KazooState.CONNECTED:
            before, self.id = self.id, self.client.client_id[0]
            self._reason, self.connected = "", True
            self._sink("connected", session=format_session(self.id), renewed=self.id == before)
        elif state == KazooState.SUSPENDED:
            self.connected = False
            self._sink("disconnected", session=format_session(self.id), reason=self._reason)
        else:
            self.connected = False
            self._sink("expired", session=format_session(self.id))

    def _logged(self, entry: logging.LogRecord) -> bool:
        """Record a failed attempt to connect from kazoo's warning about it; other warnings have no arguments.

        If the same reason follows again, only the first is recorded. Return whether the message is to be
        printed.
        """
        if entry.levelno == logging.WARNING and entry.args:
            before, self._reason = self._reason, entry.getMessage()
            if not self.connected and self._reason != before and not self._ending:
                self._sink("connect_failed", session=format_session(self.id), reason=self._reason)
        return entry.levelno > logging.WARNING


def with_parents(path: str) -> list[str]:
    """Return the paths of all znodes above this path, from the top, and the path itself."""
    parts = path.strip("/").split("/")
    return ["/" + "/".join(parts[:end]) for end in range(1, len(parts) + 1)]
