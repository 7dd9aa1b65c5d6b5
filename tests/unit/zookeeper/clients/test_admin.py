"""AdminServer's answers, recorded beside the four-letter words of the same moment, and who asks for them."""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, cast

import pytest

from tests.unit.loopback import listening
from tests.world.operator import inventory
from zkmigrate.runbook.model.fact import Reading, Seen, Unknown
from zkmigrate.runbook.site.observe import Observe
from zkmigrate.zookeeper.clients.admin import COMMANDS, admin_word, allowed_word, format_as_word
from zkmigrate.zookeeper.clients.four_letter_client import LIMIT
from zkmigrate.zookeeper.data.four_letter_words import (
    NotServingError,
    parse_cons,
    parse_dump,
    parse_mntr,
    parse_works_in,
)
from zkmigrate.zookeeper.questions import SendWord

RECORDED = Path(__file__).parents[3] / "recorded/zk/admin"
SERVERS = [f"{version}.{role}" for version in ("3.5.8", "3.9.5") for role in ("leader", "observer")]
REFUSED = b"mntr is not executed because it is not in the whitelist.\n"


def body(server: str, word: str) -> dict[str, Any]:
    return cast(dict[str, Any], json.loads((RECORDED / f"{server}.{COMMANDS[word]}.json").read_text()))


def word(server: str, word: str) -> str:
    return (RECORDED / f"{server}.{word}.txt").read_text()


@pytest.mark.parametrize("server", SERVERS)
def test_it_says_what_the_word_says(server: str) -> None:
    told, said = parse_mntr(format_as_word("mntr", body(server, "mntr"))), parse_mntr(word(server, "mntr"))
    assert told.values.keys() >= said.values.keys()
    assert (told.version, told.state, told.learners) == (said.version, said.state, said.learners)
    assert told.synced_followers == said.synced_followers
    clients = [c for c in parse_cons(word(server, "cons")) if c.session is not None]
    assert list(parse_cons(format_as_word("cons", body(server, "cons")))) == clients
    found, wanted = parse_dump(format_as_word("dump", body(server, "dump"))), parse_dump(word(server, "dump"))
    assert found.ephemerals == wanted.ephemerals
    assert found.sessions == (wanted.sessions if server.endswith("leader") else None)


def test_it_tells_where_the_server_works() -> None:
    told = {
        "command": "environment",
        "error": None,
        "user.home": "/root\nuser.dir=/forged",
        "user.dir": "/srv",
    }
    assert parse_works_in(format_as_word("envi", told)) == "/srv"


def test_a_session_beyond_javas_longs_is_the_same_session() -> None:
    """The first byte of a session is its server's number: from 128 on Java's long is below zero."""
    dumped = {**body("3.5.8.leader", "dump"), "session_id_to_ephemeral_paths": {str(-(1 << 56)): ["/a"]}}
    assert parse_dump(format_as_word("dump", dumped)).ephemerals == {0xFF00000000000000 - (1 << 64): ("/a",)}


def test_one_that_does_not_serve_says_so() -> None:
    said = {"command": "dump", "error": "This ZooKeeper instance is not currently serving requests"}
    with pytest.raises(NotServingError):
        parse_dump(format_as_word("dump", said))


@contextmanager
def server(
    *answers: bytes, address: str = "127.0.0.1", pages: Mapping[str, bytes] | None = None
) -> Iterator[tuple[int, list[bytes]]]:
    """Gives each client the page of the command that it asks for, else the next answer. Yields the port, and
    the first line that each of them sent."""
    heard: list[bytes] = []
    left = iter(answers)

    def serve(client: socket.socket) -> None:
        request = client.recv(4096).partition(b"\r\n")[0]
        heard.append(request)
        named = [said for command, said in (pages or {}).items() if f"/{command} ".encode() in request]
        client.sendall(named[0] if named else next(left))

    with listening(serve, address) as port:
        yield port, heard


def page(content: bytes, status: bytes = b"200 OK") -> bytes:
    return b"HTTP/1.1 " + status + b"\r\nContent-Type: application/json\r\n\r\n" + content


