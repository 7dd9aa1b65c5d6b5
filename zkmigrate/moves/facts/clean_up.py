"""Who uses dest, as far as its servers and the brokers' files tell: what a clean-up rests on."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from zkmigrate.inventory.inventory import Inventory
from zkmigrate.model.fact import Reading, Seen
from zkmigrate.model.look import Look
from zkmigrate.moves.dependent import AnyDependent
from zkmigrate.moves.facts.after_move import connect_string
from zkmigrate.moves.facts.connections import connections
from zkmigrate.moves.facts.sessions import dump
from zkmigrate.moves.facts.tenants import Tenants, foreign_clients
from zkmigrate.zookeeper.data.four_letter_words import parse_wchp
from zkmigrate.zookeeper.facts.ensemble import answer


@dataclass(frozen=True)
class Users:
    """One look at all dest servers. watches: host → path → sessions; never of a list of children, which no
    server tells. clients: neither brokers nor the operator. chroots: broker → its chroot."""

    watches: Mapping[str, Reading[Mapping[str, tuple[int, ...]]]]
    clients: Tenants
    chroots: Mapping[str, Reading[str]]


def users(inventory: Inventory, dependent: AnyDependent, look: Look) -> Users:
    """Ask every dest server, and every broker for its file."""
    hosts = inventory.dest_names
    cons = look.each(hosts, lambda host: connections(look, host))
    dumps = look.each(hosts, lambda host: dump(look, host))
    return Users(
        look.each(hosts, lambda host: answer(look, host, "wchp", parse_wchp)),
        foreign_clients(inventory, dependent, look, cons, dumps),
        look.each(inventory.broker_names, lambda name: _chroot(inventory, look, name)),
    )


def chroot_of(connect: str) -> str:
    """The chroot of a ``zookeeper.connect``; ``/`` where it names none."""
    _, slash, path = connect.strip().partition("/")
    return slash + path.rstrip("/") if path.rstrip("/") else "/"


def _chroot(inventory: Inventory, look: Look, broker: str) -> Reading[str]:
    connect = connect_string(inventory, look, broker)
    return Seen(chroot_of(connect.value)) if isinstance(connect, Seen) else connect
