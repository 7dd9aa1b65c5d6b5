"""The roll by hand: one broker after the other, each edited from what its host holds."""

from __future__ import annotations

import shlex
from dataclasses import replace

from zkmigrate.inventory.inventory import Broker, Inventory
from zkmigrate.kafka.facts.cluster import controller
from zkmigrate.kafka.rules.connect import connect_sed, connect_to_dest
from zkmigrate.move.facts.connections import addresses
from zkmigrate.runbook.model.by_hand import Block, ByHand, Sheet
from zkmigrate.runbook.model.fact import Seen
from zkmigrate.runbook.model.look import Look
from zkmigrate.runbook.model.step import Way

_MOVED = "`OK broker … lives on …`, then `OK in sync`; this takes a minute or more"


def controller_name(inventory: Inventory, look: Look) -> str:
    """The broker that is the controller now; empty where no source host shows it."""
    for host in inventory.source_names:
        found = controller(look, host, inventory.kafka.chroot)
        if isinstance(found, Seen):
            return next((b.name for b in inventory.kafka.brokers if b.id == found.value.broker), "")
    return ""


def _forward(s: Sheet) -> tuple[Block, ...]:
    blocks = [block for host in s.hosts(Way.FORWARD) for block in _to_dest(s, host)]
    return (*blocks, *_elected(s, Way.FORWARD))


def _to_dest(s: Sheet, host: str) -> tuple[Block, ...]:
    """The file is edited on the host, so that none of its values is printed on the page."""
    broker, path = s.inventory.broker(host), s.inventory.kafka.config
    before = (
        f"until_in_sync 600 {host} {broker.endpoint} &&",
        f"zkm {host} read {path} 0 1048576 | base64 -d >{host}.old &&",
        f"sed -E {shlex.quote(connect_sed(connect_to_dest(s.inventory)))} {host}.old >{host}.new &&",
        f"one_line {host}",
    )
    write, again = s.alone(host, Way.FORWARD, {path: f"{host}.new"})
    return (
        Block((host,), before, "`OK in sync`, then the old and the new `zookeeper.connect`, no other line"),
        replace(write, expect=f"`wrote {path}`, then `OK {host}`"),
        replace(again, otherwise="start it again by hand: a broker must not stay down"),
        Block((host,), _moved(broker, "dest"), _MOVED, "do not touch another broker until this one is back"),
    )


def _back(s: Sheet) -> tuple[Block, ...]:
    blocks: list[Block] = []
    for host in s.hosts(Way.BACK):
        moved = _moved(s.inventory.broker(host), "source")
        wait = Block((host,), moved, _MOVED, "do not touch another broker", Way.BACK)
        blocks += [*s.alone(host, Way.BACK), wait]
    return (*blocks, *_elected(s, Way.BACK))


def _elected(s: Sheet, way: Way) -> tuple[Block, ...]:
    return tuple(replace(b, otherwise="go on: whoever leads is in sync") for b in s.on_clusters(way))


def _moved(broker: Broker, ensemble: str) -> tuple[str, ...]:
    at = " ".join(sorted(addresses(broker))) or broker.address
    return (
        f"until_moved 600 {broker.id} {ensemble} {at} && until_in_sync 600 {broker.name} {broker.endpoint}",
    )


BY_HAND = ByHand(
    needs="every dest host observes; no under-replicated partition; nobody changes topics. `controller` "
    "prints the id of the controller: it goes last. If it is not the last one below, leave its boxes for the "
    "end.",
    weaker="`/cluster/id` is not read through dest before the first broker; brokers of 2.4 and later refuse "
    "a wrong cluster by themselves. Without `KAFKA_TOPICS` you look at the ISR yourself.",
    forward=_forward,
    back=_back,
    alone=True,
    last=controller_name,
)
