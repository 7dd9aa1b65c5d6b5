"""The way to each host: where its sshd is, as whom to log in, and through which other hosts.

The inventory says it for all hosts alike; an ssh_config that it names may say otherwise for a host or a hop.
A host is looked up there by its name in the inventory if the file gives that name a HostName, else by its
address.
"""

from __future__ import annotations

import re
import threading
from dataclasses import dataclass, replace
from typing import Protocol

from zkmigrate.errors import UsageError
from zkmigrate.hosts.jump_host import Hop, parse_hops
from zkmigrate.hosts.transport.failure import TransportError
from zkmigrate.hosts.transport.ssh_config import Said, resolve
from zkmigrate.inventory.inventory import Ssh

BASTION = "bastion"
"""Names the inventory's last hop before the hosts; in messages each hop is ``bastion HOP``."""

_MOST_HOPS = 8
_SSH_PORT = 22
_ACCOUNT = re.compile(r"[a-z_][a-z0-9_-]{0,31}")
"""Account names that may also stand in a sudoers file."""


class Hosts(Protocol):
    """What has to be known of the hosts; an Inventory is one."""

    @property
    def ssh(self) -> Ssh: ...

    def address(self, name: str) -> str: ...


@dataclass(frozen=True)
class Place:
    """One login. key: a private key file; known_hosts: files that pin host keys; via: the hop before it."""

    name: str
    address: str
    port: int
    user: str
    key: str
    known_hosts: tuple[str, ...]
    via: Place | None = None

    @property
    def pin(self) -> str:
        """How known_hosts files name it (sshd(8)): the address, with its port unless that is 22."""
        return self.address if self.port == _SSH_PORT else f"[{self.address}]:{self.port}"


class Routes:
    """The places of one inventory, each worked out once."""

    def __init__(self, hosts: Hosts) -> None:
        self._hosts = hosts
        self._lock = threading.Lock()
        self._known: dict[str, Place] = {}

    def to(self, name: str) -> Place:
        """The place of a host, or of ``BASTION``. Raises TransportError."""
        with self._lock:
            found = self._known.get(name)
        if found is None:
            try:
                found = self._bastion() if name == BASTION else self._host(name)
            except (UsageError, ValueError) as error:
                raise TransportError(name, "denied", str(error)) from error
            with self._lock:
                found = self._known.setdefault(name, found)
        return found

    def _bastion(self) -> Place:
        place = self._through(self._hosts.ssh.bastion, self._hosts.ssh.port)
        if place is None:
            raise UsageError("the inventory has no bastion")
        return place

    def _host(self, name: str) -> Place:
        ssh = self._hosts.ssh
        try:
            address = self._hosts.address(name)
        except KeyError:
            raise TransportError(name, "failed", "the inventory has no host of that name") from None
        said = self._said(name, address, ssh.user, ssh.port)
        if said is None or not said.jump:
            via = self._through(ssh.bastion, ssh.port)
        else:
            via = self._through(said.jump, _SSH_PORT)
        return self._place(name, Hop(said.host if said else address), said, via)

    def _through(self, hops: str | None, port: int, passed: tuple[str, ...] = ()) -> Place | None:
        """The last of these hops, each reached through the one before; the first as ssh_config says.

        port: of a hop that names none. passed: hops that lead through these.
        """
        place: Place | None = None
        listed = parse_hops(hops) if hops else ()
        for at, hop in enumerate(listed):
            way = (*passed, *map(str, listed))
            if len(way) > _MOST_HOPS or len(set(way)) < len(way):
                raise UsageError(
                    f"the way through {', '.join(way)} is a circle or too long (needed: at most {_MOST_HOPS} "
                    "hops, none twice)"
                )
            hop = replace(hop, user=hop.user or self._hosts.ssh.user)
            said = self._said(hop.host, hop.host, hop.user, hop.port or port)
            before = place
            if said is not None:
                if at == 0 and said.jump:
                    before = self._through(said.jump, _SSH_PORT, way)
                # What stands in the jump itself counts before what its host's own block says.
                given = listed[at]
                said = replace(said, user=given.user or said.user, port=given.port or said.port)
            hop = replace(hop, port=hop.port or port)
            place = self._place(f"{BASTION} {listed[at]}", hop, said, before)
        return place

    def _said(self, name: str, address: str, user: str, port: int) -> Said | None:
        if not (file := self._hosts.ssh.config):
            return None
        said = resolve(file, name, user, port)
        return said if said.host != name or name == address else resolve(file, address, user, port)

    def _place(self, name: str, hop: Hop, said: Said | None, via: Place | None) -> Place:
        ssh = self._hosts.ssh
        if said is None:
            port, user = hop.port or ssh.port, hop.user or ssh.user
            return Place(name, hop.host, port, user, ssh.key, (ssh.known_hosts,), via)
        if not _ACCOUNT.fullmatch(said.user):
            raise UsageError(f"{name}: the User {said.user[:40]!r} of ssh.config is not a plain account name")
        pins = tuple(dict.fromkeys((ssh.known_hosts, *said.known_hosts)))
        return Place(name, said.host, said.port, said.user, said.key or ssh.key, pins, via)
