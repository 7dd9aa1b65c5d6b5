"""Each finding's advice fits what was seen: what it must say in each case, and what it may not say."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from tests.unit.move.preflight.test_checks import Break, config, file, kafka, no_word, program, word
from tests.unit.move.preflight.test_kafka import command
from tests.unit.preflight_world import (
    CHECKS,
    CLUSTER_ID,
    WHITELIST,
    PreflightWorld,
    context,
    healthy,
    inventory,
    run_preflight,
    view,
)
from zkmigrate.inventory.accept import ACCEPTABLE
from zkmigrate.inventory.inventory import Inventory
from zkmigrate.kafka.facts.broker import LogDirectory
from zkmigrate.kafka.rules.identity import identity
from zkmigrate.runbook.model.fact import Seen
from zkmigrate.runbook.model.finding import AGAIN

PROPERTIES = "/etc/kafka/server.properties"


def untouched(_world: object) -> None:
    """Break nothing: what is wrong is in the inventory."""


def same(given: Inventory) -> Inventory:
    return given


def wrong_cluster(given: Inventory) -> Inventory:
    return given.model_copy(update={"kafka": given.kafka.model_copy(update={"cluster_id": "w" * 22})})


def wrong_chroot(given: Inventory) -> Inventory:
    return given.model_copy(update={"kafka": given.kafka.model_copy(update={"chroot": "/elsewhere"})})


def connect(text: str) -> Break:
    return file(
        "broker1", PROPERTIES, f"broker.id=1\nzookeeper.connect={text}\nlog.dirs=/var/lib/kafka\n".encode()
    )


SOURCES = ("source1", "source2", "source3")
SOURCE = "10.71.0.11:2181,10.71.0.12:2181,10.71.0.13:2181"


def registered(*ids: int) -> Break:
    return kafka(replace(view(), brokers={id: (f"10.71.0.3{id}", 9092, "r1") for id in ids}))


def no_dump(w: PreflightWorld) -> None:
    """Refuse ``dump`` on every server, as a whitelist does."""
    for host in (f"{side}{n}" for side in ("source", "dest") for n in (1, 2, 3)):
        word(host, "dump", "dump" + WHITELIST)(w)


def no_leader(w: PreflightWorld) -> None:
    there = view().partitions
    kafka(replace(view(), partitions=(replace(there[0], leader=-1), *there[1:])))(w)


overridden = command("--override", "zookeeper.connect=h:1/x")
CASES: tuple[tuple[str, str, Callable[[Inventory], Inventory], Break, str, str], ...] = (
    # id, gate, inventory, what is broken; what the advice says; what it does not say
    ("kafka.cluster-id", "preflight", wrong_cluster, untouched, "kafka.cluster_id", "log.dirs"),
    ("kafka.session-timeout", "cutover", wrong_chroot, untouched, "kafka.chroot", "allow"),
    ("kafka.session-timeout", "cutover", same, no_dump, "allow dump", "kafka.chroot"),
    ("kafka.sessions-on-dest", "cutover", same, no_dump, "allow dump", "move this client"),
    ("kafka.brokers", "preflight", same, registered(1, 2), "start broker 3", "add"),
    ("kafka.brokers", "preflight", same, registered(1, 2, 3, 4), "add broker 4 to kafka.brokers", "start"),
    ("kafka.offline", "preflight", same, no_leader, "start the broker", "wait"),
    ("kafka.config", "preflight", wrong_chroot, untouched, "kafka.chroot", "file"),
    ("kafka.config", "preflight", same, connect(SOURCE), "kafka.chroot", "written out"),
    ("kafka.config", "preflight", same, connect("${file:/zk:connect}"), "written out", "migration.yml"),
    ("kafka.config", "preflight", same, connect("10.9.9.9:2181/kafka"), "source.hosts", "chroot"),
    ("kafka.started-with", "preflight", same, overridden, "command line", "kafka.config"),
    ("host.socket-kill", "preflight", same, program("dest1", "facts", "ss_kill=yes", "ss_kill=no"),
     "use a kernel", "install"),
    ("host.tools", "preflight", same,
     program("dest1", "facts", "tool.ipset=ipset v7.17, protocol version: 7", "tool.ipset=missing"),
     "install ipset", "netcat"),
    ("source.quorum", "preflight", same, no_word("mntr", *SOURCES), "find out why the host", "allow"),
    ("source.purge", "preflight", same, config("purgeInterval=0", "purgeInterval=1"), "purgeInterval=0", "?"),
    ("dest.observing", "roll", same, no_word("srvr", "dest1"), "find out why the host", "log"),
    ("dest.cluster-id", "roll", wrong_cluster, untouched, "kafka.cluster_id", "wait"),
)  # fmt: skip


def moves_of(id: str, gate: str, given: Inventory, broken: Break) -> str:
    world = healthy()
    broken(world)
    found = [f for f in run_preflight(replace(context(), inventory=given), world, gate) if f.id == id]
    return "; ".join(move for f in found for move in f.moves if move != AGAIN)


@pytest.mark.parametrize(("id", "gate", "given", "broken", "fits", "misleads"), CASES)
def test_advice_fixes_what_was_seen(
    id: str, gate: str, given: Callable[[Inventory], Inventory], broken: Break, fits: str, misleads: str
) -> None:
    told = moves_of(id, gate, given(inventory()), broken)
    assert fits in told
    assert misleads not in told


def test_a_wrong_cluster_id_is_one_finding_and_none_about_log_directories() -> None:
    found = run_preflight(replace(context(), inventory=wrong_cluster(inventory())), healthy(), "preflight")
    assert [f.id for f in found if f.blocks] == ["kafka.cluster-id"]


def test_directories_that_all_name_another_cluster_may_be_right() -> None:
    other = Seen(LogDirectory("o" * 22, "1"))
    alike = identity(PROPERTIES, {"broker.id": "1"}, {"/a": other, "/b": other}, 1, CLUSTER_ID)
    assert alike.moves[0].endswith("fix kafka.cluster_id in migration.yml")
    own = Seen(LogDirectory(CLUSTER_ID, "1"))
    one = identity(PROPERTIES, {"broker.id": "1"}, {"/a": own, "/b": other}, 1, CLUSTER_ID)
    assert one.moves == ("find out which broker owns the directory, and fix log.dirs",)


def test_what_must_not_be_moved_cannot_be_accepted() -> None:
    refused = {check.id for check in CHECKS if check.todo.startswith("Do not move")}
    assert {"kafka.security", "source.security"} <= refused
    assert not refused & ACCEPTABLE
