"""The Kafka clusters on an ensemble, from four-letter words: no session, nothing written.

``dump`` lists each ephemeral with its session: registered brokers and chroots. ``cons`` has the client's
address of each session.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from zkmigrate.zookeeper.data.four_letter_words import Connection, Dump
from zkmigrate.zookeeper.data.session import unsigned

_REGISTRATION = re.compile(r"(?P<chroot>(/[^/]+)*)/brokers/ids/(?P<id>[0-9]{1,10})")


@dataclass(frozen=True)
class Registered:
    """A registered broker. address: the client address of its session, "" where unknown."""

    id: int
    address: str


def clusters(
    dumps: Iterable[Dump], connections: Iterable[Connection]
) -> Mapping[str, tuple[Registered, ...]]:
    """Chroot ("" for the root) → its registered brokers, by id."""
    clients = {unsigned(c.session): c.address for c in connections if c.session}
    found: dict[str, dict[int, str]] = {}
    for dump in dumps:
        for session, paths in dump.ephemerals.items():
            for path in paths:
                if match := _REGISTRATION.fullmatch(path):
                    address = clients.get(unsigned(session), "")
                    found.setdefault(match["chroot"], {})[int(match["id"])] = address
    return {
        chroot: tuple(Registered(id, address) for id, address in sorted(brokers.items()))
        for chroot, brokers in sorted(found.items())
    }
