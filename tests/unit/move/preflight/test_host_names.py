"""Hosts that files name by other texts than the inventory: compared by what the names resolve to."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.unit.move.preflight.test_checks import PROPERTIES
from tests.unit.move.preflight.test_kafka import _found
from tests.unit.preflight_world import SOURCE_CFG, healthy, server_properties
from zkmigrate.runbook.model.fact import Reading, Seen, Unknown
from zkmigrate.runbook.model.finding import Held

ZOO_CFG = "/etc/zookeeper/conf/zoo.cfg"
NOT_ASKED = Unknown("timeout", "no answer")
OTHER, SECOND, NOWHERE = Seen(("10.9.9.9",)), Seen(("fe80::1", "10.71.0.12")), None


@pytest.mark.parametrize(
    ("name", "address", "held", "told"),
    [
        ("ZK2.example.com.", SECOND, Held.YES, ""),
        ("[::ffff:10.71.0.12]", None, Held.YES, ""),
        ("zk2", OTHER, Held.NO, "zk2"),
        ("10.9.9.9", None, Held.NO, "10.9.9.9"),
        ("zk2", NOWHERE, Held.UNKNOWN, "zk2 does not resolve on {host}"),
        ("zk2", NOT_ASKED, Held.UNKNOWN, "cannot resolve zk2 on {host}: unknown (timeout): no answer"),
    ],
)
def test_a_host_is_compared_by_what_its_name_resolves_to(
    name: str, address: Reading[tuple[str, ...]] | None, held: Held, told: str
) -> None:
    world = healthy()
    for host in ("source1", "broker1", ""):
        if address is not None:
            world.resolved[host, name.lower().rstrip(".")] = address
    world.files["source1", ZOO_CFG] = Seen(
        SOURCE_CFG.replace("server.2=10.71.0.12", f"server.2={name}").encode()
    )
    connect = f"10.71.0.11:2181,{name}:2181,10.71.0.13"
    world.files["broker1", PROPERTIES] = Seen(server_properties(1, connect).encode())
    for id, host in (("source.config", "source1"), ("kafka.config", "broker1")):
        found = _found(world, id, "preflight", host)
        assert found.held is held, found
        assert told.format(host=host) in found.seen


@pytest.mark.parametrize(
    ("name", "addresses", "held"),
    [
        ("Kafka-1.example.com", Seen(("10.71.0.31",)), Held.YES),
        ("broker1", None, Held.YES),
        ("kafka-1", Seen(("10.71.0.32",)), Held.NO),
        ("kafka-1", None, Held.UNKNOWN),
    ],
)
def test_a_broker_may_register_by_another_name_of_its_host(
    name: str, addresses: Reading[tuple[str, ...]] | None, held: Held
) -> None:
    world = healthy()
    assert isinstance(world.view, Seen)
    view = world.view.value
    world.view = Seen(replace(view, brokers={**view.brokers, 1: (name, 9092, "r1")}))
    if addresses is not None:
        world.resolved["", name.lower()] = addresses
    found = _found(world, "kafka.addresses", "preflight", "broker1")
    assert found.held is held
    assert ("does not resolve on this machine" in found.seen) == (held is Held.UNKNOWN)


def test_a_servers_own_name_may_be_a_loopback_address_there() -> None:
    """As Debian writes 127.0.1.1 and the host's own name into /etc/hosts."""
    world = healthy()
    world.files["source2", ZOO_CFG] = Seen(SOURCE_CFG.replace("server.2=10.71.0.12", "server.2=zk2").encode())
    world.resolved["source2", "zk2"] = Seen(("127.0.1.1",))
    assert _found(world, "source.config", "preflight", "source2").held is Held.YES
    world.files["source2", ZOO_CFG] = Seen(SOURCE_CFG.replace("server.1=10.71.0.11", "server.1=zk2").encode())
    assert _found(world, "source.config", "preflight", "source2").held is Held.NO


@pytest.mark.parametrize(
    ("told", "held"),
    [("dataDir=/srv/./zk/version-2", Held.YES), ("dataDir=/other/version-2", Held.NO), ("", Held.UNKNOWN)],
)
def test_a_relative_directory_is_where_the_server_says_that_it_is(told: str, held: Held) -> None:
    world = healthy()
    text = SOURCE_CFG.replace("dataDir=/", "dataDir=")
    assert text != SOURCE_CFG
    world.files["source1", ZOO_CFG] = Seen(text.encode())
    word = world.words["source1", "conf"]
    assert isinstance(word, Seen)
    real = next(line for line in word.value.splitlines() if line.startswith("dataDir="))
    said = real.replace("=/", "=/./") if held is Held.YES else told
    world.words["source1", "conf"] = Seen(word.value.replace(real, said)) if told else NOT_ASKED
    assert _found(world, "source.config", "preflight", "source1").held is held


@pytest.mark.parametrize(("runs", "held"), [(True, Held.YES), (False, Held.UNKNOWN)])
def test_a_relative_log_directory_is_below_the_directory_where_the_broker_works(
    runs: bool, held: Held
) -> None:
    world = healthy()
    text = server_properties(1).replace("log.dirs=/var/lib/", "log.dirs=lib/")
    world.files["broker1", PROPERTIES] = Seen(text.encode())
    own = world.files["broker1", "/var/lib/kafka/meta.properties"]
    if runs:
        world.files["broker1", "/proc/311/cwd/lib/kafka/meta.properties"] = own
    else:
        world.files["broker1", "/proc/311/cmdline"] = NOT_ASKED
    found = _found(world, "kafka.log-dirs", "preflight", "broker1")
    assert (found.held, "lib/kafka" in found.seen) == (held, True)
