"""Read what the gateways, the mirror and both clusters report about a set of topics."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any, ClassVar, Literal

from pydantic import ConfigDict, Field, StringConstraints

from zkmigrate import json_text
from zkmigrate.hosts.facts.status import HostStatus, parsed, runs, unit_status
from zkmigrate.inventory.inventory import Inventory
from zkmigrate.runbook.model.fact import Reading, Seen
from zkmigrate.runbook.model.finding import Finding, claim
from zkmigrate.runbook.model.look import Look
from zkmigrate.runbook.model.sampling import Body
from zkmigrate.runbook.model.step import Context
from zkmigrate.runbook.model.step_record import Recorded
from zkmigrate.topics.gateway.order import GATEWAY, GatewayOrder, GatewayVerb
from zkmigrate.topics.gateway.rules import forms
from zkmigrate.topics.mirror.questions import BothEnds, ClusterAt, ReadMirrorEnds
from zkmigrate.topics.topic_move.section import cluster, gateway_hosts, mirror_hosts, move_of, switched

Part = tuple[str, int]
"""A topic's name and a partition's number."""
Ends = Mapping[Part, BothEnds]
Offsets = tuple[tuple[str, int, int], ...]
"""Topic, partition and offset, in the form in which a step's record holds them."""


@dataclass(frozen=True)
class AppSeen:
    """An application as one gateway reports it.

    route, staged: the names of the current and of the staged cluster.
    gate: open, settling, held, sealed or gone.
    hold: the operation id of its hold.
    lapsed: whether a lease has ended by itself since the gateway was ordered to settle.
    in_flight: the number of requests without an answer.
    connections: the number of connections of its clients.
    on_left_ports: how many of these are connections to ports of a cluster that the application has left.
    seen: the counts in the application's status, by table and name.
    unsure: a text about the batches whose outcome is not known to the clients that sent them; empty if there
    are none.
    """

    route: str
    staged: str
    gate: str
    hold: str
    lapsed: bool
    in_flight: int
    connections: int
    on_left_ports: int
    seen: Mapping[str, Any]
    unsure: str = ""

    @property
    def requests_wait(self) -> bool:
        """Whether the application's requests wait at the gate."""
        return self.gate in ("held", "sealed", "gone")

    @property
    def sample(self) -> dict[str, Any]:
        """The values for the report, which ``topics/topic_move/report.py`` describes."""
        return {
            "route": self.route,
            "gate": self.gate,
            "in_flight": self.in_flight,
            "connections": self.connections,
            "left": self.on_left_ports,
            "answered": sum(self.table("answered").values()),
            "parked": self.table("parked"),
            "longest_ms": self.table("longest_wait_ms"),
            "returned": self.table("returned"),
        }

    def table(self, name: str) -> dict[str, Any]:
        """Return one table of the status, or an empty dict if the gateway does not report it."""
        status = self.seen.get(name)
        return dict(status) if isinstance(status, Mapping) else {}

    @property
    def words(self) -> str:
        """A text with the state of the gate and the route."""
        return f"{self.gate} on {self.route}" + (", its lease has expired" if self.lapsed else "")


Brokers = Mapping[str, Mapping[int, str]]
"""By cluster and node id: why the broker did not answer the gateway's last query, or an empty text."""


