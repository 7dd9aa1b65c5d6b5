"""Prepare and boot the hosts of one lab: their software, disks, keys and files."""

from __future__ import annotations

import ctypes
import os
from collections import ChainMap
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from zkmigrate.cluster.removal.rules import OWN_POLICY, POLICY
from zkmigrate.lab import between, control_groups, provision, render, state
from zkmigrate.lab import host as lab_host
from zkmigrate.lab.credentials import Credentials
from zkmigrate.lab.failure import LabError
from zkmigrate.lab.security import Kind
from zkmigrate.lab.shape import Ensemble
from zkmigrate.lab.spec import JAVA_11_KAFKA, HostPlan, LabSpec, Role, machines_of
from zkmigrate.lab.state import HostRecord
from zkmigrate.lab.wait import Progress

BOOT_S = 180
"""The longest time in seconds that systemd-nspawn may take to start a container."""
WEIGHTS: Mapping[Role, int] = {Role.DEST: 3}
"""The shares of the processors by role, 1 by default. In the window everything waits for dest."""
INOTIFY_PER_HOST = 4
"""The number of inotify instances that a host keeps open: three by systemd, one by dbus."""


@dataclass(frozen=True)
class Software:
    """The software of a lab's hosts.

    rootfs: the clean root file system. bound: for each machine of the lab, the directories of this machine to
    bind into it, by path inside.
    """

    rootfs: Path
    bound: Mapping[str, Mapping[str, Path]]


def fetch(spec: LabSpec, progress: Progress) -> Software:
    """Fetch the missing software for the hosts of this spec, and return where all software is.

    Raises provision.ProvisionError.
    """

    def binds(plan: HostPlan) -> dict[str, Path]:
        part = plan.part
        if part is None:
            return between.program() if plan.role in between.ROLES else {}
        if isinstance(part, Ensemble):
            jars = {render.ZOOKEEPER_JARS: provision.zookeeper_classpath(part.version, progress)[0].parent}
            if Kind.TLS in spec.security:
                jars[render.JETTY_JARS] = provision.jetty_classpath(progress)[0].parent
            return jars
        jars = {render.KAFKA_JARS: provision.kafka_classpath(part.version, progress)[0].parent}
        if spec.broker_options.get(POLICY) == OWN_POLICY:
            jars[render.POLICY_JARS] = provision.policy_jar(progress).parent
        return jars | ({render.JAVA_11: provision.java11_home()} if part.version in JAVA_11_KAFKA else {})

    rootfs = provision.ensure_rootfs(progress, spec.debian)
    machines = machines_of(spec).items()
    return Software(rootfs, {name: dict(ChainMap(*map(binds, hosts))) for name, hosts in machines})


def check_inotify(hosts: int) -> None:
    """Raise LabError if this account cannot open the inotify instances that this many hosts need.

    Linux counts the instances of all labs of a user together. A systemd that gets none starts no sshd.
    """
    kernel = ctypes.CDLL(None)
    needed = hosts * INOTIFY_PER_HOST
    opened: list[int] = []
    try:
        while len(opened) < needed and (one := kernel.inotify_init1(os.O_CLOEXEC)) >= 0:
            opened.append(one)
        if len(opened) < needed:
            raise LabError(
                f"this machine has {len(opened)} inotify instances left for this account, and {hosts} hosts "
                f"need {needed}. Take down another lab (`python -m zkmigrate.lab down`), or raise the limit: "
                "sysctl fs.inotify.max_user_instances=1024"
            )
    finally:
        for one in opened:
            os.close(one)


def host_directory(directory: Path, machine: str) -> Path:
    """Return the directory of one machine of a lab."""
    return directory / "hosts" / machine


def operator_key(directory: Path) -> Path:
    """Return the file of the operator's private ssh key."""
    return directory / "keys" / "operator"


def credentials_directory(directory: Path) -> Path:
    """Return the directory with the certificates and passwords of the operator and the load, if any."""
    return directory / "keys" / "clients"


def known_hosts_file(directory: Path) -> Path:
    """Return the known_hosts file of the lab, with the host keys of all hosts."""
    return directory / "keys" / "known_hosts"


@dataclass(frozen=True)
class KeyPair:
    """An ed25519 key: private in OpenSSH's own text form, public as `ssh-ed25519 BASE64`."""

    private: str
    public: str

    @classmethod
    def generate(cls) -> KeyPair:
        """Generate a new key."""
        key = Ed25519PrivateKey.generate()
        private = key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.OpenSSH, serialization.NoEncryption()
        )
        public = key.public_key().public_bytes(
            serialization.Encoding.OpenSSH, serialization.PublicFormat.OpenSSH
        )
        return cls(private.decode(), public.decode())


def known_hosts(keys: Iterable[tuple[str, str, str]]) -> str:
    """Return the known_hosts text (sshd(8)) for (host name, address, public key) triples."""
    return "".join(f"{name},{address} {public}\n" for name, address, public in keys)


def prepare(directory: Path, spec: LabSpec, software: Software) -> None:
    """Mount the disk of every host, generate the keys and write all files.

    The hosts' keys are known before their boot, so no key is trusted on first use.
    """
    operator = KeyPair.generate()
    operator_key(directory).parent.mkdir(mode=0o700)
    operator_key(directory).touch(0o600)
    operator_key(directory).write_text(operator.private)
    credentials = Credentials.generate(directory.name, spec) if spec.security else None
    if credentials is not None:
        credentials.write(credentials_directory(directory))
    known = []
    for name, plans in machines_of(spec).items():
        plan, key = plans[0], KeyPair.generate()
        known += [(host.name, host.address, key.public) for host in plans]
        own = host_directory(directory, name)
        root = lab_host.mount_root(own, software.rootfs)
        for number, (path, megabytes) in enumerate(render.data_disks(spec, plan).items(), 1):
            lab_host.attach_disk(own / f"disk{number}.img", root / path.lstrip("/"), megabytes)
        files = render.host_files(spec, plan, key.private, operator.public, credentials)
        files = (*files, *between.files(spec, plan))
        lab_host.write_files(root, files, render.account_lines(plan))
        binds = "".join(f"{inside}\t{path}\n" for inside, path in software.bound[name].items())
        _binds_file(directory, name).write_text(binds)
    known_hosts_file(directory).write_text(known_hosts(known))


def _binds_file(directory: Path, machine: str) -> Path:
    """Return the file that lists the directories to bind at every boot.

    Each line is a path inside the host, a tab, and a path on this machine.
    """
    return host_directory(directory, machine) / "binds"


def boot(directory: Path, machine: str) -> None:
    """Boot a machine that is off, and record its processes as they appear."""
    own = host_directory(directory, machine)
    pairs = [line.split("\t") for line in _binds_file(directory, machine).read_text().splitlines()]
    read_only = {inside: Path(path) for inside, path in pairs}
    record = state.read(directory)
    plan, *others = machines_of(record.spec)[machine]
    weight = sum(WEIGHTS.get(host.role, 1) for host in (plan, *others))
    supervisor = lab_host.start(record.id, machine, own, read_only, weight)
    state.update(directory, lambda record: record.with_host(machine, HostRecord(supervisor)))
    if plan.broker is not None and plan.broker.disk_mb_s is not None:
        disks = [own / "root" / path.lstrip("/") for path in render.data_disks(record.spec, plan)]
        control_groups.limit_disks(record.id, machine, disks, plan.broker.disk_mb_s)
    leader = lab_host.wait_for_leader(machine, own, supervisor, BOOT_S)
    state.update(directory, lambda record: record.with_host(machine, HostRecord(supervisor, leader)))
