"""Show samples of a switch of topics, in the live view and in a report. All functions are pure.

The steps and the window's probe note values that they read for their own work; nothing is read only for a
sample.

- ``mirror`` {from, to: clusters; behind: records that the copy lacks; written, copied: where the logs of all
  partitions end, summed, on both clusters}: null if the end of a partition is not known
- ``gateways`` {apps: {host: {application: {route, gate, in_flight, connections, left: connections to ports of
  the cluster that was left, answered: requests, parked: {kind: requests}, longest_ms: {kind: milliseconds},
  returned: the table of the gateway's status}}}, unknown: [hosts whose gateway does not report]}

Rows of a report come from files that may have been edited or truncated. A value of an unexpected type is left
out.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from zkmigrate.runbook.model.finding import few
from zkmigrate.runbook.model.report import (
    Curve,
    Reporting,
    Rows,
    Sampled,
    SampleReport,
    Table,
    Visit,
    Window,
    counted,
    length,
    of_kind,
)
from zkmigrate.runbook.model.sampling import Body, Sampling, age
from zkmigrate.runbook.model.series import number

_RATE_S = 0.5
"""The shortest time over which a rate is measured, in seconds."""
_RESTS_S = 10.0
"""The seconds after which a sample is no longer shown."""


class _Rate:
    def __init__(self) -> None:
        self._before: tuple[float, float] | None = None

    def take(self, at: float, count: float) -> float | None:
        """Return how many counts per second were added since the last rate.

        at: the time in seconds. count: the count at that time. Returns None too soon after the last rate, and
        for a count that is lower than before.
        """
        if self._before is None or count < self._before[1]:
            self._before = at, count
            return None
        since, then = self._before
        if at - since < _RATE_S:
            return None
        self._before = at, count
        return (count - then) / (at - since)


# -- the live view


class SwitchView:
    """The part of the live view that shows the mirror and the gateways."""

    def __init__(self) -> None:
        self._mirror: tuple[float, Body] | None = None
        self._gateways: tuple[float, Body] | None = None
        self._written, self._rate, self._way = _Rate(), "", ""

    def take(self, at: float, kind: str, body: Body) -> None:
        if kind == "gateways":
            self._gateways = at, body
        if kind == "mirror":
            self._mirror = at, body
            if self._way != body["to"]:
                self._way, self._written, self._rate = body["to"], _Rate(), ""
            told = body["written"]
            rate = None if told is None else self._written.take(at, told)
            self._rate = self._rate if rate is None else f", {rate:,.0f} records/s"

    def head(self, _hosts: Collection[str], now: float) -> tuple[str, bool] | None:
        parts = []
        if self._mirror is not None and now - self._mirror[0] <= _RESTS_S:
            at, body = self._mirror
            behind = "not known" if body["behind"] is None else f"{counted(body['behind'], 'record')} behind"
            parts.append(f"mirror to {body['to']}: {behind}{self._rate}{age(now - at)}")
        if told := self._parked(now):
            parts.append(f"parked: {told}")
        return ("; ".join(parts), False) if parts else None

    def _parked(self, now: float) -> str:
        if self._gateways is None or now - self._gateways[0] > _RESTS_S:
            return ""
        return ", ".join(f"{kind} {n:,.0f}" for kind, n in _parked(self._gateways[1]).most_common())

    def host(self, host: str, _hosts: Collection[str], now: float) -> str:
        if self._gateways is None:
            return ""
        at, body = self._gateways
        if host in body["unknown"]:
            return f"state of the gateway unknown{age(now - at)}"
        apps = body["apps"].get(host, {})
        told = few(f"{name} {app['gate']} on {app['route']}" for name, app in apps.items())
        return f"{told}{age(now - at)}" if told else ""

    def troubled(self, host: str) -> bool:
        return self._gateways is not None and host in self._gateways[1]["unknown"]


# -- the report


def _each_app(row: Mapping[str, Any]) -> Iterator[tuple[str, str, Mapping[str, Any]]]:
    """Yield each host, each application, and the values that the gateway reported about the application."""
    hosts = row.get("apps")
    for host, apps in hosts.items() if isinstance(hosts, dict) else ():
        for name, told in apps.items() if isinstance(apps, dict) else ():
            if isinstance(told, dict):
                yield str(host), str(name), told


def _counts(told: Mapping[str, Any], name: str) -> dict[str, float]:
    """Return the positive numbers in a table of an application's values, by kind of request.

    told: the application's values. name: the name of the table.
    """
    table = told.get(name)
    own = table if isinstance(table, dict) else {}
    return {str(kind): n for kind in own if (n := number(own, kind)) is not None and n > 0}


def _parked(row: Mapping[str, Any]) -> Counter[str]:
    """Return how many requests wait at the gates of all gateways, by kind."""
    waits = Counter[str]()
    for _, _, told in _each_app(row):
        waits.update({kind: int(n) for kind, n in _counts(told, "parked").items()})
    return waits


def curves(rows: Rows) -> tuple[Curve, ...]:
    """Return the curves of a report.

    The curves show records behind, records per second in both clusters' logs, waiting requests by kind, and
    answers per second by application.
    """
    found: dict[tuple[str, str], list[tuple[float, float]]] = {}
    rates: dict[tuple[str, str], _Rate] = {}

    def rate(plot: str, name: str, at: float, count: float) -> None:
        if (per_s := rates.setdefault((plot, name), _Rate()).take(at, count)) is not None:
            found.setdefault((plot, name), []).append((at, per_s))

    for at, row in of_kind(rows, "mirror"):
        source, target = str(row.get("from")), str(row.get("to"))
        if (behind := number(row, "behind")) is not None:
            name = f"{source} to {target}"
            found.setdefault(("records behind", name), []).append((at, behind))
        for word, name in (("written", source), ("copied", target)):
            if (count := number(row, word)) is not None:
                rate("records/s", name, at, count)
    looks = [(at, row, _parked(row)) for at, row in of_kind(rows, "gateways")]
    for kind in sorted({kind for _, _, parked in looks for kind in parked}):
        found["parked requests", kind] = [(at, float(parked[kind])) for at, _, parked in looks]
    for at, row, _ in looks:
        answered = Counter[str]()
        for _, name, told in _each_app(row):
            answered[name] += int(number(told, "answered") or 0)
        if not row.get("unknown"):
            for name, count in answered.items():
                rate("answers/s", name, at, count)
    return tuple(Curve(plot, name, tuple(points)) for (plot, name), points in found.items())


@dataclass
class _Experience:
    """The effects of a switch on the clients of one application at one gateway.

    parked: by kind, the most requests that waited at once. longest_ms: by kind, the longest wait in
    milliseconds. returned: the gateway's last counts of clients that came back.
    """

    parked: dict[str, float] = field(default_factory=dict)
    longest_ms: dict[str, float] = field(default_factory=dict)
    returned: Mapping[str, Any] = field(default_factory=dict)

    def take(self, told: Mapping[str, Any]) -> None:
        for name, most in (("parked", self.parked), ("longest_ms", self.longest_ms)):
            for kind, value in _counts(told, name).items():
                most[kind] = max(value, most.get(kind, 0.0))
        if isinstance(returned := told.get("returned"), dict) and returned:
            self.returned = returned

    @property
    def cells(self) -> tuple[str, ...]:
        """The texts of the application's row in the table, one for each column."""
        parked = _largest(self.parked)
        longest = _largest(self.longest_ms)
        back, first_s, last_s, missing = (
            number(self.returned, name) for name in ("back", "first_s", "last_s", "missing")
        )
        again = "-" if back is None else counted(int(back), "client")
        if first_s is not None and last_s is not None:
            again += f": after {length(first_s)}" + (f" to {length(last_s)}" if last_s > first_s else "")
        names = self.returned.get("names")
        listed = few([str(name) for name in names] if isinstance(names, list) else [], 20)
        gone = "-" if missing is None else f"{int(missing):,}: {listed}" if missing else "none"
        return (
            ", ".join(f"{kind} {n:,.0f}" for kind, n in parked) or "none",
            ", ".join(f"{kind} {length(ms / 1000)}" for kind, ms in longest) or "-",
            again,
            gone,
        )


