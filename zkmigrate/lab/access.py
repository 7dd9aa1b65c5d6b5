"""Describe the hosts of an existing lab, run commands on them, and reach their servers."""

from __future__ import annotations

import contextlib
import shutil
import ssl
import subprocess
import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from kazoo.client import KazooClient

from zkmigrate.lab import host as lab_host
from zkmigrate.lab import machines, network, readiness, render, state
from zkmigrate.lab.credentials import OPERATOR, kafka_login_of, login_of
from zkmigrate.lab.failure import LabError
from zkmigrate.lab.kafka_login import KafkaLogin
from zkmigrate.lab.login import Login
from zkmigrate.lab.processes import ProcessId
from zkmigrate.lab.shape import KafkaCluster
from zkmigrate.lab.spec import (
    HostPlan,
    LabSpec,
    Role,
    hosts_of,
    members,
    shape_of,
)
from zkmigrate.lab.state import HostRecord


@dataclass(frozen=True)
class LabHost:
    """A host of a running lab.

    machine: the name of the lab's machine that it runs on. address: its IPv4 address in the lab's network.
    netns: the name of its network namespace. pid: the container's PID 1 as seen from this machine, 0 if the
    host is down.
    """

    name: str
    machine: str
    role: Role
    address: str
    netns: str
    pid: int
    myid: int | None
    rack: str | None
    root: Path
    """The host's root directory as seen from this machine. Files written here appear on the host."""


