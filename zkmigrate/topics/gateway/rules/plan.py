"""Hold the configuration as the gateway uses it: ports, applications, and the node of each port."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import Any

from zkmigrate.topics.gateway.rules.apis import Api

OTHERS = "others"
"""The application of all clients that no other application selects."""


@dataclass(frozen=True, order=True)
class Port:
    """A port of a listener, through which clients reach one node of one cluster."""

    listener: str
    cluster: str
    node: int


@dataclass(frozen=True)
class Who:
    """A selection of clients.

    An empty field selects all clients. client_ids: patterns with ``*`` for any characters.
    """

    listener: str = ""
    client_ids: Sequence[str] = ()
    principals: Sequence[str] = ()

    def is_(self, listener: str, client_id: str, principal: str) -> bool:
        """Return True if a client is selected."""
        if self.listener and self.listener != listener:
            return False
        if self.principals and principal not in self.principals:
            return False
        return not self.client_ids or any(fnmatchcase(client_id, one) for one in self.client_ids)


@dataclass(frozen=True)
class Reading:
    """A read-only listener.

    cluster: the cluster that serves it, whatever the routes of applications are. groups: patterns of the
    groups whose offsets a mirror commits there, so that clients may not commit them.
    """

    cluster: str
    groups: Sequence[str] = ()

    def error(self, api: Api, fields: Mapping[str, Any]) -> int:
        """Return Kafka's error for a request, or 0 if it is served.

        fields: the fields that were read from it.
        """
        group = fields.get("GroupId")
        if group is not None and not any(fnmatchcase(group, one) for one in self.groups):
            return 0
        return api.denied


@dataclass(frozen=True)
class Plan:
    """The configuration as the gateway uses it.

    clusters: ``host:port`` of each broker by cluster and node. ports: the TCP port of each. advertise: by
    listener, the host that clients connect to. apps: the applications by name; the first one that selects a
    client gets it. reading: the read-only listeners.
    """

    clusters: Mapping[str, Mapping[int, str]]
    ports: Mapping[Port, int]
    advertise: Mapping[str, str]
    apps: Mapping[str, Who]
    reading: Mapping[str, Reading] = field(default_factory=dict)

    def app(self, listener: str, client_id: str, principal: str) -> str:
        """Return the application of a client. For a read-only listener, return the name of the listener."""
        if listener in self.reading:
            return listener
        for name, who in self.apps.items():
            if who.is_(listener, client_id, principal):
                return name
        return OTHERS

    def address(self, listener: str, cluster: str, node: int) -> tuple[str, int]:
        """Return the host and port where clients reach a node.

        For a node that the configuration lacks, return those of the first node. It refuses requests for
        partitions that it does not lead.
        """
        nodes = self.clusters[cluster]
        known = node if node in nodes else min(nodes)
        return self.advertise[listener], self.ports[Port(listener, cluster, known)]

    def brokers(self, port: Port, route: str) -> list[str]:
        """Return the brokers to try for a connection to a port, as ``host:port``.

        For a port of another cluster than the route's, these are all brokers of the route. The first one is
        the node at the same position.
        """
        nodes = self.clusters[route]
        if port.cluster == route:
            return [nodes[port.node]]
        order = sorted(nodes)
        begun = sorted(self.clusters[port.cluster]).index(port.node) % len(order)
        return [nodes[one] for one in (*order[begun:], *order[:begun])]
