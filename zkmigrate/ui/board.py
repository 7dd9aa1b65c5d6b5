"""What the live view shows, as plain lines that fit a terminal: made from events and samples, drawn
elsewhere.

Safe to use from several threads: events come from the walk, samples from threads of their own, and the view
is drawn on another.
"""

from __future__ import annotations

import textwrap
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from zkmigrate.engine import events
from zkmigrate.engine.logbook import REHEARSED
from zkmigrate.model.step import Way
from zkmigrate.model.window import IDLE, Phase
from zkmigrate.ui import words
from zkmigrate.ui.pace import Pace

Line = tuple[str, str]
"""A line and its style; the style is empty, ``bold``, ``dim``, ``warn`` or ``bad``."""

_OLD_S = 3.0
_LEAST_HOSTS = 3
_URGENT_S = 3.0
_PHASE_S = 10.0
"""Phases are only looked at in the window: older ones are of the last one."""

_VOTES = frozenset({"leader", "follower", "standalone"})
"""Modes of a server that is a member of an ensemble: a dest host has them only once it left source's."""

_FOLLOWS_SOURCE = frozenset({IDLE, *Phase.ARMED.until(Phase.CUT)})
"""Phases in which a dest host hears source; in later ones what others write to source is not meant for it."""


@dataclass
class _Host:
    """What is known of one host; ``at`` of the last change on the clock of the board."""

    text: str = ""
    status: str = ""
    at: float = 0.0

    @property
    def failed(self) -> bool:
        return self.status in ("failed", "unknown")