@dataclass(frozen=True)
class Gateways:
    """The set's applications at every gateway, by the gateway's host and the application's name.

    unknown: a finding for each gateway that did not respond, or that lacks one of the applications. brokers:
    by host, the brokers that the gateway queries. others: applications of the gateways that do not belong to
    the set. restarted: by host, how many seconds ago the gateway was restarted. certificates: by host,
    that part of the status.
    """

    at: Mapping[tuple[str, str], AppSeen]
    unknown: tuple[Finding, ...]
    brokers: Mapping[str, Brokers] = field(default_factory=dict)
    others: Mapping[tuple[str, str], AppSeen] = field(default_factory=dict)
    restarted: Mapping[str, float] = field(default_factory=dict)
    certificates: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)

    @property
    def sample(self) -> Body:
        """The values for the report, which ``topics/topic_move/report.py`` describes."""
        apps: dict[str, dict[str, Any]] = {}
        for (host, name), app in self.at.items():
            apps.setdefault(host, {})[name] = app.sample
        return {"apps": apps, "unknown": sorted({one.target for one in self.unknown})}

    def hosts(self, test: Callable[[AppSeen], bool]) -> tuple[str, ...]:
        """Return the hosts of the gateways where a test is True for at least one application."""
        return tuple(dict.fromkeys(host for (host, _), app in self.at.items() if test(app)))

    def not_in_state(self, id: str, test: Callable[[AppSeen], bool], needed: str) -> tuple[Finding, ...]:
        """Return a finding for each application for which a test is not True.

        id: the id of the findings. needed: the text that says what the finding needs.
        """
        return tuple(
            claim(
                id,
                "the application has the state that this step needs",
                False,
                seen=app.words,
                needed=needed,
                target=f"{host}:{name}",
            )
            for (host, name), app in self.at.items()
            if not test(app)
        )

    def orders(
        self, host: str, verb: GatewayVerb, test: Callable[[AppSeen], bool], **status: Any
    ) -> tuple[GatewayOrder, ...]:
        """Return an order for each application of a host for which a test is True.

        status: further fields of the orders.
        """
        return tuple(
            GatewayOrder(host, verb, name, **status)
            for (at, name), app in self.at.items()
            if at == host and test(app)
        )


def gateways(c: Context, look: Look) -> Gateways:
    """Read the status of all gateways at the same time, and note a sample for the report."""
    found = parse_statuses(c.inventory, statuses(c.inventory, look))
    c.note("gateways", found.sample)
    return found


def statuses(inventory: Inventory, look: Look) -> dict[str, Reading[str]]:
    """Return by host the status of each gateway, as the JSON that ``zkmigrate gateway status`` prints."""
    return look.each(gateway_hosts(inventory), lambda host: look.program(GATEWAY, host, "status"))


def parse_statuses(inventory: Inventory, statuses: Mapping[str, Reading[str]]) -> Gateways:
    """Return the applications that the statuses of the gateways report.

    statuses: the status of each gateway by host, as JSON.
    """
    apps = switched(inventory).apps
    at: dict[tuple[str, str], AppSeen] = {}
    others: dict[tuple[str, str], AppSeen] = {}
    brokers: dict[str, Brokers] = {}
    again: dict[str, float] = {}
    certificates: dict[str, Mapping[str, Any]] = {}
    unknown: list[Finding] = []
    for host, status in statuses.items():
        reading = parsed(status, parse_status)
        if not isinstance(reading, Seen):
            unknown.append(_unknown_gateway(host, str(reading)))
            continue
        found, brokers[host], check_restarts, certificates[host] = reading.value
        again |= {} if check_restarts is None else {host: check_restarts}
        for name in apps:
            if name in found:
                at[host, name] = found[name]
            else:
                unknown.append(_unknown_gateway(host, f"the gateway has no application {name}"))
        others |= {(host, name): app for name, app in found.items() if name not in apps}
    return Gateways(at, tuple(unknown), brokers, others, again, certificates)


def describe_gateway(inventory: Inventory, look: Look, host: str) -> str:
    """Return the state of each application of the set at a gateway, as one line of text."""
    found = parse_statuses(inventory, {host: look.program(GATEWAY, host, "status")})
    apps = (f"{name} {app.words}, {app.in_flight} in flight" for (_, name), app in found.at.items())
    return "; ".join((*apps, *(one.seen for one in found.unknown)))


_Count = Annotated[int, Field(ge=0)]
_Table = dict[str, _Count]


class _Outcomes(forms.Strict):
    open: _Count
    names: list[str]
    left_s: Annotated[float, Field(ge=0)]

    def __str__(self) -> str:
        more = f" and {self.open - len(self.names):,} more" if self.open > len(self.names) else ""
        return f"{', '.join(self.names)}{more}, for at most {self.left_s:.0f} s" if self.open else ""


class _Returned(forms.Strict):
    model_config = ConfigDict(extra="allow")

    missing: _Count = 0
    names: list[str] = Field(default_factory=list)


class _AppStatus(forms.Strict):
    """The fields of an application in a gateway's status that the steps need."""

    model_config = ConfigDict(extra="allow")

    route: str
    staged: str
    gate: Literal["open", "settling", "held", "sealed", "gone"]
    hold: str
    lapsed: bool
    requests_in_flight: _Count
    outcomes: _Outcomes
    connections: _Count
    connections_on_left_ports: _Count
    answered: _Table
    software: _Table
    acks: _Table
    transactional: _Table
    refused: _Table
    lost: _Table
    clients: _Table
    principals: _Table
    topics: _Table
    parked: _Table
    returned: _Returned = Field(default_factory=_Returned)
    longest_wait_ms: _Table | None = None


