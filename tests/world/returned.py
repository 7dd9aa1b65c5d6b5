"""A world behind the open door of a move, in which dest went on by itself: where a return begins."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from playbooks.kafka_zookeeper_return import PLAYBOOK
from tests.world.model.disk import Znode, replay
from tests.world.model.world import World
from tests.world.operator import Moment, Operator, quiet_world
from zkmigrate.inventory.accept import Accept
from zkmigrate.move.rules.outage import OWNER
from zkmigrate.zookeeper.data.replay import marker_of

ADMIN = 0xB00000000000001
"""The session of an admin tool on dest."""

AGREED = Accept(finding=OWNER, who="Ada, who owns source", why="the move failed", until="2099-01-01T00:00Z")
CHANGES = 230
"""How many transactions dest makes of its own: three changes of a replay."""


def agreed(world: World) -> World:
    """The same world, whose inventory says that source's owner agrees."""
    world.inventory = world.inventory.model_copy(update={"accept": (*world.inventory.accept, AGREED)})
    return world


def opened(directory: Path, changes: int = CHANGES, first: World | None = None) -> World:
    """Moved up to OPEN; then topics come, change and go on dest. first: the world as it begins."""
    operator = Operator(first or quiet_world(), directory / "move")
    assert operator.forward(until="cutover", skip=("rehearse",)).code == 0
    world = agreed(operator.world)
    went_on(world, changes)
    return world


def went_on(world: World, changes: int) -> None:
    """Dest makes so many transactions of its own: a topic is made, or written to, or goes."""
    dest = world.dest
    assert dest is not None
    for number in range(changes):
        path = f"{world.inventory.kafka.prefix or '/config'}/topic-{number // 3}-{len(dest.log) // 1000}"
        znodes = dest.tree().znodes
        if path not in znodes:
            dest.commit("create", ADMIN, path, b"made")
        elif znodes[path].version == 0:
            dest.commit("set", ADMIN, path, b"of-nobodys-business")
        else:
            dest.commit("delete", ADMIN, path)
    world.advance(0.2)


def returning(world: World, run_dir: Path, *, keeps: bool = False) -> Operator:
    return Operator(world, run_dir, playbook=PLAYBOOK, keeps=keeps)


def again(moment: Moment, run_dir: Path) -> Operator:
    """The next operator of a return, at this moment."""
    operator = moment.again(run_dir)
    operator.playbook = PLAYBOOK
    return operator


def staying(log_of: Mapping[str, Znode]) -> dict[str, tuple[bytes, int, int]]:
    """Path to data, version and cversion, of what stays below the chroot."""
    return {
        path: (node.data, node.version, node.cversion)
        for path, node in log_of.items()
        if path.startswith(("/kafka/", "/config/")) and not node.owner
    }


def on_dest(world: World) -> dict[str, tuple[bytes, int, int]]:
    """That of the newest disk of dest."""
    disks = [host.disk for host in world.hosts.values() if host.disk is not None]
    return staying(replay(max(disks, key=lambda disk: disk.newest).log).znodes)


def whole(world: World) -> bool:
    """Every broker runs against source, which shows no mark, and dest is down."""
    brokers = world.brokers.values()
    return (
        all(p.registered and p.connected in world.inventory.source_names for p in brokers)
        and not any(world.hosts[name].running for name in world.inventory.dest_names)
        and marker_of(world.inventory.kafka.subtree) not in world.source.tree().znodes
    )
