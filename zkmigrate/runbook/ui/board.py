"""Make the lines of the live view from events and samples.

Thread-safe: events come from the walk, samples from their own threads, and another thread draws.
"""

from __future__ import annotations

import re
import textwrap
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from zkmigrate.runbook.engine import events
from zkmigrate.runbook.engine.history import REHEARSED
from zkmigrate.runbook.model.change import Change, ClusterChange
from zkmigrate.runbook.model.report import counted
from zkmigrate.runbook.model.sampling import View, span
from zkmigrate.runbook.model.step import Way
from zkmigrate.runbook.ui import sentences

Line = tuple[str, str]
"""A line and its style; the style is empty, ``bold``, ``dim``, ``warn`` or ``bad``."""

_LEAST_HOSTS = 3
_URGENT_S = 3.0
_OF = re.compile(r"(\d[\d,]*(?:\.\d+)?) of (\d[\d,]*(?:\.\d+)?)")
_COUNT = re.compile(r"(\d[\d,]*) ")
_LEAST_PACE_S = 3.0


class Pace:
    """An estimate of the rest of a wait, from its progress so far.

    The progress is text such as ``3 of 5``, or begins with the remaining count.
    """

    def __init__(self) -> None:
        self._what = ""
        self._first: tuple[float, float] | None = None
        self._last: tuple[float, float] | None = None
        self.since = 0.0

    def note(self, what: str, progress: str, now: float) -> None:
        """Record the progress of a wait.

        what: what the run waits for; another text starts a new estimate. now: seconds on the board's clock.
        """
        if what != self._what:
            self._what, self._first, self._last, self.since = what, None, None, now
        left = _left(progress)
        if left is None:
            return
        if self._first is None or left > self._first[1]:
            self._first = (now, left)  # more is left than before: start again
        self._last = (now, left)

    def eta_s(self, now: float) -> float | None:
        """Return the remaining seconds at the pace so far; None while that is unknown."""
        if self._first is None or self._last is None:
            return None
        (began, most), (at, left) = self._first, self._last
        if at - began < _LEAST_PACE_S or left >= most:
            return None
        return max(0.0, left * (at - began) / (most - left) - (now - at))


def _left(progress: str) -> float | None:
    if found := _OF.search(progress):
        return max(0.0, _number(found[2]) - _number(found[1]))
    if counted := _COUNT.match(progress):
        return _number(counted[1])
    return None


def _number(text: str) -> float:
    return float(text.replace(",", ""))


@dataclass
class _Host:
    """The last change of one host. at: its time on the board's clock."""

    text: str = ""
    status: str = ""
    at: float = 0.0

    @property
    def failed(self) -> bool:
        return self.status in ("failed", "unknown")