class _ClusterStatus(forms.Strict):
    model_config = ConfigDict(extra="allow")

    brokers: dict[Annotated[str, StringConstraints(pattern="^[0-9]{1,10}$")], str]


class _Certificates(forms.Strict):
    left_s: dict[str, float] = Field(default_factory=dict)
    kept: str = ""


class _Status(forms.Strict):
    """The JSON of a gateway's status.

    Fields that only a newer gateway reports are ignored.
    """

    model_config = ConfigDict(extra="allow")

    apps: dict[str, _AppStatus]
    clusters: dict[str, _ClusterStatus]
    restarted_s: Annotated[float, Field(ge=0)] | None
    certificates: _Certificates = Field(default_factory=lambda: _Certificates())


def parse_status(text: str) -> tuple[dict[str, AppSeen], Brokers, float | None, Mapping[str, Any]]:
    """Parse the JSON of a gateway's status.

    Returns four values: the applications by name; the brokers; how many seconds ago the gateway was
    restarted, or None if it was not restarted; and the part about certificates. Raises ValueError.
    """
    body = json_text.loads(text)
    try:
        status = forms.checked(_Status, body)
    except forms.FormError as error:
        raise ValueError(f"this is not the status of a gateway: {error}") from None
    brokers = {
        name: {int(node): why for node, why in cluster.brokers.items()}
        for name, cluster in status.clusters.items()
    }
    apps = {name: _app(one, body["apps"][name]) for name, one in status.apps.items()}
    return apps, brokers, status.restarted_s, status.certificates.model_dump()


def _app(status: _AppStatus, seen: Mapping[str, Any]) -> AppSeen:
    return AppSeen(
        route=status.route,
        staged=status.staged,
        gate=status.gate,
        hold=status.hold,
        lapsed=status.lapsed,
        in_flight=status.requests_in_flight,
        connections=status.connections,
        on_left_ports=status.connections_on_left_ports,
        seen=seen,
        unsure=str(status.outcomes),
    )


def every_app(c: Context, gate: str, *, switched_over: bool = False) -> Gateways:
    """Return the set's applications at every gateway, in the state that a step of the window expects.

    This is used for a forecast of the step. gate: the state of each application's gate. switched_over:
    whether the applications are on target.
    """
    move = move_of(c.inventory).topic_move
    route = move.target if switched_over else move.source
    app = AppSeen(route, move.target, gate, "HOLD", False, 0, 0, 0, {})
    hosts, apps = gateway_hosts(c.inventory), switched(c.inventory).apps
    return Gateways({(host, name): app for host in hosts for name in apps}, ())


def _unknown_gateway(host: str, seen: str) -> Finding:
    return claim(
        "switch.gateway",
        "every gateway of the set responds and has its applications",
        None,
        target=host,
        seen=seen,
        needed="a status that lists the applications of the set",
    )


def forward(c: Context) -> tuple[ClusterAt, ClusterAt]:
    """Return source and target of this run, as seen by the copier from source to target."""
    return move_of(c.inventory).ends


def backward(c: Context) -> tuple[ClusterAt, ClusterAt]:
    """Return target and source of this run: the two clusters of the copier from target to source."""
    source, target = move_of(c.inventory).ends
    return target, source


def both_ends(c: Context, look: Look) -> Reading[Ends]:
    """Read where the logs of the set's topics end on both clusters, and note the ends for the report."""
    move = move_of(c.inventory).topic_move
    return _read_ends(c, look, forward(c), move.source, move.target)


def ends_back(c: Context, look: Look) -> Reading[Ends]:
    """Read where the logs of the set's topics end on both clusters, with target as the copier's source."""
    move = move_of(c.inventory).topic_move
    return _read_ends(c, look, backward(c), move.target, move.source)


