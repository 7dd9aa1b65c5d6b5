"""Search everything that a move writes or starts for the secrets of a secured lab.

A secret is known by its name, such as ``password of raw``; nothing here shows a secret itself. Each is
searched as it is, in hex, and in base64 wherever it begins in what was encoded.
"""

from __future__ import annotations

import base64
import binascii
import contextlib
import json
import os
import re
import threading
import time
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from kazoo.security import make_digest_acl_credential

from zkmigrate.hosts.zkm_host import STATE_DIR
from zkmigrate.lab import machines, render, secured
from zkmigrate.lab.access import LabAccess, LabHost
from zkmigrate.lab.credentials import RAW, STORE, SUPER, TENANT, TOKENS
from zkmigrate.lab.judge.claims import Claim
from zkmigrate.lab.judge.secrets import KINDS, secrets_claim
from zkmigrate.lab.security import FULL, Kind

OUTPUT, DIRECTORY, HOSTS, LOGS, ARGUMENTS, ENVIRONMENTS, CORES = KINDS
FEWEST = 20
"""The least number of secrets in a lab with every kind of security."""
PROC = Path("/proc")
IN_FLAGS = f"digest of {SUPER}"
"""The secret that ZooKeeper reads from a JVM's flags: each server and its shell show it to this machine."""
_UNITS_OF_SERVERS = frozenset({"zookeeper.service", "kafka.service"})
"""The units whose logs the servers alone write."""
_PROCESSES_S, _COPIES_S = 0.5, 10.0
_OF_BROKERS = {"ssl.keystore.password": STORE, "delegation.token.master.key": TOKENS}
"""The secrets in server.properties, by key."""
_FOLDERS_OF_SERVERS = ("var/lib/zookeeper", "var/lib/kafka", "var/log/journal")
"""Directories of hosts that only the servers and journald write."""
_LINE_OF_KEY = {"PRIVATE KEY": 1, "OPENSSH PRIVATE KEY": 3}
"""The line of a private key's text, counted from 0, that has more of the secret than any other."""
_CORE_FOLDERS = ("var/lib/systemd/coredump", "var/crash")


