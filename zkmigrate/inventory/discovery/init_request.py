"""Define the options of ``init``: the account, and the hosts that options or Ansible name."""

from __future__ import annotations

import getpass
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from zkmigrate.errors import UsageError
from zkmigrate.hosts.facts.host_names import same_host
from zkmigrate.hosts.jump_host import parse_jump_hosts
from zkmigrate.hosts.transport.own_addresses import resolved
from zkmigrate.inventory.discovery import ansible
from zkmigrate.inventory.discovery.ansible import AnsibleHost
from zkmigrate.inventory.discovery.draft import SshDraft
from zkmigrate.inventory.inventory import Ssh
from zkmigrate.zookeeper.clients.login import OPEN, Credentials


@dataclass(frozen=True, kw_only=True)
class InitOptions:
    """The options of one call of ``init``.

    source, dest, bootstrap: ``HOST[:PORT]`` as typed. ansible: a path, ``auto``, or "" for none. In ``ssh`` a
    port of 0 and an empty user or key mean not given. credentials: how to log in to source's servers.
    """

    source: tuple[str, ...]
    dest: tuple[str, ...] = ()
    bootstrap: tuple[str, ...] = ()
    chroot: str = ""
    name: str = ""
    operator: tuple[str, ...] = ()
    ansible: str = ""
    mapping: str = ""
    ssh: SshDraft
    out: Path
    force: bool = False
    as_json: bool = False
    credentials: Credentials = OPEN


@dataclass(frozen=True)
class NamedHost:
    """A host from the options or from Ansible."""

    address: str
    port: int | None = None
    name: str = ""


def named_hosts(options: InitOptions) -> tuple[InitOptions, Mapping[str, list[NamedHost]]]:
    """Return the options completed with Ansible's account and key, and the hosts by role.

    The hosts of the options come first.
    """
    named = {
        "source": [_endpoint(text, "--source") for text in options.source],
        "dest": [_endpoint(text, "--dest") for text in options.dest],
        "brokers": list[NamedHost](),
    }
    mapping = ansible.parse_map(options.mapping)
    if mapping and not options.ansible:
        options = replace(options, ansible=ansible.AUTO)
    if options.ansible:
        if not mapping:
            raise UsageError(
                "--ansible needs --map, which names the groups. Next: pass --map "
                "source=zk_old,dest=zk_new,brokers=kafka"
            )
        by_role = ansible.hosts(ansible.run_inventory(options.ansible), mapping)
        for role, hosts in by_role.items():
            named[role] = _merged(named[role], hosts)
        options = replace(options, ssh=_with_ansible(options.ssh, [h for hs in by_role.values() for h in hs]))
    if not named["source"]:
        raise UsageError(
            "no source host is named. Next: pass --source HOST[:PORT] (one is enough, its zoo.cfg names "
            "the others), or --ansible with --map source=GROUP"
        )
    return options, named


def _merged(given: Iterable[NamedHost], hosts: Iterable[AnsibleHost]) -> list[NamedHost]:
    """Return the hosts of the options, then those of Ansible.

    A host that both name, by any of its addresses, occurs once.
    """
    found = list(given)
    for host in hosts:
        same = next((one for one in found if same_host(host.address, (one.address,), resolved)), None)
        if same is None:
            found.append(NamedHost(host.address, None, host.name))
        elif not same.name:
            found[found.index(same)] = replace(same, name=host.name)
    return found


def _endpoint(text: str, option: str) -> NamedHost:
    try:
        (jump,) = parse_jump_hosts(text)
    except ValueError as error:
        raise UsageError(f"{option} {text[:80]!r}: {error}") from error
    if jump.user:
        raise UsageError(f"{option} {text[:80]!r}: this option takes no account. Next: pass --ssh-user")
    return NamedHost(jump.host, jump.port)


def _with_ansible(ssh: SshDraft, hosts: Iterable[AnsibleHost]) -> SshDraft:
    """Fill in what the options leave out, if all Ansible hosts have the same value."""

    def one(values: set[str]) -> str:
        return values.pop() if len(values) == 1 else ""

    hosts = tuple(hosts)
    user, key = one({h.user for h in hosts}), one({h.key for h in hosts})
    port = one({str(h.port or "") for h in hosts})
    return replace(
        ssh, user=ssh.user or user, key=ssh.key or key, port=ssh.port or (int(port) if port else 0)
    )


def transport_ssh(ssh: SshDraft) -> Ssh:
    """Return the ssh settings in the transport's form. Raises UsageError for an invalid value."""
    try:
        return Ssh(
            user=ssh.user or getpass.getuser(),
            port=ssh.port or 22,
            key=ssh.key or _own_key(),
            known_hosts=ssh.known_hosts,
            bastion=ssh.bastion or None,
            config=ssh.config or None,
        )
    except ValueError as error:
        raise UsageError(f"the ssh options are not valid together: {error}") from error


def _own_key() -> str:
    """Return the operator's own private key. Raises UsageError if there is none."""
    for name in ("id_ed25519", "id_ecdsa", "id_rsa"):
        path = Path.home() / ".ssh" / name
        if path.is_file():
            return str(path)
    raise UsageError("no private key is given, and ~/.ssh has none. Next: pass --ssh-key FILE")
