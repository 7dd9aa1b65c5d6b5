"""A running lab: create it, inspect it, run commands in it, and take it down."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import sys
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from kazoo.client import KazooClient
from kazoo.exceptions import KazooException
from kazoo.retry import KazooRetry

from zkmigrate.lab import between, machines, network, readiness, render, service, state, teardown
from zkmigrate.lab import host as lab_host
from zkmigrate.lab.failure import LabError
from zkmigrate.lab.processes import ProcessId
from zkmigrate.lab.shape import KafkaCluster
from zkmigrate.lab.spec import (
    CLIENT_PORT,
    MOST_NODE_BYTES,
    HostPlan,
    LabSpec,
    Role,
    hosts_of,
    members,
    shape_of,
)
from zkmigrate.lab.state import HostRecord
from zkmigrate.lab.wait import Progress, silent, wait_until

SSH_S, QUORUM_S, BROKERS_S, GATEWAYS_S = 180, 180, 360, 120
"""Deadlines of `Lab.up` in seconds, several times what a quarter of two loaded cores needs."""
PLANT_TRIES = 30
"""How many times to try one batch of filler znodes, a few seconds apart, while source has no quorum."""


@dataclass(frozen=True)
class LabHost:
    """A host of a running lab.

    pid: the container's PID 1 as seen from this machine, 0 if the host is down.
    """

    name: str
    role: Role
    address: str
    netns: str
    pid: int
    myid: int | None
    rack: str | None
    root: Path
    """The host's root directory as seen from this machine. The host sees what is written here."""


