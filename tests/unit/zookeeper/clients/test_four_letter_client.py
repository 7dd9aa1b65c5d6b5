"""Four-letter words against a server that answers well and badly."""

from __future__ import annotations

import socket
import struct
import threading
from collections.abc import Callable
from contextlib import AbstractContextManager

import pytest

from tests.ports import free_port
from tests.unit.loopback import listening
from zkmigrate.runbook.model.fact import Seen, Unknown
from zkmigrate.zookeeper.clients.four_letter_client import LIMIT, four_letter_word

_NOT_SERVING = b"This ZooKeeper instance is not currently serving requests\n"


def answering(act: Callable[[socket.socket, bytes], None]) -> AbstractContextManager[int]:
    """A server that hands ``act`` each client and the four bytes that it sent."""
    return listening(lambda client: act(client, client.recv(4, socket.MSG_WAITALL)))


def ask(act: Callable[[socket.socket, bytes], None], deadline_s: float = 5.0) -> Seen[str] | Unknown:
    with answering(act) as port:
        reading = four_letter_word("127.0.0.1", port, "srvr", deadline_s)
    assert isinstance(reading, Seen | Unknown)
    return reading


def cause(reading: Seen[str] | Unknown) -> str:
    assert isinstance(reading, Unknown), reading
    return reading.cause


def test_the_answer_is_read_until_the_server_closes() -> None:
    def act(client: socket.socket, word: bytes) -> None:
        client.sendall(word + b" Mode: ")
        client.sendall(b"follower\n")

    assert ask(act) == Seen("srvr Mode: follower\n")


@pytest.mark.parametrize("pieces", [[_NOT_SERVING], [_NOT_SERVING[:40], _NOT_SERVING[40:]]])
def test_a_server_that_does_not_serve_need_not_close_the_connection(pieces: list[bytes]) -> None:
    def act(client: socket.socket, word: bytes) -> None:
        for piece in pieces:
            client.sendall(piece)
        assert client.recv(1) == b""  # until the asker has enough

    assert ask(act, 60) == Seen(_NOT_SERVING.decode())


def test_no_answer_is_not_an_empty_one() -> None:
    assert cause(ask(lambda client, word: None)) == "failed"


def test_an_answer_without_end_is_a_timeout_that_says_what_came() -> None:
    def act(client: socket.socket, word: bytes) -> None:
        client.sendall(b"half")
        assert client.recv(1) == b""  # until the asker gives up

    reading = ask(act, 0.5)
    assert cause(reading) == "timeout"
    assert "after 4 bytes" in str(reading)


def test_an_answer_that_trickles_for_ever_ends_at_the_deadline() -> None:
    done = threading.Event()

    def act(client: socket.socket, word: bytes) -> None:
        while not done.wait(0.05):
            client.sendall(b"x")

    try:
        with answering(act) as port:
            reading = four_letter_word("127.0.0.1", port, "srvr", 0.5)
            done.set()
    finally:
        done.set()
    assert isinstance(reading, Unknown)
    assert reading.cause == "timeout"


def test_a_huge_answer_is_refused() -> None:
    def act(client: socket.socket, word: bytes) -> None:
        for _ in range(LIMIT // 65536 + 2):
            client.sendall(bytes(65536))

    assert cause(ask(act)) == "garbled"


def test_a_reset_is_a_failure() -> None:
    def act(client: socket.socket, word: bytes) -> None:
        client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))

    assert cause(ask(act)) == "failed"


def test_a_closed_port_is_refused() -> None:
    reading = four_letter_word("127.0.0.1", free_port(), "ruok", 2)
    assert isinstance(reading, Unknown)
    assert reading.cause == "refused"


def test_a_name_that_does_not_resolve_is_unreachable() -> None:
    reading = four_letter_word("no-such-host.invalid", 2181, "ruok", 5)
    assert isinstance(reading, Unknown)
    assert reading.cause == "unreachable"


@pytest.mark.parametrize("word", ["stat", "mntr"])
def test_exactly_the_word_is_sent(word: str) -> None:
    with answering(lambda client, seen: client.sendall(seen)) as port:
        assert four_letter_word("127.0.0.1", port, word, 5) == Seen(word)
