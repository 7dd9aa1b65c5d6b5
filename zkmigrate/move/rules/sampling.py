"""Samples of the two ensembles: mode and zxid of each server, and the phases of dest's hosts.

- ``ensembles`` {servers: {host: [mode, zxid]}}; without a zxid the mode is the reason why there is none
- ``phases`` {hosts: {host: [phase, seconds since it served as participant or null]}}: noted by the window's
  probe of the block (``move/rules/probes.py``)
"""

from __future__ import annotations

from collections.abc import Collection

from zkmigrate.inventory.inventory import Inventory
from zkmigrate.runbook.model.fact import Absent, Reading, Seen
from zkmigrate.runbook.model.look import Look
from zkmigrate.runbook.model.sampling import Body, Question, Sampling, age
from zkmigrate.runbook.model.window import IDLE, Phase
from zkmigrate.zookeeper.data.four_letter_words import Srvr
from zkmigrate.zookeeper.data.zxid import format_zxid
from zkmigrate.zookeeper.facts.ensemble import view

ENSEMBLES_S = 1.0
_PHASE_S = 10.0
"""The seconds after which a sample of phases belongs to an earlier window."""

_VOTES = frozenset({"leader", "follower", "standalone"})
"""The modes of a server with a vote. A dest host has such a mode only after it has left source's ensemble."""

_FOLLOWS_SOURCE = frozenset({IDLE, *Phase.ARMED.until(Phase.CUT)})
"""The phases in which a dest host receives source's transactions."""


def questions(inventory: Inventory, look: Look) -> tuple[Question, ...]:
    """Return the requests for the mode and zxid of every ZooKeeper host."""
    hosts = tuple(inventory.doors)

    def ask() -> Body:
        return {"servers": {host: _server(reading) for host, reading in view(look, hosts).servers.items()}}

    return (Question("ensembles", ENSEMBLES_S, ask),) if hosts else ()


def _server(reading: Reading[Srvr]) -> list[str]:
    if isinstance(reading, Seen):
        return [reading.value.mode, format_zxid(reading.value.zxid)]
    return ["not serving" if isinstance(reading, Absent) else reading.cause]


class EnsemblesView:
    """Shows one line about source, and how far each dest host is behind source.

    The hosts that a run may change are dest's hosts; all other servers are source's.
    """

    def __init__(self) -> None:
        self._servers: tuple[float, dict[str, list[str]]] | None = None
        self._phases: tuple[float, Body] | None = None

    def take(self, at: float, kind: str, body: Body) -> None:
        if kind == "ensembles":
            self._servers = at, body.get("servers", {})
        if kind == "phases":
            self._phases = at, body.get("hosts", {})

    def head(self, hosts: Collection[str], now: float) -> tuple[str, bool] | None:
        source = self._source(hosts)
        if self._servers is None or not source:
            return None
        leads = [host for host, server in source.items() if server[0] in ("leader", "standalone")]
        serving = sum(len(server) > 1 for server in source.values())
        newest = self._newest(hosts)
        zxid = f", zxid 0x{newest:x}" if newest is not None else ""
        leader = f"{', '.join(leads)} leads" if leads else "no leader"
        text = f"source: {leader}, {serving} of {len(source)} serve{zxid}"
        return text + age(now - self._servers[0]), not leads

    def host(self, host: str, hosts: Collection[str], now: float) -> str:
        """Describe a dest host: its phase, its mode, and its distance behind source or that it is cut off."""
        parts = []
        at, phases = self._phases or (now, {})
        phase = str(phases.get(host, [""])[0]) if now - at < _PHASE_S else ""
        cut = bool(phase) and phase not in _FOLLOWS_SOURCE
        at, servers = self._servers or (now, {})
        if (server := servers.get(host)) is not None:
            parts.append(str(server[0]))
            if len(server) > 1 and (cut or server[0] in _VOTES):
                parts.append("cut off from source")
            elif len(server) > 1 and (newest := self._newest(hosts)) is not None:
                parts.append(_behind(newest, int(server[1], 16)))
            parts[-1] += age(now - at)
        return ", ".join([phase, *parts] if phase else parts)

    def troubled(self, _host: str) -> bool:
        return False

    def _source(self, hosts: Collection[str]) -> dict[str, list[str]]:
        _, servers = self._servers or (0.0, {})
        return {host: server for host, server in servers.items() if host not in hosts}

    def _newest(self, hosts: Collection[str]) -> int | None:
        """Return the newest zxid of source's servers."""
        return max((int(s[1], 16) for s in self._source(hosts).values() if len(s) > 1), default=None)


def _behind(newest: int, zxid: int) -> str:
    """Return as text how many transactions one zxid is behind another zxid of the same epoch."""
    if newest >> 32 != zxid >> 32:
        return "another epoch"
    return f"{newest - zxid} behind" if newest > zxid else "up to date"


ENSEMBLES = Sampling(questions, EnsemblesView)
