"""Clients share limits by address, and a crowd displaces its own."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from pathlib import Path

import pytest

from tests.examples import examples
from tests.unit.topics.gateway.loop import FRAME, MESSAGES, Broker, Setting, run, until
from tests.unit.topics.gateway.test_connection import produce, told
from tests.unit.topics.gateway.test_server import HOST, Running, asks, config, serve
from zkmigrate.topics.gateway.rules.crowd import Crowd, near, share
from zkmigrate.topics.gateway.rules.plan import Port
from zkmigrate.topics.gateway.serving.connection import Connection
from zkmigrate.topics.gateway.serving.room import FREE


@pytest.mark.parametrize(
    ("address", "own", "block"),
    [
        ("192.0.2.7", "192.0.2.7", "192.0.2.0/24"),
        ("::ffff:192.0.2.7", "192.0.2.7", "192.0.2.0/24"),
        ("2001:db8:1:2:3:4:5:6", "2001:db8:1:2::/64", "2001:db8:1::/48"),
        ("2001:db8:1:2::", "2001:db8:1:2::/64", "2001:db8:1::/48"),
        ("fe80::1%eth0", "fe80::/64", "fe80::/48"),
        ("unknown", "unknown", "unknown.0/24"),
        ("a:b", "a:b", "a:b"),
    ],
)
def test_an_address_shares_its_limits_with_all_that_its_client_can_have(
    address: str, own: str, block: str
) -> None:
    assert (share(address), near(address)) == (own, block)


def test_the_first_to_go_is_the_oldest_of_the_address_that_has_most() -> None:
    crowd = Crowd[str]()
    for name, address in (
        ("honest", "198.51.100.1"),
        *((f"a{n}", f"192.0.2.{n}") for n in range(4)),
        ("b1", "192.0.2.9"),
        ("b2", "192.0.2.9"),
        ("honest", "192.0.2.9"),
        *((f"c{n}", f"2001:db8:{n}::1") for n in range(3)),
    ):
        crowd.add(name, address)
    gone = []
    while crowd:
        gone.append(crowd.first())
        crowd.discard(gone[-1])
        crowd.discard("none")
    assert gone[:5] == ["b1", "a0", "a1", "a2", "a3"]
    assert sorted(gone) == sorted(["honest", *gone[:5], "b2", "c0", "c1", "c2"])
    assert (crowd._shares, crowd._near._items, crowd._near._sized) == ({}, {}, {})


def test_the_first_to_go_is_what_a_look_at_all_would_find() -> None:
    chance = random.Random(36)
    for _ in range(examples(50)):
        crowd, all_ = Crowd[int](), dict[int, str]()
        for n in range(60):
            if all_ and not chance.randrange(3):
                crowd.discard(old := chance.choice(list(all_)))
                del all_[old]
            else:
                all_[n] = f"192.0.{chance.randrange(3)}.{chance.randrange(3)}"
                crowd.add(n, all_[n])
            assert (list(crowd), len(crowd)) == (list(all_), len(all_))
            if all_:
                first = crowd.first()
                blocks = Counter(map(near, all_.values()))
                assert blocks[near(all_[first])] == max(blocks.values())
                own = [share(one) for one in all_.values() if near(one) == near(all_[first])]
                assert own.count(share(all_[first])) == max(Counter(own).values())
                assert first == next(one for one in all_ if all_[one] == all_[first])


class Left:
    """The transport of a client that has left already."""

    def get_extra_info(self, _name: str) -> None:
        return None

    def set_write_buffer_limits(self, _high: int) -> None:
        pass

    def abort(self) -> None:
        pass


def test_a_client_that_left_at_once_gives_its_place_back() -> None:
    """The system does not know the address of its socket any more."""

    async def test(at: Setting) -> None:
        one = Connection(at.gateway, MESSAGES, Port("l", "a", 1), FRAME)
        one.comes_from("192.0.2.1")
        at.gateway.joined(one)
        one.connection_made(Left())  # type: ignore[arg-type]
        one.close()
        assert (at.gateway.clients, at.gateway.everyone, len(at.gateway.unknown)) == ({}, set(), 0)

    run(test)


def test_addresses_of_one_ipv6_client_have_one_share_of_all_limits() -> None:
    async def test(at: Setting) -> None:
        two = []
        for n in range(2):
            one = Connection(at.gateway, MESSAGES, Port("l", "a", 1), FRAME)
            one.comes_from(f"2001:db8:1:2::{n}")
            at.gateway.joined(one)
            two.append(one)
        assert at.gateway.clients == {"2001:db8:1:2::/64": 2}
        assert (await (await at.client()).asks(produce(1))) == told(1)
        room = at.gateway.room
        room.keep(two[0], 1 << 25)
        room.keep(two[1], FREE + 1)
        assert not room.may(two[1])
        room.keep(two[1], FREE)
        assert room.may(two[1])
        for one in two:
            one.close()
        assert not at.gateway.room._bytes

    run(test)


def test_a_crowd_of_one_network_takes_no_place_of_an_honest_client(tmp_path: Path) -> None:
    """Two hundred addresses, one connection each. The honest client has not been served yet either."""
    own, broker = config(tmp_path).model_copy(update={"connections": 20}), Broker("a")
    broker.answering.set()

    async def test(at: Running) -> None:
        host, _, port = own.clusters["a"]["1"].rpartition(":")
        end = await asyncio.start_server(broker.client, host, int(port))
        honest, writers = await at.connected(), []
        await until("it is there", lambda: len(at.server._gateway.everyone) == 1)
        [port_] = own.listeners["l"].ports["a"].values()
        for n in range(1, 201):
            _, writer = await asyncio.open_connection(HOST, port_, local_addr=(f"127.0.7.{n}", 0))
            writers.append(writer)
        await until("all were seen", lambda: at.seen("refused") == {"place": 181})
        assert (await asks(*honest))[:8] == b"\0\0\0\x08\0\0\0\5"
        for writer in (*writers, honest[1], *broker.writers):
            writer.transport.abort()
        end.close()

    serve(own, test)
