"""The pipelined client against a scripted server on a loopback socket, both driven by the test itself."""

from __future__ import annotations

import socket
import struct
import time
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from zkmigrate.lab.load import zkloop
from zkmigrate.lab.load import zkmessages as messages
from zkmigrate.lab.load.zkclient import Client
from zkmigrate.lab.load.zkloop import end_sessions, read_all, settle, turn

LIMIT_S = 10.0
SESSION = 0x1234
PASSWORD = b"p" * 16


class Server:
    """Accepts one connection at a time and says exactly what the test tells it to."""

    def __init__(self) -> None:
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.listener.settimeout(LIMIT_S)
        self.link: socket.socket | None = None

    @property
    def address(self) -> tuple[str, int]:
        host, port = self.listener.getsockname()
        return host, port

    def accept(self) -> None:
        self.drop()
        self.link, _ = self.listener.accept()
        self.link.settimeout(LIMIT_S)

    def drop(self) -> None:
        if self.link is not None:
            self.link.close()
        self.link = None

    def receive(self) -> bytes:
        return self._exactly(struct.unpack(">i", self._exactly(4))[0])

    def _exactly(self, count: int) -> bytes:
        assert self.link is not None
        data = b""
        while len(data) < count:
            more = self.link.recv(count - len(data))
            assert more, "the client closed the connection"
            data += more
        return data

    def send(self, frame: bytes) -> None:
        assert self.link is not None
        self.link.sendall(messages.buffer(frame))

    def welcome(self, session: int = SESSION, timeout_ms: int = 18_000) -> None:
        self.send(struct.pack(">iiq", 0, timeout_ms, session) + messages.buffer(PASSWORD) + b"\0")

    def reply(self, xid: int, zxid: int, error: int = 0, body: bytes = b"") -> None:
        self.send(struct.pack(">iqi", xid, zxid, error) + body)

    def close(self) -> None:
        self.drop()
        self.listener.close()


class Heard(list[tuple[str, dict[str, Any]]]):
    def __call__(self, event: str, fields: dict[str, Any]) -> None:
        self.append((event, fields))

    @property
    def names(self) -> list[str]:
        return [event for event, _ in self]


@pytest.fixture
def server() -> Iterator[Server]:
    made = Server()
    yield made
    made.close()


@pytest.fixture
def heard() -> Heard:
    return Heard()


@pytest.fixture
def client(server: Server, heard: Heard) -> Iterator[Client]:
    made = Client([server.address], 18_000, heard)
    yield made
    made.shut()


def connect(client: Client, server: Server, session: int = SESSION, timeout_ms: int = 18_000) -> bytes:
    """Bring the client to ``connected``; returns its ConnectRequest."""
    now = time.monotonic_ns()
    while client.socket_to_poll() is None:
        turn([client], now + 100_000_000)
    server.accept()
    assert settle([client], lambda: not client.wants_write, LIMIT_S)
    request = server.receive()
    server.welcome(session, timeout_ms)
    assert settle([client], lambda: client.connected, LIMIT_S)
    return request


def sent(client: Client) -> None:
    assert settle([client], lambda: not client.wants_write, LIMIT_S)


def test_requests_are_pipelined_and_answered_in_order(client: Client, server: Server, heard: Heard) -> None:
    connect(client, server)
    answers: list[messages.Reply] = []
    for number in range(3):
        request = messages.create_request(f"/n-{number}", b"", messages.SEQUENTIAL)
        client.submit(messages.CREATE, request, answers.append)
    sent(client)
    assert client.in_flight == 3
    headers = [struct.unpack_from(">ii", server.receive()) for _ in range(3)]
    assert headers == [(1, messages.CREATE), (2, messages.CREATE), (3, messages.CREATE)]
    for xid in (1, 2, 3):
        server.reply(xid, 0x100 + xid, body=messages.buffer(b"/n-%d" % xid))
    assert settle([client], lambda: len(answers) == 3, LIMIT_S)
    assert [(answer.zxid, messages.path_of(answer.body)) for answer in answers] == [
        (0x101, "/n-1"), (0x102, "/n-2"), (0x103, "/n-3"),
    ]  # fmt: skip
    assert all(answer.at_ns >= answer.sent_ns for answer in answers)
    assert heard == [("connected", {"session": "0x1234", "timeout_ms": 18_000, "renewed": False})]


def test_a_reply_in_pieces_is_put_together(client: Client, server: Server) -> None:
    connect(client, server)
    answers: list[messages.Reply] = []
    client.submit(messages.GET_DATA, messages.read_request("/a"), answers.append)
    sent(client)
    server.receive()
    assert server.link is not None
    frame = messages.buffer(struct.pack(">iqi", 1, 7, 0) + messages.buffer(b"value"))
    for byte in frame:
        server.link.sendall(bytes([byte]))
        turn([client], time.monotonic_ns() + 20_000_000)
    assert settle([client], lambda: bool(answers), LIMIT_S)
    assert messages.data_of(answers[0].body) == b"value"


def test_a_lost_connection_answers_what_was_in_flight_and_keeps_the_session(
    client: Client, server: Server, heard: Heard
) -> None:
    first = connect(client, server)
    assert struct.unpack_from(">iqiq", first) == (0, 0, 18_000, 0)
    answers: list[messages.Reply] = []
    client.submit(messages.SET_DATA, messages.set_request("/a", b""), answers.append)
    sent(client)
    server.receive()
    server.reply(1, 0x2A)
    assert settle([client], lambda: len(answers) == 1, LIMIT_S)
    client.submit(messages.SET_DATA, messages.set_request("/a", b""), answers.append)
    client.submit(messages.SET_DATA, messages.set_request("/a", b""), answers.append)
    sent(client)
    server.drop()
    assert settle([client], lambda: len(answers) == 3, LIMIT_S)
    assert [answer.error for answer in answers] == [0, messages.CONNECTION_LOSS, messages.CONNECTION_LOSS]
    again = connect(client, server)
    # the highest zxid seen goes along, so that a server that is behind refuses this client
    assert struct.unpack_from(">iqiq", again) == (0, 0x2A, 18_000, SESSION)
    assert again[24:44] == messages.buffer(PASSWORD)
    assert heard.names == ["connected", "disconnected", "connected"]
    assert heard[2][1]["renewed"] is True