HOSTILE = {
    "not found": (page(b"{}", b"404 Not Found"), "failed"),
    "no HTTP": (b"SSH-2.0-OpenSSH_9.2\r\n", "failed"),
    "no JSON": (page(b"<html>"), "garbled"),
    "another answer": (
        page(b'{"command": "monitor", "error": null, "expiry_time_to_session_ids": {},'
             b' "session_id_to_ephemeral_paths": {}}'), "garbled",
    ),
    "a list": (page(b"[]"), "garbled"),
    "deep": (page(b"[" * 100_000), "garbled"),
    "a long number": (page(b'{"command": ' + b"9" * 5000 + b"}"), "garbled"),
    "sessions that are none": (
        page(b'{"command": "dump", "error": null, "expiry_time_to_session_ids": {"1": ["x"]},'
             b' "session_id_to_ephemeral_paths": {}}'), "garbled",
    ),
    "endless": (page(b" " * (LIMIT + 1)), "garbled"),
    "nothing": (b"", "failed"),
}  # fmt: skip


@pytest.mark.parametrize("name", HOSTILE)
def test_whatever_answers_there_is_unknown_and_no_error(name: str) -> None:
    answer, cause = HOSTILE[name]
    with server(answer) as (port, _):
        reading = admin_word("127.0.0.1", port, "dump", 5.0)
    assert isinstance(reading, Unknown)
    assert reading.cause == cause


def test_a_text_of_a_server_begins_no_line_of_its_own() -> None:
    forged = {**body("3.5.8.leader", "mntr"), "server_state": "observer\nzk_synced_followers\t7"}
    assert "zk_synced_followers\t7" not in format_as_word("mntr", forged)


def asked(client: int, admin: int, times: int = 1, host: str = "source1") -> list[Reading[str]]:
    """What the real look gets for mntr, from servers at these ports."""
    known = inventory()
    local = tuple(h.model_copy(update={"address": "127.0.0.1"}) for h in known.source.hosts)
    ports = known.source.ports.model_copy(update={"client": client})
    source = known.source.model_copy(update={"hosts": local, "ports": ports, "admin_port": admin})
    here = tuple(h.model_copy(update={"address": "127.0.0.1"}) for h in known.dest.hosts)
    dest = known.dest.model_copy(update={"hosts": here, "ports": ports})
    nobody = cast(Any, None)
    look = Observe(known.model_copy(update={"source": source, "dest": dest}), nobody, nobody, nobody)
    return [look.ask(SendWord(host, "mntr")) for _ in range(times)]


def test_a_word_that_source_does_not_allow_is_asked_from_its_admin_server_and_not_again() -> None:
    told = (RECORDED / "3.5.8.leader.monitor.json").read_bytes()
    with server(REFUSED) as (client, words), server(page(told), page(told)) as (admin, requests):
        readings = asked(client, admin, times=2)
    states = [parse_mntr(reading.value).state for reading in readings if isinstance(reading, Seen)]
    assert states == ["leader", "leader"]
    assert words == [b"mntr"]
    assert requests == [b"GET /commands/monitor HTTP/1.0"] * 2


def test_where_neither_answers_both_are_named_and_the_word_is_asked_again() -> None:
    with server(REFUSED, b"zk_server_state\tleader\n") as (client, words):
        with socket.create_server(("127.0.0.1", 0)) as nobody:
            shut = nobody.getsockname()[1]
        first, second = asked(client, shut, times=2)
    assert isinstance(first, Unknown)
    assert first.cause == "denied"
    assert first.why.startswith(
        f"4lw.commands.whitelist does not name mntr; AdminServer at 127.0.0.1:{shut}: "
    )
    assert second == Seen("zk_server_state\tleader\n")
    assert words == [b"mntr", b"mntr"]


def test_dest_is_never_asked_that_way() -> None:
    """Its whitelist is ours, and its AdminServer may be switched off."""
    with server(REFUSED) as (client, _), server(page(b"{}")) as (admin, requests):
        assert asked(client, admin, host="dest1") == [Seen(REFUSED.decode())]
        assert requests == []


def test_one_word_is_asked_from_adminserver_only_where_it_is_not_allowed() -> None:
    told = json.dumps(body("3.5.8.leader", "cons")).encode()
    with server(REFUSED.replace(b"mntr", b"cons")) as (port, _), server(page(told)) as (admin, requests):
        assert isinstance(allowed_word("127.0.0.1", port, admin, "cons", 5.0), Seen)
    assert requests == [b"GET /commands/connections HTTP/1.0"]
    with server(b"\n") as (port, _), server(page(told)) as (admin, requests):
        assert allowed_word("127.0.0.1", port, admin, "cons", 5.0) == Seen("\n")
    assert requests == []
