"""The broker canary against a server that answers as a broker does, and against ones that do not."""

from __future__ import annotations

import socket
import struct
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from tests.ports import free_port
from zkmigrate.kafka.clients.canary import BrokerCanary


def good(correlation: int) -> bytes:
    """An ApiVersions v0 response with one key."""
    body = struct.pack(">ihihhh", correlation, 0, 1, 18, 0, 3)
    return struct.pack(">i", len(body)) + body


@contextmanager
def broker(answers: list[Callable[[int], bytes | None]]) -> Iterator[int]:
    """Answers the n-th request with the n-th entry; None closes the connection, empty is silence."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        held: list[socket.socket] = []

        def serve() -> None:
            client: socket.socket | None = None
            for answer in answers:
                while True:
                    if client is None:
                        try:
                            client, _ = listener.accept()
                        except OSError:
                            return
                        held.append(client)
                    request = client.recv(4096)
                    if request:
                        break
                    client = None
                size, key, version, correlation = struct.unpack(">ihhi", request[:12])
                assert (size, key, version) == (len(request) - 4, 18, 0)
                reply = answer(correlation)
                if reply is None:
                    client.close()
                    client = None
                else:
                    client.sendall(reply)

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        yield listener.getsockname()[1]
        listener.shutdown(socket.SHUT_RDWR)
        for client in held:
            client.close()
        thread.join(5)


def test_a_broker_that_answers_has_no_age() -> None:
    with broker([good, good]) as port:
        canary = BrokerCanary({"b1": ("127.0.0.1", port)})
        first, second = canary.ask("b1", 5), canary.ask_all(5)["b1"]
        canary.close()
    for pulse in (first, second):
        assert (pulse.age_s, pulse.wrong) == (0.0, "")
        assert pulse.apis == {18: (0, 3)}


def test_a_silent_broker_has_an_age() -> None:
    with broker([good, lambda n: b""]) as port:
        canary = BrokerCanary({"b1": ("127.0.0.1", port)})
        canary.ask("b1", 5)
        pulse = canary.ask("b1", 0.3)
        canary.close()
    assert pulse.age_s is not None
    assert pulse.age_s >= 0.3
    assert "timed out" in pulse.why
    assert pulse.wrong == f"{pulse.why}; last answer {pulse.age_s:.1f} s ago"


def test_an_idle_connection_that_the_broker_closed_is_opened_again() -> None:
    with broker([good, lambda n: None, good]) as port:
        canary = BrokerCanary({"b1": ("127.0.0.1", port)})
        assert canary.ask("b1", 5).wrong == ""
        assert canary.ask("b1", 5).wrong == ""
        canary.close()


def test_a_broker_that_was_never_there_has_no_age() -> None:
    pulse = BrokerCanary({"b1": ("127.0.0.1", free_port())}).ask("b1", 1)
    assert pulse.age_s is None
    assert "refused" in pulse.why
    assert pulse.wrong == f"{pulse.why}; it has not answered yet"


def test_what_does_not_answer_as_a_broker_is_named() -> None:
    with broker([lambda n: b"HTTP/1.1 400 Bad Request\r\n\r\n"]) as port:
        pulse = BrokerCanary({"b1": ("127.0.0.1", port)}).ask("b1", 2)
    assert "Check that this is a broker" in pulse.why


def test_an_answer_to_another_request_does_not_count() -> None:
    with broker([lambda n: good(n + 1)]) as port:
        pulse = BrokerCanary({"b1": ("127.0.0.1", port)}).ask("b1", 2)
    assert "expected 1" in pulse.why


def test_a_list_of_apis_that_was_cut_is_no_answer() -> None:
    def cut(correlation: int) -> bytes:
        body = struct.pack(">ihihh", correlation, 0, 1, 18, 0)
        return struct.pack(">i", len(body)) + body

    with broker([cut]) as port:
        pulse = BrokerCanary({"b1": ("127.0.0.1", port)}).ask("b1", 2)
    assert "has a wrong length" in pulse.wrong
    assert pulse.apis == {}
