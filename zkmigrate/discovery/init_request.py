"""What one call of ``init`` asks for: the hosts that are named, by option or by Ansible, and the account."""

from __future__ import annotations

import getpass
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from zkmigrate.discovery import ansible
from zkmigrate.discovery.ansible import AnsibleHost
from zkmigrate.discovery.draft import SshDraft
from zkmigrate.errors import UsageError
from zkmigrate.hosts.jump_host import parse_hops
from zkmigrate.inventory.inventory import Ssh


@dataclass(frozen=True)
class Wanted:
    """One call. source, dest, bootstrap: ``HOST[:PORT]`` as typed; ansible: "" for none, ``auto`` or a path.

    ssh.port 0, ssh.user and ssh.key "": not given.
    """

    source: tuple[str, ...]
    dest: tuple[str, ...]
    bootstrap: tuple[str, ...]
    chroot: str
    name: str
    operator: tuple[str, ...]
    ansible: str
    mapping: str
    ssh: SshDraft
    out: Path
    force: bool = False
    as_json: bool = False


@dataclass(frozen=True)
class Named:
    """A host that was named before anything was asked."""

    address: str
    port: int | None = None
    name: str = ""


def named_hosts(wanted: Wanted) -> tuple[Wanted, Mapping[str, list[Named]]]:
    """Hosts by role, those of the options before Ansible's; and account and key as Ansible has them."""
    named = {
        "source": [_endpoint(text, "--source") for text in wanted.source],
        "dest": [_endpoint(text, "--dest") for text in wanted.dest],
        "brokers": list[Named](),
    }
    mapping = ansible.parse_map(wanted.mapping)
    if mapping and not wanted.ansible:
        wanted = replace(wanted, ansible=ansible.AUTO)
    if wanted.ansible:
        if not mapping:
            raise UsageError(
                "--ansible without --map: which groups are they? Next: --map "
                "source=zk_old,dest=zk_new,brokers=kafka"
            )
        listed = ansible.hosts(ansible.listed(wanted.ansible), mapping)
        for role, hosts in listed.items():
            known = {host.address for host in named[role]}
            named[role] += [Named(h.address, None, h.name) for h in hosts if h.address not in known]
        wanted = replace(wanted, ssh=_with_ansible(wanted.ssh, [h for hs in listed.values() for h in hs]))
    if not named["source"]:
        raise UsageError(
            "no source host is named. Next: --source HOST[:PORT] (one is enough, its zoo.cfg names "
            "the others); or --ansible with --map source=GROUP"
        )
    return wanted, named


def _endpoint(text: str, option: str) -> Named:
    try:
        (hop,) = parse_hops(text)
    except ValueError as error:
        raise UsageError(f"{option} {text[:80]!r}: {error}") from error
    if hop.user:
        raise UsageError(f"{option} {text[:80]!r}: an account has no place here. Next: --ssh-user")
    return Named(hop.host, hop.port)


def _with_ansible(ssh: SshDraft, hosts: Iterable[AnsibleHost]) -> SshDraft:
    """What the options leave open, where all hosts of the Ansible inventory say the same."""

    def one(values: set[str]) -> str:
        return values.pop() if len(values) == 1 else ""

    hosts = tuple(hosts)
    user, key = one({h.user for h in hosts}), one({h.key for h in hosts})
    port = one({str(h.port or "") for h in hosts})
    return replace(
        ssh, user=ssh.user or user, key=ssh.key or key, port=ssh.port or (int(port) if port else 0)
    )


def transport_ssh(ssh: SshDraft) -> Ssh:
    """As the transport takes it. Raises UsageError where a value is none."""
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
        raise UsageError(f"the ssh options do not fit: {error}") from error


def _own_key() -> str:
    """The operator's own private key. Raises UsageError when there is none."""
    for name in ("id_ed25519", "id_ecdsa", "id_rsa"):
        path = Path.home() / ".ssh" / name
        if path.is_file():
            return str(path)
    raise UsageError("no private key is given, and ~/.ssh holds none. Next: --ssh-key FILE")