def test_an_expired_session_is_told_and_replaced(client: Client, server: Server, heard: Heard) -> None:
    connect(client, server)
    server.drop()
    assert settle([client], lambda: "disconnected" in heard.names, LIMIT_S)
    while client.socket_to_poll() is None:
        turn([client], time.monotonic_ns() + 100_000_000)
    server.accept()
    sent(client)
    server.receive()
    server.welcome(session=0, timeout_ms=0)
    assert settle([client], lambda: "expired" in heard.names, LIMIT_S)
    fresh = connect(client, server, session=0x9999)
    assert struct.unpack_from(">iqiq", fresh) == (0, 0, 18_000, 0)
    assert heard[2:] == [
        ("expired", {"session": "0x1234"}),
        ("connected", {"session": "0x9999", "timeout_ms": 18_000, "renewed": False}),
    ]


def test_a_server_that_does_not_serve_is_tried_until_it_does(
    client: Client, server: Server, heard: Heard
) -> None:
    """As an observer without a leader does: the connection is accepted and closed without a word."""
    for _ in range(3):
        while client.socket_to_poll() is None:
            turn([client], time.monotonic_ns() + 100_000_000)
        server.accept()
        sent(client)
        server.receive()
        server.drop()
        assert settle([client], lambda: client.socket_to_poll() is None, LIMIT_S)
    connect(client, server)
    assert [(event, fields.get("attempts")) for event, fields in heard] == [
        ("connect_failed", 1), ("connect_failed", 3), ("connected", None),
    ]  # fmt: skip


def test_a_refused_port_is_a_failure_with_its_reason(heard: Heard) -> None:
    listener = socket.create_server(("127.0.0.1", 0))
    address = listener.getsockname()
    listener.close()
    client = Client([address], 18_000, heard)
    assert settle([client], lambda: bool(heard), LIMIT_S)
    assert heard[0] == ("connect_failed", {"session": "0x0", "reason": "Connection refused", "attempts": 1})
    client.shut()


def test_an_idle_client_pings_and_leaves_a_silent_server(
    client: Client, server: Server, heard: Heard
) -> None:
    connect(client, server, timeout_ms=600)
    assert settle([client], lambda: "disconnected" in heard.names, LIMIT_S)
    assert struct.unpack(">ii", server.receive()) == (-2, messages.PING)
    assert heard[1][1]["reason"] == "server silent"


def test_a_client_that_stood_still_asks_before_it_calls_its_server_silent(
    client: Client, server: Server, heard: Heard
) -> None:
    connect(client, server, timeout_ms=90_000)
    client.advance(time.monotonic_ns() + 3600 * 10**9)
    sent(client)
    assert struct.unpack(">ii", server.receive()) == (-2, messages.PING)
    assert heard.names == ["connected"]


def test_a_late_client_reads_the_answer_before_it_calls_its_server_silent(
    client: Client, server: Server, heard: Heard, monkeypatch: pytest.MonkeyPatch
) -> None:
    connect(client, server, timeout_ms=90_000)
    answers: list[messages.Reply] = []
    client.submit(messages.EXISTS, messages.read_request("/a"), answers.append)
    sent(client)
    server.reply(1, 0x101)
    late = SimpleNamespace(monotonic_ns=lambda: time.monotonic_ns() + 3600 * 10**9)
    monkeypatch.setattr(zkloop, "time", late)
    assert settle([client], lambda: bool(answers), LIMIT_S)
    assert answers[0].error == messages.OK
    assert heard.names == ["connected"]


def test_a_reply_out_of_order_ends_the_connection(client: Client, server: Server, heard: Heard) -> None:
    connect(client, server)
    answers: list[messages.Reply] = []
    client.submit(messages.EXISTS, messages.read_request("/a"), answers.append)
    sent(client)
    server.reply(7, 1)
    assert settle([client], lambda: bool(answers), LIMIT_S)
    assert answers[0].error == messages.CONNECTION_LOSS
    assert heard[1][1]["reason"] == "reply 7 out of order, expected 1"


def test_nothing_can_be_sent_without_a_session(client: Client) -> None:
    with pytest.raises(ConnectionError, match="no session"):
        client.submit(messages.EXISTS, messages.read_request("/a"), lambda _reply: None)


def test_shutting_down_answers_what_is_left(client: Client, server: Server) -> None:
    connect(client, server)
    answers: list[messages.Reply] = []
    client.submit(messages.EXISTS, messages.read_request("/a"), answers.append)
    client.shut()
    assert [answer.error for answer in answers] == [messages.CONNECTION_LOSS]


def test_reading_without_a_server_leaves_every_read_unanswered(heard: Heard) -> None:
    listener = socket.create_server(("127.0.0.1", 0))
    address = listener.getsockname()
    listener.close()
    client = Client([address], 18_000, heard)
    reads = [(messages.EXISTS, "/a", lambda _reply: None), (messages.EXISTS, "/b", lambda _reply: None)]
    assert read_all(client, "/", reads, limit_s=0.3) == 2
    end_sessions([client])
    assert client.socket_to_poll() is None
