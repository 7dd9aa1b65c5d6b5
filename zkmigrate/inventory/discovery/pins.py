"""Show host keys that are not pinned yet with their fingerprints, and pin them once the operator approves."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from pathlib import Path

from zkmigrate.errors import UsageError
from zkmigrate.hosts.transport.failure import TransportError
from zkmigrate.hosts.transport.ssh import Transport
from zkmigrate.hosts.transport.trust import HostKey, fingerprint
from zkmigrate.inventory.discovery.hosts import HostReader
from zkmigrate.runbook.model.fact import Seen, Unknown

_ROUNDS = 9
"""The rounds needed for all keys: a host behind eight bastions shows its key in the ninth round."""


def prepare(known_hosts: Path) -> None:
    """Create an empty known_hosts file if it is missing."""
    try:
        os.close(os.open(known_hosts, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600))
    except FileExistsError:
        return
    except OSError as error:
        raise UsageError(
            f"cannot create {known_hosts}: {error.strerror}. Next: pass another file with --known-hosts"
        ) from error


def approve(
    hosts: Iterable[str],
    connect: Callable[[], Transport],
    known_hosts: Path,
    say: Callable[[str], None],
    ask: Callable[[str], str] | None,
) -> None:
    """Pin the keys that these hosts show once the operator approves them; skip hosts that do not answer.

    connect: opens a new transport. ask: prompts the operator, or None if a prompt is not possible. Raises
    UsageError if a key is not approved.
    """
    wanted = list(dict.fromkeys(hosts))
    for _ in range(_ROUNDS):
        with connect() as transport:
            found = _unpinned(transport, wanted)
        if not found:
            return
        say("these hosts show keys that are not pinned yet:")
        for key in found:
            say(f"  {key.host}  {fingerprint(key.key)}")
        say(
            "compare each with the output of `ssh-keygen -lf /etc/ssh/ssh_host_ed25519_key.pub` at that "
            "host's console"
        )
        if ask is None:
            raise UsageError(
                f"Cannot prompt for approval of these keys. Next: pin them in {known_hosts} (ssh-keyscan "
                "prints such lines); or run init on a terminal, without --json"
            )
        if ask(f"pin them in {known_hosts}? (yes) ").strip().lower() not in ("y", "yes"):
            raise UsageError("the keys were not approved, so nothing was written")
        with known_hosts.open("a", encoding="ascii") as file:
            file.write("".join(key.line for key in found))


def _unpinned(transport: Transport, hosts: list[str]) -> list[HostKey]:
    def unpinned(host: str) -> Seen[list[HostKey]] | Unknown:
        try:
            return Seen(transport.unpinned(host))
        except TransportError as error:
            return Unknown(error.cause, error.why)

    answers = HostReader(transport).each(hosts, unpinned)
    keys = [key for answer in answers.values() if isinstance(answer, Seen) for key in answer.value]
    return list({key.pin: key for key in keys}.values())