class Board:
    """The content of the live view.

    now: the process's monotonic clock, which also dates samples. keys: a line on the keys that work while the
    run waits outside the window. views: how the playbook shows its samples.
    """

    def __init__(self, now: Callable[[], float], keys: str = "", views: Sequence[View] = ()) -> None:
        self._now = now
        self._keys = keys
        self._views = tuple(views)
        self._in_window = False
        self._lock = threading.Lock()
        self._title = ""
        self._hosts: dict[str, _Host] = {}
        self._clusters: set[str] = set()
        self._sent: dict[str, Change] = {}
        self._stages: dict[str, str] = {}
        self._rehearsed: set[str] = set()
        self._wait: events.Waits | None = None
        self._pace = Pace()
        self._hold: events.Holding | None = None
        self._request: events.HoldAsked | None = None
        self._asks: tuple[float, events.Asking] | None = None
        self._countdown: tuple[float, float] | None = None
        self._wave: tuple[float, events.WaveBegun | events.StepBegun | events.Progressed] | None = None

    def sample(self, mono: float, kind: str, body: Mapping[str, Any]) -> None:
        """Take in a sample (``runbook/engine/samples.py``). mono: its time on the monotonic clock."""
        with self._lock:
            for view in self._views:
                view.take(mono, kind, body)

    def take(self, event: events.Event) -> None:
        """Take in an event."""
        with self._lock:
            self._take(event)

    def _take(self, event: events.Event) -> None:
        match event:
            case events.RunBegun():
                self._title = f"run {event.run}: {event.playbook}"
                self._hosts = {host: _Host() for host in event.hosts}
                self._stages = {id: "" for id, _ in event.stages} | dict(event.over)
            case events.StageBegun():
                self._countdown = None  # the next countdown sets it again
                self._finish_stages(event.stage)
                self._in_window = event.window
                self._stages[event.stage] = "<-" if event.way is Way.BACK else "begins"
            case events.StageSkipped():
                self._stages[event.stage] = "skipped"
            case events.StepBegun():
                self._wait, self._hold = None, None
                self._wave = (self._now(), event) if event.of else None
                self._stages[event.stage] = f"{_arrow(event.way)}{event.step}"
            case events.StepEnded():
                self._wait, self._hold, self._countdown, self._wave = None, None, None, None
                self._stages[event.stage] = f"{_arrow(event.way)}{event.step} done"
            case events.StepBlocked():
                self._stages[event.stage] = f"{event.step} blocked"
            case events.WaveBegun():
                self._wait = None
                self._wave = (self._now(), event) if event.of else self._wave
            case events.Progressed():
                self._wave = (self._now(), event)
            case events.ChangeSent():
                self._sent[event.operation] = event.change
                self._clusters |= {event.change.where} if isinstance(event.change, ClusterChange) else set()
                self._hosts[event.change.where] = _Host(event.change.describe(), "...", self._now())
            case events.ChangeEnded():
                self._ended(event)
            case events.Waits():
                self._wait = event
                self._pace.note(event.what, event.progress, self._now())
            case events.Countdown():
                self._countdown = (self._now(), event.left_s)
            case events.HoldAsked():
                self._request = event
            case events.Asking():
                self._asks = (self._now(), event) if event.keys else None
            case events.Consented():
                self._asks, self._wait = None, None
            case events.Holding():
                self._wait, self._hold, self._request = None, event, None
                self._countdown = None if event.left_s is None else (self._now(), event.left_s)
            case events.HoldEnded():
                self._hold, self._request = None, None
            case events.Turned():
                self._wait, self._hold, self._countdown = None, None, None
                if event.why == REHEARSED:
                    self._rehearsed.add(event.to)
            case events.RunEnded():
                self._wait, self._hold, self._countdown = None, None, None
                self._finish_stages("")

    def _ended(self, event: events.ChangeEnded) -> None:
        """Record the outcome of a change in the row of its host or cluster.

        The target of a cluster's change may be a partition or a topic, which has no row.
        """
        sent = self._sent.pop(event.operation, None)
        where = event.target if sent is None else sent.where
        if sent is None and where not in self._hosts:  # its place is not on the board
            return
        text = self._hosts.get(where, _Host()).text if sent is None else sent.describe()
        self._hosts[where] = _Host(text, event.status, self._now())

    def _finish_stages(self, current: str) -> None:
        """Set each stage but the current one to the outcome of its last step."""
        for stage, state in self._stages.items():
            if stage != current and state.endswith(" done"):
                back = state.startswith("<-") and stage not in self._rehearsed
                self._stages[stage] = "undone" if back else "ok"

    # --- lines -----------------------------------------------------------------------------------------

    def lines(self, width: int, height: int) -> list[Line]:
        """Return the view in at most ``height`` lines of at most ``width`` characters."""
        with self._lock:
            now = self._now()
            head: list[Line] = [(self._title, "bold"), (self._stage_line(width), "")]
            tail = [
                (line, style) for text, style in self._footer(now) for line in _wrapped(text, width, style)
            ]
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

    def _footer(self, now: float) -> list[Line]:
        lines: list[Line] = []
        if self._wave is not None and self._hold is None:  # a hold shows the progress itself
            at, wave = self._wave
            left_s = None if wave.left_s is None else max(0.0, wave.left_s - (now - at))
            bytes_left = wave.bytes_left if isinstance(wave, events.Progressed) else None
            lines.append((sentences.progress(wave.done, wave.of, wave.many, left_s, bytes_left), ""))
        if self._wait is not None and self._hold is None and self._asks is None:
            reports_time = self._wave is not None and isinstance(self._wave[1], events.Progressed)
            eta_s = (
                None if reports_time else self._pace.eta_s(now)
            )  # a step that reports its time left knows better
            lines += [(line, "") for line in _waiting(self._wait, now - self._pace.since, eta_s)]
            lines += [(f"  {self._keys}", "dim")] if self._keys and not self._in_window else []
        if self._request is not None:
            lines.append((f"a hold is requested, {self._request.where} ({self._request.who})", "warn"))
        if self._hold is not None:
            lines.append((sentences.holding(replace(self._hold, left_s=None)), "warn"))
        if self._asks is not None:
            at, asks = self._asks
            answer_s = "" if asks.left_s is None else f" ({span(asks.left_s - (now - at))} left)"
            lines.append((f"asks about {asks.where}: {asks.keys}{answer_s}", "warn"))
        if self._countdown is not None:
            left = max(0.0, self._countdown[1] - (now - self._countdown[0]))
            lines.append((f"{left:.1f} s left to turn back", "bad" if left < _URGENT_S else "bold"))
        return lines

    def hosts(self) -> list[str]:
        """Return the lines of the views and a line for each host, however many there are."""
        with self._lock:
            return [text for text, _ in self._host_lines(self._now(), len(self._hosts) + len(self._views))]

    # --- hosts -----------------------------------------------------------------------------------------

    def _host_lines(self, now: float, room: int) -> list[Line]:
        """Return the views' lines, then as many hosts as fit, in the inventory's order.

        If not all fit, hosts in trouble are kept first, then those changed last.
        """
        view_lines = [line for view in self._views if (line := view.head(self._hosts, now)) is not None]
        heads = [(f" {text}", "bad" if bad else "") for text, bad in view_lines]
        room -= len(heads)
        shown = list(self._hosts)
        if len(shown) > room:
            rank = sorted(shown, key=lambda host: (not self._trouble(host), -self._hosts[host].at))
            kept = set(rank[: max(1, room - 1)])
            shown = [host for host in shown if host in kept]
        lines = heads + [self._host_line(host, now) for host in shown]
        if hidden := len(self._hosts) - len(shown):
            left = self._hosts.keys() - set(shown)
            bad, clusters = sum(map(self._trouble, left)), len(left & self._clusters)
            more = [counted(hidden - clusters, "more host")] if hidden > clusters else []
            more += [counted(clusters, "more cluster")] if clusters else []
            many = " and ".join(more)
            lines.append((f" and {many}, {bad or 'none'} of them in trouble", "bad" if bad else "dim"))
        return lines

    def _host_line(self, host: str, now: float) -> Line:
        known = self._hosts[host]
        names = max((len(name) for name in self._hosts), default=0)
        looks = next(filter(None, (view.host(host, self._hosts, now) for view in self._views)), "")
        changed = ""
        if known.text:
            ago = f" {span(now - known.at)} ago" if known.status != "..." else f" for {span(now - known.at)}"
            changed = f"{known.status}{ago}: {known.text}"
        style = "bad" if self._trouble(host) else ""
        return f" {host:<{min(names, 24)}}  {looks:<28} {changed}".rstrip(), style

    def _trouble(self, host: str) -> bool:
        return self._hosts[host].failed or any(view.troubled(host) for view in self._views)


def _arrow(way: Way) -> str:
    return "<- " if way is Way.BACK else ""


def _waiting(wait: events.Waits, for_s: float, eta_s: float | None) -> list[str]:
    about = f", about {span(eta_s)} to go" if eta_s is not None else ""
    until = "" if wait.left_s is None else f"; gives up in {span(wait.left_s)}"
    return [
        f"{sentences.waits_for(wait.what, wait.left_s)}, {span(for_s)} so far{about}{until}",
        f"  {wait.progress}",
    ]


def _joined(parts: list[str], dropped: int) -> str:
    return " ".join([*(["..."] if dropped else []), "  ".join(parts)])


def _wrapped(text: str, width: int, style: str) -> list[str]:
    """Wrap a warning to all lines it needs; leave other text as one line."""
    return textwrap.wrap(text, max(width, 20), subsequent_indent="  ") if style == "warn" else [text]


def _cut(text: str, width: int) -> str:
    text = " ".join(text.splitlines())
    return text if len(text) <= width else text[: max(0, width - 3)] + "..."[: max(0, width)]
