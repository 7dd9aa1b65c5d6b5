"""Old notices go, new ones stay: against a scripted server on a loopback socket."""

from __future__ import annotations

import struct
from collections.abc import Iterator

import pytest

from tests.unit.lab.load.test_zkclient import LIMIT_S, Server, connect, sent
from zkmigrate.lab.load import zkmessages as messages
from zkmigrate.lab.load.notices import Notices
from zkmigrate.lab.load.zkloop import settle

CHANGES = "/kafka/config/changes"
SECOND = 1_000_000_000


@pytest.fixture
def server() -> Iterator[Server]:
    made = Server()
    yield made
    made.close()


def look(notices: Notices, server: Server, now: int, xid: int, found: list[str]) -> None:
    """A look is due at ``now``; the server answers with these names."""
    notices.work(now)
    sent(notices.client)
    asked = server.receive()
    assert asked == struct.pack(">ii", xid, messages.GET_CHILDREN) + messages.read_request(CHANGES)
    names = b"".join(messages.buffer(name.encode()) for name in found)
    server.reply(xid, 7, body=struct.pack(">i", len(found)) + names)


def test_a_notice_goes_at_the_second_look_that_finds_it(server: Server) -> None:
    notices = Notices([server.address], 18_000, CHANGES, SECOND)
    connect(notices.client, server)
    look(notices, server, SECOND, 1, ["n-1", "n-2"])
    assert settle([notices.client], lambda: not notices.client.in_flight, LIMIT_S)
    notices.work(SECOND + 1)
    assert notices.client.in_flight == 0, "not due yet"

    look(notices, server, 2 * SECOND, 2, ["n-2", "n-3"])
    assert settle([notices.client], lambda: notices.client.wants_write, LIMIT_S)
    sent(notices.client)
    gone = struct.pack(">ii", 3, messages.DELETE) + messages.delete_request(f"{CHANGES}/n-2")
    assert server.receive() == gone, "n-1 was gone already, n-3 is new"
    notices.work(3 * SECOND)
    assert notices.client.in_flight == 1, "no look while something waits for its answer"
    server.reply(3, 8, messages.NO_NODE)
    assert settle([notices.client], lambda: not notices.client.in_flight, LIMIT_S)

    look(notices, server, 4 * SECOND, 4, ["n-3"])
    assert settle([notices.client], lambda: notices.client.wants_write, LIMIT_S)
    sent(notices.client)
    assert server.receive().endswith(messages.delete_request(f"{CHANGES}/n-3"))
    notices.client.shut()