def _read_ends(
    c: Context, look: Look, mirrored: tuple[ClusterAt, ClusterAt], source: str, target: str
) -> Reading[Ends]:
    read = look.ask(ReadMirrorEnds(*mirrored, switched(c.inventory).topics))
    if isinstance(read, Seen):
        ends = read.value.values()
        body = {
            "behind": _sum_or_none(None if one.lag is None else max(0, one.lag) for one in ends),
            "written": _sum_or_none(one.source for one in ends),
            "copied": _sum_or_none(one.target for one in ends),
        }
        c.note("mirror", {"from": source, "to": target, **body})
    return read


def _sum_or_none(status: Iterable[int | None]) -> int | None:
    """Return the sum of the numbers, or None if one of the numbers is None."""
    known = list(status)
    return None if None in known else sum(one for one in known if one is not None)


@dataclass(frozen=True)
class Copiers:
    """The state of the copiers of one direction on the mirror hosts.

    unit: the name of the copier's unit. at: the state of the unit by host.
    """

    unit: str
    at: Mapping[str, Reading[HostStatus]]

    @property
    def silent(self) -> dict[str, str]:
        """The hosts that do not report whether their copier runs, each with the reason."""
        return {
            host: "the state of its copier is unknown" if isinstance(status, Seen) else str(status)
            for host, status in self.at.items()
            if runs(status) is None
        }

    @property
    def running(self) -> tuple[str, ...]:
        """The hosts on which a copier may be running."""
        return tuple(
            host for host, status in self.at.items() if isinstance(status, Seen) and runs(status) is not False
        )

    @property
    def enabled(self) -> tuple[str, ...]:
        """The hosts on which systemd starts a copier at boot."""
        return tuple(
            host
            for host, status in self.at.items()
            if isinstance(status, Seen) and status.value.unit_file.startswith("enabled")
        )

    @property
    def down(self) -> tuple[str, ...]:
        """The hosts on which no copier runs."""
        return tuple(host for host, status in self.at.items() if runs(status) is False)


def copiers(c: Context, look: Look, to: str) -> Copiers:
    """Read the state of the copiers that copy to a cluster, on all mirror hosts.

    to: the name of the cluster.
    """
    unit = cluster(c.inventory, to).mirror
    return Copiers(unit, look.each(mirror_hosts(c.inventory), lambda host: unit_status(look, host, unit)))


def forward_unit(c: Context) -> str:
    """Return the name of the unit that copies from source to target."""
    return cluster(c.inventory, move_of(c.inventory).topic_move.target).mirror


def backward_unit(c: Context) -> str:
    """Return the name of the unit that copies from target to source."""
    return cluster(c.inventory, move_of(c.inventory).topic_move.source).mirror


@dataclass(frozen=True)
class Looked(Recorded):
    """The record that the step look writes.

    later: the ACLs that permit writing and that target lacks, each as its fields. The step grant adds these
    ACLs.
    """

    step: ClassVar[str] = "look"

    later: tuple[tuple[str, ...], ...] = ()


@dataclass(frozen=True)
class Armed(Recorded):
    """The record that the step arm writes.

    compared: by partition, the offset up to which records were compared.
    """

    step: ClassVar[str] = "arm"

    compared: Offsets = ()


@dataclass(frozen=True)
class Held(Recorded):
    """The record that the step hold writes.

    holds: for each hold, the gateway's host, the application and the operation id.
    """

    step: ClassVar[str] = "hold"

    holds: tuple[tuple[str, str, str], ...]

    def hold_of(self, host: str, app: str) -> str:
        """Return the operation id of the hold of an application at a gateway, or an empty text."""
        return next((id for at, name, id in self.holds if (at, name) == (host, app)), "")


@dataclass(frozen=True)
class Opened(Recorded):
    """The record that the step open writes.

    on: the name of the cluster on which the applications were opened. The record rules out a way back, even
    after another run has switched the clients away again.
    """

    step: ClassVar[str] = "open"

    on: str


@dataclass(frozen=True)
class Drained(Recorded):
    """The record that the step drain writes.

    ends: by partition, the offset at which both logs end.
    """

    step: ClassVar[str] = "drain"

    ends: Offsets


def offsets(ends: Ends) -> Offsets:
    """Return the ends of source's logs in the form in which a step's record holds them."""
    return tuple((topic, n, one.source) for (topic, n), one in sorted(ends.items()) if one.source is not None)


def by_part(recorded: Offsets) -> dict[Part, int]:
    """Return the offsets from a step's record by partition."""
    return {(topic, n): offset for topic, n, offset in recorded}