def forms(secret: str) -> tuple[bytes, ...]:
    """Return how a secret may be written: the text, hex, and base64 after 0, 1 or 2 other bytes.

    If the text is base64 itself, what it encodes is added in the same forms.
    """
    values = [secret.encode()]
    with contextlib.suppress(binascii.Error):
        values.append(base64.b64decode(secret, validate=True))
    found = []
    for value in values:
        found += [value, value.hex().encode()]
        for shift in range(3):
            coded = base64.b64encode(bytes(shift) + value)
            found.append(coded[-(-shift * 8 // 6) : (shift + len(value)) * 8 // 6])
    return tuple(found)


def secrets_of(lab: LabAccess) -> dict[str, str]:
    """Return the secrets of a lab by name: passwords, a line of each private key, and stored hashes."""
    keys = machines.credentials_directory(lab.directory)
    found = {f"password of {path.stem}": path.read_text().strip() for path in keys.glob("*.password")}
    private = {f"key of {path.stem}": path.read_text() for path in keys.glob("*.key")}
    private["ssh key of the operator"] = lab.private_key.read_text()
    for host in lab.hosts.values():
        for path in host.root.glob(f"etc/*/security/{secured.JAAS}"):
            pairs = re.findall(r'\buser_(\w+)="([^"]+)"', path.read_text())
            found |= {f"password of {user}": password for user, password in pairs}
        for path in host.root.glob(render.SERVER_PROPERTIES.lstrip("/")):
            for line in path.read_text().splitlines():
                key, _, secret = line.partition("=")
                if key in _OF_BROKERS:
                    found[f"password of {_OF_BROKERS[key]}"] = secret
        for path in host.root.glob(f"etc/*/security/{secured.STORE}"):
            private[f"key of {host.name}"] = path.read_text()
    for name, text in private.items():
        if match := re.search(r"-----BEGIN ((?:OPENSSH )?PRIVATE KEY)-----\n(.*?)-----END", text, re.DOTALL):
            found[name] = match[2].splitlines()[_LINE_OF_KEY[match[1]]]
    if Kind.ACL in lab.spec.security:
        for user in (RAW, TENANT, SUPER):
            digest = make_digest_acl_credential(user, found[f"password of {user}"])
            found[f"digest of {user}"] = digest.partition(":")[2]
    return found | _scram(lab)


def _scram(lab: LabAccess) -> dict[str, str]:
    """Return what ZooKeeper stores of the users of Kafka that log in with SCRAM."""
    if Kind.KAFKA_SASL not in lab.spec.security:
        return {}
    found, users = {}, f"{lab.spec.chroot.rstrip('/')}/config/users"
    with lab.zookeeper() as client:
        for user in client.get_children(users):
            config = json.loads(client.get(f"{users}/{user}")[0])["config"]
            for pair in ",".join(config.values()).split(","):
                key, _, value = pair.partition("=")
                if key in ("stored_key", "server_key"):
                    found[f"SCRAM {key} of {user}"] = value
    return found


class Search:
    """A search for secrets, and its result so far.

    secrets: by name. searched: the number of different texts by kind of place. found: pairs of a place and
    the name of a secret in it, without those of ``before``.
    """

    def __init__(self, secrets: Mapping[str, str]) -> None:
        self.secrets = {name: forms(secret) for name, secret in secrets.items()}
        self.searched = dict.fromkeys(KINDS, 0)
        self.found: set[tuple[str, str]] = set()
        self.before: set[tuple[str, str]] = set()
        self._seen: set[tuple[str, str, object]] = set()
        self._began = time.time()

    def text(self, kind: str, place: str, content: bytes) -> None:
        """Search one text and its place. place: where the text was, for the result."""
        self.searched[kind] += 1
        told = place if not self._in(os.fsencode(place)) else f"{kind}, in a name"
        names = set(self._in(os.fsencode(place) + b" " + content))
        names -= {IN_FLAGS} if kind in (ARGUMENTS, ENVIRONMENTS) else set()
        self.found |= {(told, name) for name in names} - self.before

    def _in(self, content: bytes) -> list[str]:
        """Return the names of the secrets in a text."""
        return [name for name, written in self.secrets.items() if any(one in content for one in written)]

    def file(self, kind: str, place: str, path: Path) -> None:
        """Search a file, unless it is unchanged since it was searched, or has gone."""
        with contextlib.suppress(OSError):
            stat = path.lstat()
            state = (kind, place, (stat.st_ino, stat.st_size, stat.st_mtime_ns))
            if path.is_file() and not path.is_symlink() and state not in self._seen:
                self._seen.add(state)
                self.text(kind, place, path.read_bytes())

    def folder(self, kind: str, folder: Path, named: str = "", without: Iterable[str] = ()) -> None:
        """Search all files below a folder. named: comes before the path in the result.

        without: paths below it that are left out.
        """
        for parent, folders, files in os.walk(folder):
            below = Path(parent).relative_to(folder)
            folders[:] = [one for one in folders if str(below / one) not in without]
            for one in files:
                self.file(kind, f"{named}{below / one}", Path(parent, one))

    def processes(self) -> None:
        """Search the arguments and the environment of every process of this machine, as they are now."""
        for process in PROC.glob("[0-9]*"):
            with contextlib.suppress(OSError):  # it has ended
                words = (process / "cmdline").read_bytes()
                program = Path(os.fsdecode(words.partition(b"\0")[0])).name
                for kind, text in ((ARGUMENTS, words), (ENVIRONMENTS, (process / "environ").read_bytes())):
                    state = (kind, process.name, text)
                    if text and state not in self._seen:
                        self._seen.add(state)
                        self.text(kind, f"{kind} of {program}", text)

    def copies(self, lab: LabAccess) -> None:
        """Search what is on hosts now and may be gone later: zkm-host's records, ``/run`` and ``/tmp``."""
        for host in _machines(lab):
            self.folder(HOSTS, host.root / STATE_DIR.lstrip("/"), f"{host.name}: {STATE_DIR}/")
            for name in ("run", "tmp"):
                self.folder(HOSTS, PROC / f"{host.pid}/root/{name}", f"{host.name}: /{name}/")

    def hosts(self, lab: LabAccess) -> None:
        """Search all files of hosts except the servers' data, and the hosts' logs."""
        self.copies(lab)
        for host in _machines(lab):
            self.folder(HOSTS, host.root.parent / "upper", f"{host.name}: /", _FOLDERS_OF_SERVERS)
            for unit, said in _logged(lab, host.name).items():
                self.text(LOGS, f"{host.name}: log of {unit}", said)
            self.cores(host.root, f"{host.name}: /")

    def cores(self, root: Path = Path("/"), named: str = "/") -> None:
        """Search the core dumps written since the search began: here, and where a machine keeps them."""
        paths = [path for folder in _CORE_FOLDERS for path in (root / folder).glob("*")]
        paths += [path for pattern in ("core", "core.*") for path in Path.cwd().glob(pattern)]
        for path in paths:
            if path.is_file() and path.stat().st_mtime >= self._began:
                place = f"{named}{path.relative_to(root)}" if path.is_relative_to(root) else str(path)
                self.file(CORES, place, path)

    @contextlib.contextmanager
    def during(self, lab: LabAccess) -> Iterator[None]:
        """Search processes and hosts' copies throughout the block, and hosts completely at its end.

        A place that has a secret before the block is the lab's own, and does not count.
        """
        self.hosts(lab)
        self.processes()
        self.before, self.found = self.found, set()
        self.searched = dict.fromkeys(KINDS, 0)
        over = threading.Event()

        def sample() -> None:
            copied = 0.0
            while not over.wait(_PROCESSES_S):
                self.processes()
                if time.monotonic() - copied >= _COPIES_S:
                    self.copies(lab)
                    copied = time.monotonic()

        with ThreadPoolExecutor(1) as pool:
            sampling = pool.submit(sample)
            try:
                yield
            finally:
                over.set()
        sampling.result()
        self.hosts(lab)

    def claim(self, lab: LabAccess) -> Claim:
        """Return the claim that no secret was written, after a last look at this machine."""
        self.cores()
        fewest = FEWEST if set(FULL) <= set(lab.spec.security) else 1
        return secrets_claim(len(self.secrets), fewest, len(self.before), self.searched, self.found)


def _logged(lab: LabAccess, host: str) -> dict[str, bytes]:
    """Return what is in journald's log of a host, by the unit that said it, without the servers' own."""
    fields = "--output-fields=MESSAGE,_SYSTEMD_UNIT"
    said = lab.exec(host, ["journalctl", "--no-pager", "--all", "-o", "json", fields]).stdout
    found: dict[str, list[bytes]] = {}
    for entry in map(json.loads, said.splitlines()):
        message: Any = entry.get("MESSAGE") or ""
        unit = entry.get("_SYSTEMD_UNIT", "the system")
        if unit in _UNITS_OF_SERVERS:
            continue
        lines = found.setdefault(unit, [])
        # A message that is not printable text is a list of its bytes.
        coded = isinstance(message, list) and all(isinstance(one, int) for one in message)
        lines.append(bytes(message) if coded else str(message).encode())
    return {unit: b"\n".join(lines) for unit, lines in found.items()}


def _machines(lab: LabAccess) -> list[LabHost]:
    """Return one host of each machine that is on."""
    return [*{host.machine: host for host in lab.hosts.values() if host.pid}.values()]
