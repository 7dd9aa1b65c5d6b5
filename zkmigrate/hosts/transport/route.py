"""The route to each host: its address, account, key and bastions.

The inventory sets these for all hosts. The ssh_config file that the inventory names may set them for a single
host or hop. A host is looked up in that file by its inventory name if the file gives that name a HostName,
otherwise by its address.
"""

from __future__ import annotations

import re
import threading
from dataclasses import dataclass, replace
from typing import Protocol

from zkmigrate.errors import UsageError
from zkmigrate.hosts.jump_host import JumpHost, parse_jump_hosts
from zkmigrate.hosts.transport.failure import TransportError
from zkmigrate.hosts.transport.ssh_config import HostConfig, resolve
from zkmigrate.inventory.inventory import Ssh

BASTION = "bastion"
"""The name of the inventory's last hop before the hosts. In messages each hop is named ``bastion HOP``."""

_MOST_HOPS = 8
_SSH_PORT = 22
_ACCOUNT = re.compile(r"[a-z_][a-z0-9_-]{0,31}")
"""The form of account names that are safe in a sudoers file."""


class Hosts(Protocol):
    """The fields of an Inventory that are needed to compute routes."""

    @property
    def ssh(self) -> Ssh: ...

    def address(self, name: str) -> str: ...


@dataclass(frozen=True)
class Login:
    """The address, account and key for one ssh login.

    key: the path of a private key file. known_hosts: the files that pin host keys. via: the login to the hop
    before this one, None if it is reached directly.
    """

    name: str
    address: str
    port: int
    user: str
    key: str
    known_hosts: tuple[str, ...]
    via: Login | None = None

    @property
    def pin(self) -> str:
        """The host's name in known_hosts files (sshd(8)): its address, with the port unless that is 22."""
        return self.address if self.port == _SSH_PORT else f"[{self.address}]:{self.port}"


class Routes:
    """The logins for the hosts of one inventory, each computed once."""

    def __init__(self, hosts: Hosts) -> None:
        self._hosts = hosts
        self._lock = threading.Lock()
        self._known: dict[str, Login] = {}

    def to(self, name: str) -> Login:
        """Return the login of a host, or of ``BASTION``. Raises TransportError."""
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

    def _bastion(self) -> Login:
        login = self._through(self._hosts.ssh.bastion, self._hosts.ssh.port)
        if login is None:
            raise UsageError("the inventory has no bastion")
        return login

    def _host(self, name: str) -> Login:
        ssh = self._hosts.ssh
        try:
            address = self._hosts.address(name)
        except KeyError:
            raise TransportError(name, "failed", "the inventory has no host of that name") from None
        config = self._configured(name, address, ssh.user, ssh.port)
        if config is None or not config.jump:
            via = self._through(ssh.bastion, ssh.port)
        else:
            via = self._through(config.jump, _SSH_PORT)
        return self._make_login(name, JumpHost(config.host if config else address), config, via)

    def _through(self, jump_hosts: str | None, port: int, passed: tuple[str, ...] = ()) -> Login | None:
        """Return the login to the last of these hops, or None if there are no hops.

        Each hop is reached through the hop before it, and the first hop as ssh_config says. port: the port of
        a hop that gives none. passed: the hops that are already on the route, to detect a circle.
        """
        login: Login | None = None
        listed = parse_jump_hosts(jump_hosts) if jump_hosts else ()
        for at, jump in enumerate(listed):
            way = (*passed, *map(str, listed))
            if len(way) > _MOST_HOPS or len(set(way)) < len(way):
                raise UsageError(
                    f"the way through {', '.join(way)} is a loop or too long (needed: at most {_MOST_HOPS} "
                    "hops, each once)"
                )
            jump = replace(jump, user=jump.user or self._hosts.ssh.user)
            config = self._configured(jump.host, jump.host, jump.user, jump.port or port)
            before = login
            if config is not None:
                if at == 0 and config.jump:
                    before = self._through(config.jump, _SSH_PORT, way)
                # The jump's own user and port come before those of its host's block.
                given = listed[at]
                config = replace(config, user=given.user or config.user, port=given.port or config.port)
            jump = replace(jump, port=jump.port or port)
            login = self._make_login(f"{BASTION} {listed[at]}", jump, config, before)
        return login

    def _configured(self, name: str, address: str, user: str, port: int) -> HostConfig | None:
        if not (file := self._hosts.ssh.config):
            return None
        config = resolve(file, name, user, port)
        return config if config.host != name or name == address else resolve(file, address, user, port)

    def _make_login(self, name: str, jump: JumpHost, config: HostConfig | None, via: Login | None) -> Login:
        ssh = self._hosts.ssh
        if config is None:
            port, user = jump.port or ssh.port, jump.user or ssh.user
            return Login(name, jump.host, port, user, ssh.key, (ssh.known_hosts,), via)
        if not _ACCOUNT.fullmatch(config.user):
            raise UsageError(f"{name}: User {config.user[:40]!r} of ssh.config is not a plain account name")
        pins = tuple(dict.fromkeys((ssh.known_hosts, *config.known_hosts)))
        return Login(name, config.host, config.port, config.user, config.key or ssh.key, pins, via)