def _largest(table: Mapping[str, float]) -> list[tuple[str, float]]:
    return sorted(table.items(), key=lambda item: (-item[1], item[0]))


def _experience_table(rows: Rows, window: Window | None) -> Table:
    """Return the table that shows the effects of a switch on clients.

    window: if given, only samples from its start on are used.
    """
    found: dict[tuple[str, str], _Experience] = {}
    for at, row in of_kind(rows, "gateways"):
        if window is None or at >= window.start:
            for host, name, told in _each_app(row):
                found.setdefault((name, host), _Experience()).take(told)
    cells = tuple((name, host, *felt.cells) for (name, host), felt in sorted(found.items()))
    which = "Since the step hold of the switch" if window is not None else "In all samples of the run"
    intro = (
        f"{which}, as the gateways reported. A parked request waits at the gateway before it is sent on. "
        "The longest wait is measured from settle on. The last two columns count the clients that were "
        "connected at the switch; times are those of the first and the last that connected again."
    )
    head = ("application", "gateway", "parked at most", "longest wait", "connected again", "missing")
    return Table("felt", "What clients noticed", head, cells, intro, (2, 3, 4, 5))


def sampled(rows: Rows, _visits: Sequence[Visit], window: Window | None, _paced: str) -> Sampled:
    """Return the part of the report that shows the effects of a switch on clients, which is a table."""
    return Sampled(felt=(_experience_table(rows, window),))


SWITCH = Sampling(lambda _inventory, _look: (), SwitchView, report=SampleReport(sampled))

REPORTING = Reporting(
    curves=curves,
    curved=(
        "The mirror and the gateways",
        "Records that the mirror lacks, records per second that each cluster receives, requests that wait "
        "at the gateways, and responses per second to each application.",
    ),
    unsampled="no samples: this report lacks the mirror's lag and what clients noticed",
)
