"""Hold the configuration as the gateway uses it: ports, applications, and the broker behind each port."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import Any

from zkmigrate.topics.gateway.rules.apis import Api

OTHERS = "others"
"""The name of the application for all clients that are selected by no other application."""


@dataclass(frozen=True, order=True)
class Port:
    """A port of a listener, through which clients reach one broker of one cluster.

    node: the node id of the broker.
    """

    listener: str
    cluster: str
    node: int


@dataclass(frozen=True)
class Who:
    """The conditions that select the clients of an application.

    An empty field selects all clients. client_ids: patterns in which ``*`` stands for any characters.
    principals: names of users.
    """

    listener: str = ""
    client_ids: Sequence[str] = ()
    principals: Sequence[str] = ()

    def is_(self, listener: str, client_id: str, principal: str) -> bool:
        """Return True if the conditions select a client."""
        if self.listener and self.listener != listener:
            return False
        if self.principals and principal not in self.principals:
            return False
        return not self.client_ids or any(fnmatchcase(client_id, one) for one in self.client_ids)


@dataclass(frozen=True)
class Reading:
    """The settings of a read-only listener.

    cluster: the cluster that serves the listener, even if applications are routed to another one. groups:
    patterns of the groups whose offsets a mirror commits there, so that clients may not commit them.
    """

    cluster: str
    groups: Sequence[str] = ()

    def error(self, api: Api, fields: Mapping[str, Any]) -> int:
        """Return Kafka's error code to answer a request with, or 0 if the request is served.

        fields: the values of the fields that were read from the request.
        """
        group = fields.get("GroupId")
        if group is not None and not any(fnmatchcase(group, one) for one in self.groups):
            return 0
        return api.denied


@dataclass(frozen=True)
class Plan:
    """The configuration as the gateway uses it.

    clusters: ``host:port`` of each broker, by cluster and node id. ports: the TCP port number of each port.
    advertise: by listener, the host that clients connect to. apps: by application, the conditions that select
    its clients; the first application that matches a client gets it. reading: the read-only listeners by
    name.
    """

    clusters: Mapping[str, Mapping[int, str]]
    ports: Mapping[Port, int]
    advertise: Mapping[str, str]
    apps: Mapping[str, Who]
    reading: Mapping[str, Reading] = field(default_factory=dict)

    def app(self, listener: str, client_id: str, principal: str) -> str:
        """Return the name of the application that a client belongs to.

        On a read-only listener, the name of the listener is returned.
        """
        if listener in self.reading:
            return listener
        for name, who in self.apps.items():
            if who.is_(listener, client_id, principal):
                return name
        return OTHERS

    def address(self, listener: str, cluster: str, node: int) -> tuple[str, int]:
        """Return the host and port of a listener where clients reach a broker.

        If the configuration does not contain the broker, the host and port of the cluster's first broker are
        returned. That broker refuses requests for partitions that it does not lead.
        """
        nodes = self.clusters[cluster]
        known = node if node in nodes else min(nodes)
        return self.advertise[listener], self.ports[Port(listener, cluster, known)]

    def brokers(self, port: Port, route: str) -> list[str]:
        """Return the brokers to try for a connection to a port, each as ``host:port``.

        If the port belongs to another cluster than ``route``, these are all brokers of ``route``. The first
        broker is then the one at the same position in its cluster as the port's broker.
        """
        nodes = self.clusters[route]
        if port.cluster == route:
            return [nodes[port.node]]
        order = sorted(nodes)
        begun = sorted(self.clusters[port.cluster]).index(port.node) % len(order)
        return [nodes[one] for one in (*order[begun:], *order[:begun])]