class Lab:
    """A lab that exists: `Lab.up` creates one, `Lab.load` opens an existing one, `down` removes it.

    As a context manager it is taken down at the end.
    """

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self._record = state.read(directory)

    # -- create and load

    @classmethod
    def up(cls, spec: LabSpec, progress: Progress = silent, *, kept: bool = False) -> Lab:
        """Build a lab and return it when all of it is ready.

        If anything fails, everything is taken down again. Labs whose owner has died are removed first. Unless
        `kept`, this process owns the lab: the next `up` after its death removes it. Raises LabError or
        provision.ProvisionError.
        """
        needs_root()
        software = machines.fetch(spec, progress)
        sweep(progress)
        lab = cls(state.create(spec, kept=kept))
        progress(f"lab {lab.id}: {lab.directory}")
        try:
            lab._build(software, progress)
        except BaseException:
            progress(f"lab {lab.id}: taking down what was built")
            lab.down()
            raise
        return lab

    @classmethod
    def load(cls, named: str | Path) -> Lab:
        """Open the lab with this id, or the lab in this directory if the path is absolute."""
        directory = state.base_directory() / f"{state.PREFIX}{named}"
        path = Path(named)
        return cls(path if path.is_absolute() else directory)

    # -- properties

    @property
    def id(self) -> str:
        """The lab's id, which is part of the name of everything the lab owns."""
        return self._record.id

    @property
    def spec(self) -> LabSpec:
        """The spec that the lab was built from."""
        return self._record.spec

    @property
    def record(self) -> state.LabRecord:
        """The lab's record, read from disk."""
        self._record = state.read(self.directory)
        return self._record

    @property
    def plans(self) -> dict[str, HostPlan]:
        """The hosts as planned, by name."""
        return {plan.name: plan for plan in hosts_of(self.spec)}

    @property
    def hosts(self) -> dict[str, LabHost]:
        """The hosts by name, with their current processes. A host that is down has pid 0."""
        record = self.record
        return {
            name: LabHost(
                name=name,
                role=plan.role,
                address=plan.address,
                netns=network.netns(self.id, name),
                pid=self._pid(record.hosts.get(name, HostRecord())),
                myid=plan.myid,
                rack=plan.rack,
                root=machines.host_directory(self.directory, name) / "root",
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
            raise LabError(f"lab {self.id} has no ensemble or cluster {part}; it has {names}")
        return found

    def cluster(self, named: str | None = None) -> KafkaCluster:
        """Return the Kafka cluster of this name, or the only cluster if no name is given.

        Raises LabError for an unknown name, and if no name is given and there is not exactly one cluster.
        """
        clusters = {cluster.name: cluster for cluster in shape_of(self.spec).clusters}
        if named is None and len(clusters) == 1:
            return next(iter(clusters.values()))
        if named is None or named not in clusters:
            raise LabError(f"which cluster of lab {self.id}? There are: {', '.join(clusters) or 'none'}")
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
        """The network namespace of the bridge. Each port is named after its host; the operator's is `op`."""
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
        """Run a command as root inside a host, without ssh: for setup and for checks.

        Raises LabError after `timeout_s` seconds, and with `check` also for an exit code other than 0, with
        the output.
        """
        command = lab_host.exec_argv(self._leader(host), argv)
        try:
            done = subprocess.run(
                command, input=stdin, capture_output=True, text=True, timeout=timeout_s, check=False
            )
        except subprocess.TimeoutExpired as late:
            raise LabError(f"{host}: {' '.join(argv)}: no end within {timeout_s:g} s") from late
        if check and done.returncode != 0:
            output = (done.stderr.strip() or done.stdout.strip())[-2000:]
            raise LabError(f"{host}: {' '.join(argv)}: exit {done.returncode}: {output}")
        return done

    def exec_command(self, host: str, argv: Sequence[str]) -> list[str]:
        """Return the command for this machine that runs `argv` as root inside a host."""
        return lab_host.exec_argv(self._leader(host), argv)

    @contextlib.contextmanager
    def operator(self) -> Iterator[None]:
        """Move the calling thread into the operator's network namespace, and back at the end.

        Sockets and threads created inside stay there.
        """
        with network.inside(self.operator_netns):
            yield

    def operator_command(self, argv: Sequence[str]) -> list[str]:
        """Return the command that runs `argv` in the operator's network namespace."""
        return ["ip", "netns", "exec", self.operator_netns, *argv]

    def run_module(self, module: str, *words: str, timeout_s: float) -> str:
        """Run a Python module in the operator's network and return its standard output.

        Raises LabError if it fails.
        """
        argv = self.operator_command([sys.executable, "-m", module, *words])
        done = subprocess.run(argv, capture_output=True, text=True, timeout=timeout_s, check=False)
        if done.returncode:
            raise LabError(f"{module} {' '.join(words)} failed: {done.stdout}{done.stderr}")
        return done.stdout

    def client_command(self, argv: Sequence[str]) -> list[str]:
        """Return the command that runs `argv` in client1's network namespace, with this machine's files."""
        return ["ip", "netns", "exec", network.netns(self.id, f"{Role.CLIENT}1"), *argv]

    def ssh_command(self, host: str, argv: Sequence[str] = ()) -> list[str]:
        """Return the command of a real ssh login to a host, from the operator's namespace.

        The login is that of the unprivileged user. Raises LabError if the program ssh is not installed.
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
        """Connect a kazoo client from the operator's namespace to one ensemble, without chroot."""
        servers = ",".join(f"{plan.address}:{CLIENT_PORT}" for plan in self.members(ensemble))
        with self.operator():
            client = KazooClient(hosts=servers, timeout=10)
            try:
                client.start(timeout=timeout_s)
                yield client
            finally:
                client.stop()
                client.close()

    def zookeeper_modes(self, hosts: Iterable[str]) -> dict[str, str | None]:
        """Return the mode that each host's ZooKeeper reports, by host, or None while it does not serve."""
        with self.operator():
            return {name: readiness.mode_of(self._plan(name).address) for name in hosts}

    def _plan(self, host: str) -> HostPlan:
        if host not in self.plans:
            raise LabError(f"no host {host!r} in lab {self.id}; hosts: {', '.join(self.plans)}")
        return self.plans[host]

    def _leader(self, host: str) -> ProcessId:
        self._plan(host)
        leader = self._record.hosts.get(host, HostRecord()).leader
        if leader is None or not leader.alive():
            leader = self.record.hosts.get(host, HostRecord()).leader
        if leader is None or not leader.alive():
            raise LabError(f"{host} of lab {self.id} is down")
        return leader

    # -- build

    def _build(self, software: machines.Software, progress: Progress) -> None:
        plans = tuple(self.plans.values())
        machines.check_inotify(len(plans))
        network.create(self.id, self.spec)
        progress(f"network: {len(plans)} hosts, operator and bridge in namespaces of their own")
        machines.prepare(self.directory, self.spec, software)
        progress("disks: an overlay for each host, keys and configs written")
        with ThreadPoolExecutor(4) as pool:
            for done in [pool.submit(machines.boot, self.directory, plan.name) for plan in plans]:
                done.result()
        progress("boot: systemd runs on all hosts")
        with self.operator():
            wait_until("ssh answers", readiness.ssh_answers(plans), SSH_S)
        progress("ssh: answers on all hosts")
        shape = shape_of(self.spec)
        for ensemble in shape.ensembles:
            if not ensemble.empty:
                self.wait_for_quorum(ensemble.name)
                progress(f"ZooKeeper {ensemble.version}: {ensemble.name} has a quorum")
        for cluster in shape.clusters:
            if cluster.ensemble is None:
                self._format_storage(cluster)
            else:
                with self.zookeeper(cluster.ensemble) as client:
                    client.ensure_path(cluster.chroot)
        self._plant_tree(progress)
        self.start_brokers()
        self.wait_for_brokers()
        for cluster in shape.clusters:
            of = "" if self.spec.shape is None else f" of {cluster.name}"
            progress(f"Kafka {cluster.version}: all brokers{of} registered, every ISR full")
        self._start_gateways(progress)
        self._record = state.update(self.directory, lambda record: replace(record, ready=True))

    def _format_storage(self, cluster: KafkaCluster) -> None:
        """Format the storage of every node of a KRaft cluster, all at once."""
        argv = render.format_command(cluster.version, render.kraft_cluster_id(self.id, cluster.name))
        account = ["-p", "User=kafka", "-p", "Group=kafka", "-p", "UMask=0027"]
        # A JVM that the host's systemd did not start may fail when it looks for its own cgroup.
        formatting = ["systemd-run", "--quiet", "--collect", "--wait", "--pipe", *account, *argv]
        with ThreadPoolExecutor(4) as pool:
            nodes = [plan.name for plan in self.members(cluster.name)]
            list(pool.map(lambda node: self.exec(node, formatting, timeout_s=BROKERS_S), nodes))

    def _plant_tree(self, progress: Progress) -> None:
        """Create the filler znodes, which no client uses, on the first ensemble that serves."""
        serving = [ensemble.name for ensemble in shape_of(self.spec).ensembles if not ensemble.empty]
        if not self.spec.tree_size or not serving:
            return
        with self.zookeeper(serving[0]) as client:
            client.ensure_path("/filler")
            size = self.spec.tree_node_bytes
            at_once = max(1, min(500, MOST_NODE_BYTES // size))
            # With a large tree, source's servers may write snapshots meanwhile and lose their quorum.
            patiently = KazooRetry(max_tries=PLANT_TRIES, delay=1.0, backoff=1, max_delay=5.0)
            for first in range(0, self.spec.tree_size, at_once):
                numbers = range(first, min(first + at_once, self.spec.tree_size))
                try:
                    patiently(_plant, client, [f"/filler/{number:07d}" for number in numbers], size)
                except KazooException as error:
                    raise LabError(f"filler znodes could not be made: {error!r}") from error
            progress(f"tree: {self.spec.tree_size} filler znodes of {size} bytes")

    # -- servers and hosts

    def start_brokers(self) -> None:
        """Start Kafka on every controller and broker host.

        Hosts with units also start it at every boot.
        """
        enable = ["systemctl", "enable", "--now", "--quiet", "kafka.service"]
        for role in service.KAFKA:
            start = service.control_command(self.spec, role, "start")
            for host in self.names(role):
                self.exec(host, start if service.has_script(self.spec, role) else enable)

    def wait_until_unregistered(self, cluster: str, broker: int, deadline_s: float) -> None:
        """Wait until ZooKeeper has removed the registration of a broker that is down.

        Its session may outlive the broker, even after a clean stop. A broker that starts before that may end
        itself. With KRaft there is nothing to wait for.
        """
        own = self.cluster(cluster)
        if own.ensemble is None:
            return
        path = f"{own.chroot}/brokers/ids/{broker}"
        with self.zookeeper(own.ensemble) as client:

            def missing() -> str | None:
                return f"the end of {path}" if client.exists(path) else None

            wait_until(f"the old session of broker {broker}", missing, deadline_s)

    def wait_for_brokers(self, ensemble: str | None = None, deadline_s: float = BROKERS_S) -> None:
        """Wait until every broker is registered and every ISR is full.

        ensemble: the ensemble to look at instead of the one that each cluster was built with.
        """
        for cluster in shape_of(self.spec).clusters:
            brokers = [plan for plan in self.members(cluster.name) if plan.role is Role.BROKER]
            if cluster.ensemble is None:
                with self.operator():
                    wait_until("brokers ready", readiness.kraft_ready(brokers), deadline_s)
                continue
            started_s = {broker.name: self._kafka_started_s(broker.name) for broker in brokers}
            with self.zookeeper(ensemble or cluster.ensemble) as client:
                ready = readiness.brokers_ready(client, cluster.chroot, brokers, started_s)
                wait_until("brokers ready", ready, deadline_s)

    def _start_gateways(self, progress: Progress) -> None:
        """Start the gateways now and at every boot.

        The brokers must be up before, because a gateway asks them for their versions.
        """
        gateways = [plan for plan in self.plans.values() if plan.role is Role.GATEWAY]
        for plan in gateways:
            unit = service.name_of(Role.GATEWAY)
            self.exec(plan.name, ["systemctl", "enable", "--now", "--quiet", unit])
        if gateways:
            with self.operator():
                wait_until("gateways ready", readiness.ports_open(between.ports(self.spec)), GATEWAYS_S)
            progress("gateways: serve, all clients on the first cluster")

    def _kafka_started_s(self, broker: str) -> int:
        """Return the start time of the broker's process as unix time in seconds."""
        answer = self.exec(broker, service.start_time_command(self.spec, Role.BROKER)).stdout.strip()
        if not answer.startswith("@"):
            raise LabError(f"kafka of {broker} was never started")
        return int(answer[1:])

    def wait_for_quorum(self, ensemble: str, deadline_s: float = QUORUM_S) -> None:
        """Wait until the servers of one ensemble are one leader and otherwise followers."""
        servers = self.members(ensemble)
        with self.operator():
            wait_until(f"{ensemble} quorum", readiness.quorum_serves(servers), deadline_s)

    def power_off(self, host: str, deadline_s: float = 30) -> None:
        """Power a host off as `systemctl poweroff` does, or kill it after the deadline."""
        self._plan(host)
        if not lab_host.power_off(self.record.hosts.get(host, HostRecord()), deadline_s):
            teardown.kill_host(self.id, host)
        teardown.clear_host(self.id, host)

    def cut_power(self, host: str) -> None:
        """Kill every process of a host at once."""
        self._plan(host)
        teardown.kill_host(self.id, host)
        teardown.clear_host(self.id, host)

    def power_on(self, host: str) -> None:
        """Boot a host that is off and wait for its sshd."""
        plan = self._plan(host)
        if self.hosts[host].pid:
            raise LabError(f"{host} of lab {self.id} is already running")
        machines.boot(self.directory, host)
        with self.operator():
            wait_until(f"ssh of {host}", readiness.ssh_answers([plan]), SSH_S)

    def status(self) -> dict[str, Any]:
        """Return the state of every host as JSON values: up or down, unit state, ZooKeeper's mode."""
        seen: dict[str, Any] = {}
        for name, host in self.hosts.items():
            unit = service.name_of(host.role) if service.has_server(host.role) else None
            entry: dict[str, Any] = {"role": host.role.value, "address": host.address, "up": bool(host.pid)}
            if host.pid and unit is not None:
                entry["unit"] = unit
                entry["unit_state"] = self._service_state(name)
            if host.pid and host.myid is not None:
                entry["mode"] = self.zookeeper_modes([name])[name]
            seen[name] = entry
        record = self.record
        return {
            "id": self.id,
            "directory": str(self.directory),
            "backend": record.backend,
            "ready": record.ready,
            "kept": record.kept,
            "owner_alive": record.owner.alive(),
            "spec": record.spec.to_json(),
            "hosts": seen,
        }

    def _service_state(self, name: str) -> str:
        """Return the state of a host's server: systemd's, or `active` or `inactive` if a script starts it."""
        role = self.hosts[name].role
        if not service.has_script(self.spec, role):
            active = ["systemctl", "is-active", service.name_of(role)]
            return self.exec(name, active, check=False).stdout.strip()
        status = self.exec(name, service.status_command(role), check=False)
        return "active" if status.returncode == 0 else "inactive"

    # -- take it down

    def down(self, progress: Progress = silent) -> None:
        """Power every host off and remove all that the lab owns. A second call does nothing."""
        teardown.remove(self.directory, progress)

    def __enter__(self) -> Lab:
        return self

    def __exit__(self, *_: object) -> None:
        self.down()


def _plant(client: KazooClient, paths: Sequence[str], size: int) -> None:
    """Create these znodes in one transaction, unless an earlier try with a lost answer has created them."""
    if client.exists(paths[-1]):
        return
    batch = client.transaction()
    for path in paths:
        batch.create(path, b"x" * size)
    if refused := [result for result in batch.commit() if isinstance(result, Exception)]:
        raise LabError(f"filler znodes were refused: {refused[0]!r}")


def needs_root() -> None:
    """Raise LabError, with the command to type, if this process is not root."""
    if os.geteuid() != 0:
        again = " ".join(["sudo", sys.executable, *sys.orig_argv[1:]])
        raise LabError(f"the lab needs root (namespaces, mounts, systemd-nspawn); run: {again}")


def sweep(progress: Progress = silent) -> list[str]:
    """Take down every abandoned lab (`state.sweepable`) and return their ids."""
    return teardown.sweep(progress)


def find(named: str | None) -> Lab:
    """Return the lab with this id, or the only lab if no id is given."""
    if named is not None:
        return Lab.load(named)
    found = [path for path in state.directories() if (path / "lab.json").exists()]
    if len(found) == 1:
        return Lab(found[0])
    ids = ", ".join(path.name.removeprefix(state.PREFIX) for path in found) or "none"
    raise LabError(f"which lab? There are: {ids}; name one with --lab, or build one with `zkmigrate lab up`")