class Board:
    """now: the process's monotonic clock, on which samples are dated too. keys: what can be typed while it
    waits outside the window, empty for nothing."""

    def __init__(self, now: Callable[[], float], keys: str = "") -> None:
        self._now = now
        self._keys = keys
        self._in_window = False
        self._guard = threading.Lock()
        self._title = ""
        self._hosts: dict[str, _Host] = {}
        self._stages: dict[str, str] = {}
        self._rehearsed: set[str] = set()
        self._wait: events.Waits | None = None
        self._pace = Pace()
        self._hold: events.Holding | None = None
        self._asked: events.HoldAsked | None = None
        self._left: tuple[float, float] | None = None
        self._samples: dict[str, tuple[float, Mapping[str, Any]]] = {}
        self._answered: dict[str, float] = {}
        self._wave: tuple[float, events.WaveBegun | events.StepBegun] | None = None
        self._acked: dict[str, tuple[str, float]] = {}

    def sample(self, mono: float, kind: str, body: Mapping[str, Any]) -> None:
        """Take in what was seen in passing (``engine/samples.py``)."""
        with self._guard:
            self._samples[kind] = (mono, body)
            if kind == "brokers":
                self._answered |= dict.fromkeys(body["ms"], mono)
            if kind == "produce":
                self._acked |= {p: (acks[-1][0], acks[-1][2]) for p, acks in body["acks"].items() if acks}

    def take(self, event: events.Event) -> None:
        """Take in what happened."""
        with self._guard:
            self._take(event)

    def _take(self, event: events.Event) -> None:
        match event:
            case events.RunBegun():
                self._title = f"run {event.run}: {event.playbook}"
                self._hosts = {host: _Host() for host in event.hosts}
                self._stages = {id: "" for id, _ in event.stages} | dict(event.over)
            case events.StageBegun():
                self._left = None  # of a window; the next countdown says it anew
                self._settle(event.stage)
                self._in_window = event.window
                self._stages[event.stage] = "<-" if event.way is Way.BACK else "begins"
            case events.StageSkipped():
                self._stages[event.stage] = "skipped"
            case events.StepBegun():
                self._wait, self._hold = None, None
                self._wave = (self._now(), event) if event.of else None
                arrow = "<- " if event.way is Way.BACK else ""
                self._stages[event.stage] = f"{arrow}{event.step}"
            case events.StepEnded():
                self._wait, self._hold, self._left, self._wave = None, None, None, None
                arrow = "<- " if event.way is Way.BACK else ""
                self._stages[event.stage] = f"{arrow}{event.step} done"
            case events.StepBlocked():
                self._stages[event.stage] = f"{event.step} blocked"
            case events.WaveBegun():
                self._wait = None
                self._wave = (self._now(), event) if event.of else None
            case events.ChangeSent():
                self._hosts[event.change.where] = _Host(event.change.describe(), "...", self._now())
            case events.ChangeEnded():
                before = self._hosts.get(event.target, _Host())
                self._hosts[event.target] = _Host(before.text, event.status, self._now())
            case events.Waits():
                self._wait = event
                self._pace.note(event.what, event.progress, self._now())
            case events.Countdown():
                self._left = (self._now(), event.left_s)
            case events.HoldAsked():
                self._asked = event
            case events.Holding():
                self._hold, self._asked = event, None
                self._left = None if event.left_s is None else (self._now(), event.left_s)
            case events.HoldEnded():
                self._hold, self._asked = None, None
            case events.Turned():
                self._wait, self._hold, self._left = None, None, None
                if event.why == REHEARSED:
                    self._rehearsed.add(event.to)
            case events.RunEnded():
                self._wait, self._hold, self._left = None, None, None
                self._settle("")

    def _settle(self, current: str) -> None:
        """What was done last in the stages that are left is what became of them."""
        for stage, state in self._stages.items():
            if stage != current and state.endswith(" done"):
                back = state.startswith("<-") and stage not in self._rehearsed
                self._stages[stage] = "undone" if back else "ok"

    # --- lines -----------------------------------------------------------------------------------------

    def lines(self, width: int, height: int) -> list[Line]:
        """The view in at most ``height`` lines of at most ``width`` characters."""
        with self._guard:
            now = self._now()
            head: list[Line] = [(self._title, "bold"), (self._stage_line(width), "")]
            tail = [(line, style) for text, style in self._foot(now) for line in _wrapped(text, width, style)]
            room = max(_LEAST_HOSTS, height - len(head) - len(tail))
            lines = [*head, *self._host_lines(now, room), *tail]
        return [(_cut(text, width), style) for text, style in lines[: max(height, 1)]]

    def _stage_line(self, width: int) -> str:
        parts = []
        for stage, state in self._stages.items():
            mark = {"": "", "ok": " ok", "skipped": " skipped", "undone": " undone"}.get(state)
            parts.append(f"{stage}{mark}" if mark is not None else f"[{stage}: {state}]")
        current = next((i for i, part in enumerate(parts) if part.startswith("[")), 0)
        dropped = 0
        while dropped < current and len(_joined(parts[dropped:], dropped)) > width:
            dropped += 1
        return _joined(parts[dropped:], dropped)

    def _foot(self, now: float) -> list[Line]:
        lines: list[Line] = []
        if self._wave is not None:
            at, wave = self._wave
            left_s = None if wave.left_s is None else max(0.0, wave.left_s - (now - at))
            lines.append((words.how_far(wave.done, wave.of, wave.many, left_s), ""))
        if self._wait is not None and self._hold is None:
            lines += [(line, "") for line in _waiting(self._wait, self._pace, now)]
            lines += [(f"  {self._keys}", "dim")] if self._keys and not self._in_window else []
        if self._asked is not None:
            lines.append((f"a hold is asked for, {self._asked.where} ({self._asked.who})", "warn"))
        if self._hold is not None:
            lines.append((words.holding(replace(self._hold, left_s=None)), "warn"))
        if self._left is not None:
            left = max(0.0, self._left[1] - (now - self._left[0]))
            lines.append((f"{left:.1f} s left to turn back", "bad" if left < _URGENT_S else "bold"))
        return lines

    def hosts(self) -> list[str]:
        """A line for source, one for the produce canary and one for each host, however many there are."""
        with self._guard:
            return [text for text, _ in self._host_lines(self._now(), len(self._hosts) + 2)]

    # --- hosts -----------------------------------------------------------------------------------------

    def _host_lines(self, now: float, room: int) -> list[Line]:
        """A line for source and one for the produce canary, and one for each host as far as there is room:
        those in trouble first, then those that were changed last; in the order of the inventory."""
        source = [*self._source_line(now), *self._produce_line(now)]
        room -= len(source)
        shown = list(self._hosts)
        if len(shown) > room:
            rank = sorted(shown, key=lambda host: (not self._trouble(host), -self._hosts[host].at))
            kept = set(rank[: max(1, room - 1)])
            shown = [host for host in shown if host in kept]
        lines = source + [self._host_line(host, now) for host in shown]
        if hidden := len(self._hosts) - len(shown):
            bad = sum(self._trouble(host) for host in self._hosts if host not in shown)
            lines.append(
                (f" and {hidden} hosts more, {bad or 'none'} of them in trouble", "bad" if bad else "dim")
            )
        return lines

    def _host_line(self, host: str, now: float) -> Line:
        known = self._hosts[host]
        names = max((len(name) for name in self._hosts), default=0)
        looks = self._broker(host, now) or self._server(host, now)
        changed = ""
        if known.text:
            ago = (
                f" {_span(now - known.at)} ago" if known.status != "..." else f" for {_span(now - known.at)}"
            )
            changed = f"{known.status}{ago}: {known.text}"
        style = "bad" if self._trouble(host) else ""
        return f" {host:<{min(names, 24)}}  {looks:<28} {changed}".rstrip(), style

    def _trouble(self, host: str) -> bool:
        _, brokers = self._samples.get("brokers", (0.0, {}))
        return self._hosts[host].failed or host in brokers.get("silent", {})

    def _broker(self, host: str, now: float) -> str:
        """What the canary says of a broker, with its age; empty where it is none."""
        if "brokers" not in self._samples:
            return ""
        at, brokers = self._samples["brokers"]
        if host in brokers["ms"]:
            return f"answers in {brokers['ms'][host]:.0f} ms{_age(now - at)}"
        if host in brokers["silent"]:
            last = self._answered.get(host)
            return f"silent for {_span(now - last)}" if last is not None else "silent since the start"
        return ""

    def _server(self, host: str, now: float) -> str:
        """A dest host: its phase, its mode, and how far it is behind source's newest transaction, or that it
        is cut off from source."""
        parts = []
        at, phases = self._samples.get("phases", (now, {}))
        phase = str(phases.get("hosts", {}).get(host, [""])[0]) if now - at < _PHASE_S else ""
        cut = bool(phase) and phase not in _FOLLOWS_SOURCE
        at, ensembles = self._samples.get("ensembles", (now, {}))
        if (server := ensembles.get("servers", {}).get(host)) is not None:
            parts.append(str(server[0]))
            if len(server) > 1 and (cut or server[0] in _VOTES):
                parts.append("cut off from source")
            elif len(server) > 1 and (newest := self._newest()) is not None:
                parts.append(_behind(newest, int(server[1], 16)))
            parts[-1] += _age(now - at)
        return ", ".join([phase, *parts] if phase else parts)

    def _newest(self) -> int | None:
        """The newest zxid that a server of source told."""
        told = [int(s[1], 16) for s in self._source().values() if len(s) > 1]
        return max(told, default=None)

    def _source(self) -> dict[str, list[str]]:
        _, ensembles = self._samples.get("ensembles", (0.0, {}))
        return {h: s for h, s in ensembles.get("servers", {}).items() if h not in self._hosts}

    def _source_line(self, now: float) -> list[Line]:
        source = self._source()
        if not source:
            return []
        at, _ = self._samples["ensembles"]
        leads = [host for host, server in source.items() if server[0] in ("leader", "standalone")]
        serving = sum(len(server) > 1 for server in source.values())
        newest = self._newest()
        zxid = f", zxid 0x{newest:x}" if newest is not None else ""
        text = f" source: {', '.join(leads) or 'nobody'} leads, {serving} of {len(source)} serve{zxid}"
        return [(text + _age(now - at), "" if leads else "bad")]

    def _produce_line(self, now: float) -> list[Line]:
        """What the produce canary's newest records met; nothing where it sends none."""
        if "produce" not in self._samples or now - self._samples["produce"][0] > _PHASE_S:
            return []
        at, body = self._samples["produce"]
        if body["late"]:
            home, partition, since, why = max(body["late"], key=lambda late: float(late[2]))
            which = f"{body['topic']}-{partition}" if partition is not None else f"the partition of {home}"
            more = f", {len(body['late']) - 1} more" if len(body["late"]) > 1 else ""
            waited = since + max(0.0, now - at)
            return [(f" producer: {which} not acknowledged for {_span(waited)}{more}: {why}", "bad")]
        if not self._acked:
            return []
        slowest = max(ms for _, ms in self._acked.values())
        leaders = len({broker for broker, _ in self._acked.values()})
        count = len(self._acked)
        told = f"{count} partitions acknowledged by {leaders} brokers, the slowest in {slowest:.0f} ms"
        return [(f" producer: {told}{_age(now - at)}", "")]


