"""Create, inspect and take down a lab, and run commands in it."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

from kazoo.client import KazooClient
from kazoo.exceptions import KazooException
from kazoo.retry import KazooRetry

from zkmigrate.lab import (
    between,
    machines,
    network,
    readiness,
    render,
    secured,
    service,
    state,
    teardown,
)
from zkmigrate.lab import host as lab_host
from zkmigrate.lab.access import LabAccess
from zkmigrate.lab.credentials import CLIENT, KAFKA, OPERATOR
from zkmigrate.lab.failure import LabError
from zkmigrate.lab.security import Kind
from zkmigrate.lab.shape import KafkaCluster
from zkmigrate.lab.spec import (
    KAFKA_PORT,
    MOST_NODE_BYTES,
    LabSpec,
    Role,
    machines_of,
    shape_of,
)
from zkmigrate.lab.state import HostRecord
from zkmigrate.lab.wait import Progress, silent, wait_until

SSH_S, QUORUM_S, BROKERS_S, GATEWAYS_S = 180, 180, 360, 120
"""The deadlines of `Lab.up` in seconds, several times the need of a quarter of two busy cores."""
PLANT_TRIES = 30
"""How many times to try one batch of filler znodes, a few seconds apart, while source has no quorum."""


class Lab(LabAccess):
    """An existing lab. `Lab.up` creates one, `Lab.load` opens one, and `down` removes it.

    As a context manager, the lab is removed at the end of the block.
    """

    # -- create and load

    @classmethod
    def up(cls, spec: LabSpec, progress: Progress = silent, *, kept: bool = False) -> Lab:
        """Build a lab, and return it when all of it is ready.

        If anything fails, everything is removed again. Labs whose owner has died are removed first. Unless
        `kept`, this process owns the lab: the next `up` after the process has died removes the lab. Raises
        LabError or provision.ProvisionError.
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
        """Open the lab with this id, or the lab in this directory if `named` is an absolute path."""
        directory = state.base_directory() / f"{state.PREFIX}{named}"
        path = Path(named)
        return cls(path if path.is_absolute() else directory)

    # -- build

    def _build(self, software: machines.Software, progress: Progress) -> None:
        names = machines_of(self.spec)
        machines.check_inotify(len(names))
        network.create(self.id, self.spec)
        progress(f"network: {len(names)} hosts, operator and bridge in namespaces of their own")
        machines.prepare(self.directory, self.spec, software)
        progress("disks: an overlay for each host, keys and configs written")
        with ThreadPoolExecutor(4) as pool:
            for done in [pool.submit(machines.boot, self.directory, name) for name in names]:
                done.result()
        progress("boot: systemd runs on all hosts")
        with self.operator():
            wait_until("ssh answers", readiness.ssh_answers(self.plans.values()), SSH_S)
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
        self._create_users(progress)
        self._start_gateways(progress)
        self._record = state.update(self.directory, lambda record: replace(record, ready=True))

    def _create_users(self, progress: Progress) -> None:
        """Create the users and ACLs of clusters whose brokers ask for them."""
        if not {Kind.KAFKA_SASL, Kind.KAFKA_ACL} & set(self.spec.security):
            return
        from zkmigrate.lab import kafka_users  # its library is slow to import

        names = (OPERATOR, CLIENT) if Kind.KAFKA_SASL in self.spec.security else ()
        passwords = {name: self.kafka_login(name).secret() for name in names}
        allowed = [secured.principal(self.spec, CLIENT)] if Kind.KAFKA_ACL in self.spec.security else []
        for cluster in shape_of(self.spec).clusters:
            brokers = [plan for plan in self.members(cluster.name) if plan.role is Role.BROKER]
            bootstrap = ",".join(f"{broker.address}:{KAFKA_PORT}" for broker in brokers)
            with self.operator():
                kafka_users.create(self.kafka_login(KAFKA), bootstrap, len(brokers), passwords, allowed)
        progress("Kafka: users and ACLs created")

    def _format_storage(self, cluster: KafkaCluster) -> None:
        """Format the storage of every node of a KRaft cluster, several nodes at once."""
        argv = render.format_command(cluster.version, render.kraft_cluster_id(self.id, cluster.name))
        account = ["-p", "User=kafka", "-p", "Group=kafka", "-p", "UMask=0027"]
        # A JVM that the host's systemd did not start may fail when it looks for its own cgroup.
        formatting = ["systemd-run", "--quiet", "--collect", "--wait", "--pipe", *account, *argv]
        with ThreadPoolExecutor(4) as pool:
            nodes = [plan.name for plan in self.members(cluster.name)]
            list(pool.map(lambda node: self.exec(node, formatting, timeout_s=BROKERS_S), nodes))

    def _plant_tree(self, progress: Progress) -> None:
        """Create the filler znodes, which no client uses, on the first ensemble that is running."""
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
                    raise LabError(f"the filler znodes could not be created: {error!r}") from error
            progress(f"tree: {self.spec.tree_size} filler znodes of {size} bytes")

    # -- servers and hosts

    def start_brokers(self) -> None:
        """Start Kafka on every controller and broker host.

        Hosts with systemd units also start Kafka at every boot.
        """
        enable = ["systemctl", "enable", "--now", "--quiet", "kafka.service"]
        for role in service.KAFKA:
            start = service.control_command(self.spec, role, "start")
            for host in self.names(role):
                self.exec(host, start if service.has_script(self.spec, role) else enable)

    def wait_until_unregistered(self, cluster: str, broker: int, deadline_s: float) -> None:
        """Wait until ZooKeeper has removed the registration of a broker that is down.

        The broker's session may outlive the broker, even after a clean stop. A broker that starts before the
        session has ended may stop itself. With KRaft there is nothing to wait for.
        """
        own = self.cluster(cluster)
        if own.ensemble is None:
            return
        path = f"{own.chroot.rstrip('/')}/brokers/ids/{broker}"
        with self.zookeeper(own.ensemble) as client:

            def missing() -> str | None:
                return f"the end of {path}" if client.exists(path) else None

            wait_until(f"the old session of broker {broker}", missing, deadline_s)

    def wait_for_brokers(self, ensemble: str | None = None, deadline_s: float = BROKERS_S) -> None:
        """Wait until every broker is registered and every ISR is full.

        ensemble: the ensemble to read from; by default the one that each cluster was built with.
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

        The brokers must be up before, because a gateway queries them for their versions.
        """
        gateways = [plan for plan in self.plans.values() if plan.role is Role.GATEWAY]
        for plan in gateways:
            unit = service.name_of(Role.GATEWAY)
            self.exec(plan.name, ["systemctl", "enable", "--now", "--quiet", unit])
        if gateways:
            with self.operator():
                wait_until("gateways ready", readiness.ports_open(between.ports(self.spec)), GATEWAYS_S)
            progress("gateways: ready, all clients are routed to the first cluster")

    def _kafka_started_s(self, broker: str) -> int:
        """Return the start time of the broker's process as unix time in seconds."""
        answer = self.exec(broker, service.start_time_command(self.spec, Role.BROKER)).stdout.strip()
        if not answer.startswith("@"):
            raise LabError(f"kafka of {broker} was never started")
        return int(answer[1:])

    def wait_for_quorum(self, ensemble: str, deadline_s: float = QUORUM_S) -> None:
        """Wait until one server of the ensemble leads and all others follow."""
        servers = self.members(ensemble)
        with self.operator():
            wait_until(f"{ensemble} quorum", readiness.quorum_serves(servers, self.word), deadline_s)

    def power_off(self, host: str, deadline_s: float = 30) -> None:
        """Power a host off as `systemctl poweroff` does, or kill it after ``deadline_s`` seconds."""
        machine = self._plan(host).machine
        if not lab_host.power_off(self.record.hosts.get(machine, HostRecord()), deadline_s):
            teardown.kill_host(self.id, machine)
        teardown.clear_host(self.id, machine)

    def cut_power(self, host: str) -> None:
        """Kill every process of a host at once, and leave the host off."""
        machine = self._plan(host).machine
        teardown.kill_host(self.id, machine)
        teardown.clear_host(self.id, machine)

    def power_on(self, host: str) -> None:
        """Boot a host that is off, and wait until its sshd answers."""
        plan = self._plan(host)
        if self.hosts[host].pid:
            raise LabError(f"{host} of lab {self.id} is already running")
        machines.boot(self.directory, plan.machine)
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
        """Power every host off and remove every resource of the lab. A second call does nothing."""
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
    """Remove every abandoned lab (see `state.sweepable`), and return the labs' ids."""
    return teardown.sweep(progress)


def find(named: str | None) -> Lab:
    """Return the lab with this id, or the only lab if no id is given. Raises LabError if there is none."""
    if named is not None:
        return Lab.load(named)
    found = [path for path in state.directories() if (path / "lab.json").exists()]
    if len(found) == 1:
        return Lab(found[0])
    ids = ", ".join(path.name.removeprefix(state.PREFIX) for path in found) or "none"
    raise LabError(
        f"the lab must be named. Labs: {ids}. Next: pass --lab ID, or build a lab with `zkmigrate lab up`"
    )
