"""Build the worlds of model tests: ``World().brokers(5).topics(sets).cluster()`` is a Kafka cluster alone,
``World().ensemble(3, dest=5).brokers(3).move()`` has the hosts of a move too."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Self

from tests.world.cluster import Cluster
from tests.world.cluster_state import ID, Held, Load
from tests.world.cluster_state import PROPERTIES as FILE
from tests.world.model.host import File, Host
from tests.world.model.world import World as Move
from tests.world.model.world import new_world
from zkmigrate.cluster.placement.cluster import Name
from zkmigrate.inventory.inventory import Broker, Inventory, Kafka, load

START = "/k/bin/kafka-server-start.sh /k.conf"


def source_config(servers: int) -> bytes:
    """The config of a source with so many servers."""
    return b"tickTime=2000\ndataDir=/var/lib/zookeeper\nclientPort=2181\n" + b"".join(
        b"server.%d=10.0.0.%d:2888:3888\n" % (n, n) for n in range(1, servers + 1)
    )


SOURCE_CONFIG = source_config(3)
PROPERTIES = (
    b"broker.rack=r1\n"
    b"zookeeper.connect=10.0.0.1:2181,10.0.0.2:2181,10.0.0.3:2181/kafka\n"
    b"log.dirs=/var/lib/kafka\n"
)


class World:
    """What there is, told step by step; :meth:`cluster` and :meth:`move` make it."""

    def __init__(self) -> None:
        self._brokers: tuple[int, ...] = (1, 2, 3)
        self._held: dict[Name, Held] = {}
        self._hosts: dict[str, Host] = {}
        self._source, self._dest = 3, 3
        self._commands = False
        self._chroot = "/kafka"
        self._brokers_net = "2"

    def ensemble(self, source: int, dest: int = 3) -> Self:
        """So many source hosts and dest hosts."""
        self._source, self._dest = source, dest
        return self

    def chroot(self, path: str) -> Self:
        """Where Kafka's znodes are; /kafka where nothing is said."""
        self._chroot = path
        return self

    def beside(self, role: str) -> Self:
        """Each broker is on the machine of the server of this role that has its number."""
        self._brokers_net = {"source": "", "dest": "1"}[role]
        return self

    def commands(self) -> Self:
        """No host runs systemd: the inventory says how services are started and stopped."""
        self._commands = True
        return self

    def brokers(self, count: int) -> Self:
        """So many, with ids from 1 on."""
        self._brokers = tuple(range(1, count + 1))
        return self

    def topics(self, sets: Mapping[Name, tuple[int, ...]], size: int = 0) -> Self:
        """Partitions that the first of their replicas leads, each with so many bytes."""
        self._held |= {name: Held(ids, ids, ids[0], size) for name, ids in sets.items()}
        return self

    def hosts(self, works_in: str = "", log_dirs: str = "/var/lib/kafka") -> Self:
        """Each broker has a host with its unit and its files. works_in: where the unit starts it. log_dirs:
        as its file names them."""
        unit = f"[Service]\nExecStart={START}\n" + (f"WorkingDirectory={works_in}\n" if works_in else "")
        for id in self._brokers:
            host = self._hosts[f"broker{id}"] = Host(f"broker{id}", f"10.0.0.2{id}", boot=f"boot-{id}")
            host.files["/etc/systemd/system/kafka.service"] = File(unit.encode(), "0644", "root:root")
            properties = f"broker.id={id}\nlog.dirs={log_dirs}\n".encode()
            host.files[FILE] = File(properties, "0640", "kafka:kafka")
        return self

    @property
    def text(self) -> str:
        """The inventory of a move, as its file."""
        return (
            "version: 1\nname: world\noperator: [10.0.0.9]\n"
            "ssh: {user: ops, key: key, known_hosts: known_hosts}\n"
            f"source:\n  hosts:\n{_hosts('source', '', range(1, self._source + 1), 'myid')}"
            f"dest:\n  hosts:\n{_hosts('dest', '1', range(1, self._dest + 1), 'myid')}"
            '  settings: {tickTime: 2000, initLimit: 10, syncLimit: 5, 4lw.commands.whitelist: "*"}\n'
            f"{self._service('zookeeper')}"
            f"kafka:\n  cluster_id: abcdefghijklmnopqrstuv\n  chroot: {self._chroot}\n"
            f"  brokers:\n{_hosts('broker', self._brokers_net, self._brokers, 'id')}{self._service('kafka')}"
        )

    def _service(self, name: str) -> str:
        acts = ", ".join(f"{act}: /opt/{name}/service {act}" for act in ("start", "stop", "status"))
        return f"  service: {{unit: {name}.service, {acts}}}\n" if self._commands else ""

    @property
    def inventory(self) -> Inventory:
        """That of a move, which a test may change."""
        return _loaded(self.text).model_copy(deep=True)

    def move(self) -> Move:
        """Nothing has been done yet; every broker runs on source."""
        properties = PROPERTIES.replace(b":2181/kafka\n", b":2181%s\n" % self._chroot.rstrip("/").encode())
        return new_world(self.inventory, properties, source_config(self._source))

    @property
    def kafka(self) -> Kafka:
        """The section of the inventory."""
        made = (Broker(name=f"broker{n}", address=f"10.0.0.2{n}", id=n) for n in self._brokers)
        return Kafka(cluster_id=ID, brokers=tuple(made))

    def cluster(self, **more: Any) -> Cluster:
        """more: fields of the cluster."""
        given = {
            "topics": {topic: {} for topic, _ in self._held},
            "held": self._held,
            "brokers": self._brokers,
            "hosts": self._hosts,
            "loads": {id: Load() for id in self._brokers},
            **more,
        }
        made = Cluster(**given)
        for name in self._hosts:
            made.own(name, made.id_of(name))
        return made


@cache
def _loaded(text: str) -> Inventory:
    with TemporaryDirectory() as folder:
        file = Path(folder) / "migration.yml"
        file.write_text(text)
        return load(file)


def _hosts(role: str, net: str, numbers: Iterable[int], key: str) -> str:
    """Lines of hosts whose ids are their numbers, behind those of their net."""
    ids = {n: f"{net}{n}" if role != "broker" else f"{n}" for n in numbers}
    lines = (f"    - {{name: {role}{n}, address: 10.0.0.{net}{n}, {key}: {id}}}\n" for n, id in ids.items())
    return "".join(lines)
