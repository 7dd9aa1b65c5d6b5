"""The configuration as the gateway uses it: ports, applications, and which port stands for which node."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import Any

from zkmigrate.gateway.rules.apis import Api

OTHERS = "others"
"""The application of all clients that no other one names."""


@dataclass(frozen=True, order=True)
class Port:
    """A port for good: of a listener, for a node of a cluster."""

    listener: str
    cluster: str
    node: int


@dataclass(frozen=True)
class Who:
    """The clients of an application. Empty: any. client_ids: with ``*`` for any characters."""

    listener: str = ""
    client_ids: Sequence[str] = ()
    principals: Sequence[str] = ()

    def is_(self, listener: str, client_id: str, principal: str) -> bool:
        """Whether a client is one of these."""
        if self.listener and self.listener != listener:
            return False
        if self.principals and principal not in self.principals:
            return False
        return not self.client_ids or any(fnmatchcase(client_id, one) for one in self.client_ids)


@dataclass(frozen=True)
class Reading:
    """A listener whose clients only read. cluster: the one that serves them, whatever an application's route
    is. groups: those whose offsets a mirror commits there, so that nobody else may; with ``*``."""

    cluster: str
    groups: Sequence[str] = ()

    def error(self, api: Api, fields: Mapping[str, Any]) -> int:
        """Kafka's error for a request; 0 if it is served. fields: those that were read of it."""
        group = fields.get("GroupId")
        if group is not None and not any(fnmatchcase(group, one) for one in self.groups):
            return 0
        return api.denied


@dataclass(frozen=True)
class Plan:
    """clusters: the brokers' ``host:port`` by node. ports: the port of each. advertise: by listener, the host
    that clients connect to. apps: in order; the first that names a client has it. reading: the listeners
    whose clients only read."""

    clusters: Mapping[str, Mapping[int, str]]
    ports: Mapping[Port, int]
    advertise: Mapping[str, str]
    apps: Mapping[str, Who]
    reading: Mapping[str, Reading] = field(default_factory=dict)

    def app(self, listener: str, client_id: str, principal: str) -> str:
        """The application of a client. Those of a listener that only reads are none's: its own name."""
        if listener in self.reading:
            return listener
        for name, who in self.apps.items():
            if who.is_(listener, client_id, principal):
                return name
        return OTHERS

    def address(self, listener: str, cluster: str, node: int) -> tuple[str, int]:
        """Where clients reach a node. One that the configuration lacks is reached nowhere: they get the first
        node, which serves nothing of the other one's."""
        nodes = self.clusters[cluster]
        known = node if node in nodes else min(nodes)
        return self.advertise[listener], self.ports[Port(listener, cluster, known)]

    def brokers(self, port: Port, route: str) -> list[str]:
        """The brokers to try for a connection to this port, ``host:port``. On a port of a cluster that was
        left these are the other cluster's, from the node at the same place on."""
        nodes = self.clusters[route]
        if port.cluster == route:
            return [nodes[port.node]]
        order = sorted(nodes)
        begun = sorted(self.clusters[port.cluster]).index(port.node) % len(order)
        return [nodes[one] for one in (*order[begun:], *order[:begun])]
