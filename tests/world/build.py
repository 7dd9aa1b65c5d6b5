"""Build the worlds of model tests: ``World().brokers(5).topics(sets).cluster()``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Self

from tests.world.cluster import Cluster
from tests.world.cluster_state import ID, PROPERTIES, Held, Load
from tests.world.model.host import File, Host
from zkmigrate.cluster.placement.cluster import Name
from zkmigrate.inventory.inventory import Broker, Kafka

START = "/k/bin/kafka-server-start.sh /k.conf"


class World:
    """What there is, told step by step; :meth:`cluster` makes it."""

    def __init__(self) -> None:
        self._brokers: tuple[int, ...] = (1, 2, 3)
        self._held: dict[Name, Held] = {}
        self._hosts: dict[str, Host] = {}

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
            host.files[PROPERTIES] = File(properties, "0640", "kafka:kafka")
        return self

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