class LabAccess:
    """Access to an existing lab in ``directory``. The subclass `Lab` also creates and removes labs."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self._record = state.read(directory)

    @property
    def id(self) -> str:
        """The lab's id, which is part of the name of every resource of the lab."""
        return self._record.id

    @property
    def spec(self) -> LabSpec:
        """The spec that the lab was built from."""
        return self._record.spec

    @property
    def record(self) -> state.LabRecord:
        """The content of the lab's lab.json, read again from disk."""
        self._record = state.read(self.directory)
        return self._record

    @property
    def plans(self) -> dict[str, HostPlan]:
        """The hosts as planned, by name."""
        return {plan.name: plan for plan in hosts_of(self.spec)}

    @property
    def hosts(self) -> dict[str, LabHost]:
        """The hosts by name, with their current pids. A host that is down has pid 0."""
        record = self.record
        return {
            name: LabHost(
                name=name,
                machine=plan.machine,
                role=plan.role,
                address=plan.address,
                netns=network.netns(self.id, plan.machine),
                pid=self._pid(record.hosts.get(plan.machine, HostRecord())),
                myid=plan.myid,
                rack=plan.rack,
                root=machines.host_directory(self.directory, plan.machine) / "root",
            )
            for name, plan in self.plans.items()
        }

    @staticmethod
    def _pid(record: HostRecord) -> int:
        return record.leader.pid if record.leader is not None and record.leader.alive() else 0

    def host(self, name: str) -> LabHost:
        """Return one host by name. Raises LabError if there is no host of this name."""
        self._plan(name)
        return self.hosts[name]

    def names(self, role: Role) -> tuple[str, ...]:
        """Return the names of the hosts of one role, in order."""
        return tuple(plan.name for plan in self.plans.values() if plan.role is role)

    def role(self, role: Role) -> tuple[LabHost, ...]:
        """Return the hosts of one role, in order."""
        return tuple(host for host in self.hosts.values() if host.role is role)

    def members(self, part: str) -> tuple[HostPlan, ...]:
        """Return the planned hosts of an ensemble or cluster. Raises LabError for an unknown name."""
        found = members(self.plans.values(), part)
        if not found:
            names = ", ".join(one.name for one in shape_of(self.spec).parts)
            raise LabError(
                f"lab {self.id} has no ensemble or cluster {part}. Its ensembles and clusters: {names}"
            )
        return found

    def cluster(self, named: str | None = None) -> KafkaCluster:
        """Return the Kafka cluster of this name, or the only cluster if no name is given.

        Raises LabError for an unknown name, and if no name is given and there is not exactly one cluster.
        """
        clusters = {cluster.name: cluster for cluster in shape_of(self.spec).clusters}
        if named is None and len(clusters) == 1:
            return next(iter(clusters.values()))
        if named is None or named not in clusters:
            raise LabError(
                f"lab {self.id} needs the name of a cluster. Its clusters: {', '.join(clusters) or 'none'}"
            )
        return clusters[named]

    @property
    def user(self) -> str:
        """The unprivileged user for ssh logins on every host."""
        return render.OPS_USER

    @property
    def private_key(self) -> Path:
        """The file of the operator's private ssh key."""
        return machines.operator_key(self.directory)

    @property
    def known_hosts(self) -> Path:
        """The file with the host keys of all hosts, by name and by address."""
        return machines.known_hosts_file(self.directory)

    @property
    def operator_netns(self) -> str:
        """The network namespace that the tool under test runs in."""
        return network.netns(self.id, network.OPERATOR)

    @property
    def bridge_netns(self) -> str:
        """The network namespace of the bridge. Its ports are named after the machines and `op`."""
        return network.netns(self.id, network.BRIDGE)

    # -- run commands in it

    def exec(
        self,
        host: str,
        argv: Sequence[str],
        *,
        stdin: str | None = None,
        timeout_s: float = 60,
        check: bool = True,
    ) -> subprocess.CompletedProcess[str]:
        """Run a command as root inside a host, without ssh, for setup and checks.

        stdin: text for the command's standard input. Raises LabError with the command's output if it does not
        end within `timeout_s` seconds, or, with `check`, if it exits with another code than 0.
        """
        command = lab_host.exec_argv(self._leader(host), argv)
        try:
            done = subprocess.run(
                command, input=stdin, capture_output=True, text=True, timeout=timeout_s, check=False
            )
        except subprocess.TimeoutExpired as late:
            raise LabError(f"{host}: {' '.join(argv)} did not end within {timeout_s:g} s") from late
        if check and done.returncode != 0:
            output = (done.stderr.strip() or done.stdout.strip())[-2000:]
            raise LabError(f"{host}: {' '.join(argv)} ended with exit code {done.returncode}: {output}")
        return done

    def exec_command(self, host: str, argv: Sequence[str]) -> list[str]:
        """Return the command for this machine that runs `argv` as root inside a host."""
        return lab_host.exec_argv(self._leader(host), argv)

    @contextlib.contextmanager
    def operator(self) -> Iterator[None]:
        """Move the calling thread into the operator's network namespace for the block.

        Sockets and threads created inside the block stay in that namespace.
        """
        with network.inside(self.operator_netns):
            yield

    def operator_command(self, argv: Sequence[str]) -> list[str]:
        """Return the command that runs `argv` in the operator's network namespace."""
        return ["ip", "netns", "exec", self.operator_netns, *argv]

    def run_module(self, module: str, *words: str, timeout_s: float) -> str:
        """Run a Python module in the operator's network and return its standard output.

        Raises LabError if the module exits with another code than 0.
        """
        argv = self.operator_command([sys.executable, "-m", module, *words])
        done = subprocess.run(argv, capture_output=True, text=True, timeout=timeout_s, check=False)
        if done.returncode:
            raise LabError(f"{module} {' '.join(words)} failed: {done.stdout}{done.stderr}")
        return done.stdout

    def client_command(self, argv: Sequence[str]) -> list[str]:
        """Return the command that runs `argv` in the network of host client1, with this machine's files."""
        return ["ip", "netns", "exec", network.netns(self.id, f"{Role.CLIENT}1"), *argv]

    def ssh_command(self, host: str, argv: Sequence[str] = ()) -> list[str]:
        """Return the command of a real ssh login to a host, from the operator's network namespace.

        The login uses the unprivileged user. Raises LabError if the program ssh is not installed.
        """
        if shutil.which("ssh") is None:
            raise LabError("the program ssh is not on this machine; install the package openssh-client")
        options = [
            "-i", str(self.private_key), "-o", f"UserKnownHostsFile={self.known_hosts}",
            "-o", "StrictHostKeyChecking=yes", "-o", "IdentitiesOnly=yes",
            "-o", "GlobalKnownHostsFile=/dev/null", "-F", "none",
        ]  # fmt: skip
        return self.operator_command(["ssh", *options, f"{self.user}@{self._plan(host).address}", *argv])

    @contextlib.contextmanager
    def zookeeper(self, ensemble: str = Role.SOURCE, timeout_s: float = 30) -> Iterator[KazooClient]:
        """Yield a kazoo client, connected from the operator's namespace to one ensemble, without chroot.

        timeout_s: the time limit for the connection in seconds.
        """
        port = self.spec.client_port
        servers = ",".join(f"{plan.address}:{port}" for plan in self.members(ensemble))
        with self.operator():
            client = self.login().client(servers, timeout=10)
            try:
                client.start(timeout=timeout_s)
                yield client
            finally:
                client.stop()
                client.close()

    def zookeeper_modes(self, hosts: Iterable[str]) -> dict[str, str | None]:
        """Return the mode that each host's ZooKeeper reports, by host, or None while it does not serve."""
        with self.operator():
            answers = {name: self.word(self._plan(name).address, "srvr") for name in hosts}
        return {name: readiness.server_mode(answer) for name, answer in answers.items()}

    def login(self, user: str = OPERATOR) -> Login:
        """Return how a user logs in to this lab's ZooKeeper."""
        return login_of(machines.credentials_directory(self.directory), self.spec, user)

    def kafka_login(self, user: str = OPERATOR) -> KafkaLogin:
        """Return how a user logs in to this lab's Kafka clusters."""
        return kafka_login_of(machines.credentials_directory(self.directory), self.spec, user)

    def word(self, address: str, word: str, timeout_s: float = 2.0) -> str | None:
        """Return a ZooKeeper server's answer to a four-letter word; None when it does not answer.

        Call it in the operator's network namespace.
        """
        return readiness.four_letter_word(address, word, self.spec.client_port, timeout_s, self._tls)

    @cached_property
    def _tls(self) -> ssl.SSLContext | None:
        return self.login().credentials().context()

    def _plan(self, host: str) -> HostPlan:
        if host not in self.plans:
            raise LabError(f"lab {self.id} has no host {host!r}. Its hosts: {', '.join(self.plans)}")
        return self.plans[host]

    def _leader(self, host: str) -> ProcessId:
        machine = self._plan(host).machine
        leader = self._record.hosts.get(machine, HostRecord()).leader
        if leader is None or not leader.alive():
            leader = self.record.hosts.get(machine, HostRecord()).leader
        if leader is None or not leader.alive():
            raise LabError(f"{host} of lab {self.id} is down")
        return leader