def _waiting(wait: events.Waits, pace: Pace, now: float) -> list[str]:
    eta = pace.eta_s(now)
    about = f", about {_span(eta)} to go" if eta is not None else ""
    until = "" if wait.left_s is None else f"; gives up in {_span(wait.left_s)}"
    return [
        f"waits {_span(now - pace.since)} for {wait.what}{about}{until}",
        f"  {wait.progress}",
    ]


def _behind(newest: int, zxid: int) -> str:
    """How many transactions one zxid is behind another: only told within one epoch."""
    if newest >> 32 != zxid >> 32:
        return "another epoch"
    return f"{newest - zxid} behind" if newest > zxid else "level"


def _age(seconds: float) -> str:
    return f" ({_span(seconds)} old)" if seconds >= _OLD_S else ""


def _span(seconds: float) -> str:
    seconds = max(0.0, seconds)
    if seconds < 100:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 100 * 60 else f"{seconds / 3600:.1f} h"


def _joined(parts: list[str], dropped: int) -> str:
    return " ".join([*(["..."] if dropped else []), "  ".join(parts)])


def _wrapped(text: str, width: int, style: str) -> list[str]:
    """In full where somebody has to act on it, else one line."""
    return textwrap.wrap(text, max(width, 20), subsequent_indent="  ") if style == "warn" else [text]


def _cut(text: str, width: int) -> str:
    text = " ".join(text.splitlines())
    return text if len(text) <= width else text[: max(0, width - 3)] + "..."[: max(0, width)]
