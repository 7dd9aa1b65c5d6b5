"""What the members of a model world are: as much of a dependent as the world needs to run it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

from tests.world.model.ensemble import Ensemble
from tests.world.model.host import PID, File
from zkmigrate.inventory.inventory import Inventory
from zkmigrate.kafka.rules.connect import current_connect, registration
from zkmigrate.move.dependent import AnyDependent, Member
from zkmigrate.move.dependents.kafka import KAFKA

RELEASE = "2.8.2"
"""Of the model's Kafka."""

_JARS = "/opt/kafka/libs"
_LOG_DIR = "/var/lib/kafka"


@dataclass
class Process:
    """A member's client of ZooKeeper: its session and the host it is connected to.

    number: of its kind, no two alike. process, reloads: how often its host had started and reloaded it when
    it read its file. connect: ``HOST:PORT,…`` as it read it then; later changes of the file are nothing to
    it.
    """

    member: Member
    number: int
    session: int = 0
    ensemble: str = ""
    connected: str = ""
    process: int = -1
    reloads: int = 0
    registered: bool = False
    connect: str = ""


class Kind(Protocol):
    """The members of one dependent. keeps_sessions: a client whose connection broke comes back in its old
    session; else it opens a new one, and the old one is left to expire."""

    dependent: AnyDependent
    keeps_sessions: bool

    def number(self, inventory: Inventory, member: Member) -> int:
        """No two members have the same."""
        ...

    def files(self, inventory: Inventory, member: Member) -> Mapping[str, File]:
        """What a member's host holds from the beginning, by path; its own file among them."""
        ...

    def connect(self, content: bytes) -> str:
        """What a process reads of its file: ``HOST:PORT,…``."""
        ...

    def seeds(self, inventory: Inventory) -> Mapping[str, bytes]:
        """The znodes that are there before any member is, parents first."""
        ...

    def lives(self, inventory: Inventory, process: Process, ensemble: Ensemble, *, anew: bool) -> None:
        """What a connected member writes, all the time. anew: it has just opened its session."""
        ...

    def shows(self, inventory: Inventory, process: Process, *, runs: bool) -> Mapping[str, bytes]:
        """Files of a member's host that show how it runs, by path."""
        ...


class KafkaKind:
    """Implements :class:`Kind`. properties: what all brokers have in ``server.properties`` beside their
    ``broker.id``."""

    dependent: AnyDependent = KAFKA
    keeps_sessions = True

    def __init__(self, properties: bytes) -> None:
        self._properties = properties

    def number(self, inventory: Inventory, member: Member) -> int:
        return inventory.broker(member.name).id

    def files(self, inventory: Inventory, member: Member) -> Mapping[str, File]:
        kafka, owner = inventory.kafka, f"{inventory.kafka.user}:{inventory.kafka.group}"
        content = b"broker.id=%d\n" % self.number(inventory, member) + self._properties
        files = {kafka.config: File(content, "0640", owner)}
        if not kafka.service.has_commands:
            unit = b"[Service]\nExecStart=/usr/bin/java kafka.Kafka " + kafka.config.encode() + b"\n"
            files[f"/etc/systemd/system/{kafka.service.unit}"] = File(unit, "0644", "root:root")
        return files

    def connect(self, content: bytes) -> str:
        return current_connect(content).split("/", 1)[0]

    def seeds(self, inventory: Inventory) -> Mapping[str, bytes]:
        top = inventory.kafka.prefix
        cluster = b'{"version":"1","id":"%s"}' % inventory.kafka.cluster_id.encode()
        names = ("cluster", "brokers", "brokers/ids", "config")
        made = dict.fromkeys((*filter(None, [top]), *(f"{top}/{name}" for name in names)), b"")
        return {**made, "/other": b"", f"{top}/cluster/id": cluster, f"{top}/controller_epoch": b"1"}

    def lives(self, inventory: Inventory, process: Process, ensemble: Ensemble, *, anew: bool) -> None:
        top = inventory.kafka.prefix
        if anew:
            path = registration(top, process.number)
            if path in ensemble.tree().znodes:
                ensemble.commit("delete", process.session, path)
            ensemble.commit("create", process.session, path, b"{}", ephemeral=1)
        controller = f"{top}/controller"
        if controller not in ensemble.tree().znodes:
            data = b'{"brokerid":%d}' % process.number
            ensemble.commit("create", process.session, controller, data, ephemeral=1)
            epoch = f"{controller}_epoch"
            known = ensemble.tree().znodes.get(epoch)
            if known is not None:
                ensemble.commit("set", process.session, epoch, b"%d" % (int(known.data) + 1))

    def shows(self, inventory: Inventory, process: Process, *, runs: bool) -> Mapping[str, bytes]:
        kafka = inventory.kafka
        meta = f"version=0\nbroker.id={process.number}\ncluster.id={kafka.cluster_id}\n"
        files = {f"{_LOG_DIR}/meta.properties": meta.encode()}
        files |= {f"{_JARS}/{jar}": b"" for jar in (f"kafka_2.13-{RELEASE}.jar", "zookeeper-3.5.9.jar")}
        if runs:
            words = ("java", "-cp", f"/etc/kafka:{_JARS}/*", "kafka.Kafka", kafka.config)
            files[f"/proc/{PID}/cmdline"] = "".join(f"{word}\0" for word in words).encode()
            files[f"/proc/{PID}/environ"] = b"LANG=C\0"
        return files
