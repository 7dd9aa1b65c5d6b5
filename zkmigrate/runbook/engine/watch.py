"""Renew the lease and run the probes beside the steps of a window; do nothing beside other steps.

From the first FENCE until clients are served again (by OPEN, or on the way back) one thread for each host
that has the lock sends ``renew FENCE_TTL CUT_TTL`` over a channel of its own. Going forward no TTL reaches
past the deadline, so that nothing keeps a host closed longer. Going back the TTLs are not shortened, because
the walk itself reopens the hosts. A window that is resumed after its deadline is renewed once, for the
shortest time. A host whose lease has ended reports that, and the run turns back for that reason; a host that
is still closed is reopened by that turn. A sealed host answers ``permanent``; after the SEAL step nothing is
renewed.

A window with ``renews=False`` is watched in the same way, but nothing is renewed.

Each probe runs in a thread, at its own interval. The watch never acts on the steps: it stores findings, and
the walk reads them between steps and while it waits.

A second process renews as well (:mod:`zkmigrate.runbook.engine.renewal_process`). A host that it reaches in
time gets no renewal from the thread; otherwise the thread renews and judges the answer.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Callable
from dataclasses import replace
from functools import partial

from zkmigrate import deadline
from zkmigrate.errors import HostError
from zkmigrate.hosts.parallel import together
from zkmigrate.inventory.inventory import Lease
from zkmigrate.runbook.engine.history import History
from zkmigrate.runbook.engine.ports import WatchPort
from zkmigrate.runbook.engine.renewal_process import SecondRenewer
from zkmigrate.runbook.model.change import Outcome
from zkmigrate.runbook.model.finding import Finding, Held
from zkmigrate.runbook.model.playbook import Stage
from zkmigrate.runbook.model.step import Context, Way
from zkmigrate.runbook.model.window import Probe, Trouble, WindowSpec, WindowSteps

_REFUSED = 3
LEAST_MS = 1
"""The shortest lease that zkm-host takes."""
_LATE = 1.5
"""Number of renewal periods after which the thread no longer waits for the second process's renewal."""
_UNHEARD_S = 30.0
"""Seconds for which the second process renews without a new order going forward, never past the deadline.

A walk of which one call held the interpreter stood still for 20 s; it must not lose its lease. A stopped walk
(SIGSTOP) keeps clients out for this long, but loses no session: the hosts go back by themselves by the
deadline. The deadline does not limit the way back: there the order lasts as long as the fence, as if the
walk's threads had sent the last renewal.
"""

Renew = Callable[[str, int, int], Outcome]
"""``renew(host, fence_ttl_ms, cut_ttl_ms)`` over the host's second channel.

Raises HostError if it was not delivered, well within the cut's TTL.
"""


class Watch(WatchPort):
    """The watch of one run.

    now, wall: the engine's clocks. probes: returns the probes of a stage. second: the second process.
    """

    def __init__(
        self,
        hosts: tuple[str, ...],
        renew: Renew,
        now: Callable[[], float],
        wall: Callable[[], float],
        probes: Callable[[Stage], tuple[Probe, ...]] = lambda _stage: (),
        second: SecondRenewer | None = None,
    ) -> None:
        self._hosts, self._renew, self._probes = hosts, renew, probes
        self._now, self._wall = now, wall
        self._second = second or SecondRenewer()
        self._guard = threading.Lock()
        self._found: dict[tuple[str, str], Finding] = {}
        self._answered: dict[tuple[str, str], Finding] = {}
        self._session: _Session | None = None
        self._first_line: int | None = None

    def follow(self, stage: Stage, history: History, context: Context, /) -> None:
        """Start, continue or stop the threads of a window, as the journal says."""
        if self._first_line is None:
            self._first_line = history.entries
        if stage.window is None:
            self._stop()
            return
        steps = stage.window.steps
        fenced = history.first_sent.get(f"{stage.id}.{steps.begins}")
        if fenced is None:
            self._stop()
            if stage.window.renews:
                self._second.ready()
            return
        if f"{stage.id}.{steps.opens}" in history.done:
            self.close()
            return
        begun = self._session is None
        session = self._leased(stage.window, fenced, context)
        session.renewing = f"{stage.id}.{steps.seals}" not in history.done
        session.back = history.way is Way.BACK
        cut = f"{stage.id}.{steps.cuts}" in history.first_sent
        session.silence_ms = session.lease.cut_ttl_ms if cut else session.lease.fence_ttl_ms
        renewed = self._hosts if stage.window.renews else ()
        if begun:
            together({h: partial(self._round, session, h, self._now(), LEAST_MS) for h in renewed})
            for host in renewed:
                session.run(f"renew-{host}", partial(self._renewer, session, host))
            self._probe(session, stage)
        if renewed:
            self._order(session)

    def _leased(self, window: WindowSpec, fenced: tuple[int, float, float], context: Context) -> _Session:
        """Return the session of this window; begin it if there is none.

        The deadline counts from the first FENCE: by the monotonic clock if this process sent it, else by the
        wall clock.
        """
        if self._session is not None:
            return self._session
        self._stop()
        self._answered.clear()
        line, at_wall, at_mono = fenced
        here = self._first_line is not None and line > self._first_line
        since = at_mono if here else self._now() - max(0.0, self._wall() - at_wall)
        deadline = since + window.deadline_s(context)
        self._session = _Session(window, deadline, window.lease(context))
        return self._session

    def finding(self) -> Finding | None:
        """Return the first blocking finding that the walk has not answered; a lapsed lease comes first."""
        session = self._session
        with self._guard:
            if session is not None and session.renewing and self._now() >= session.deadline:
                self._found.setdefault(("", Trouble.DEADLINE), past_deadline(session.steps))
            open_ = [
                f
                for key, f in self._found.items()
                if f.blocks and not (key in self._answered and self._answered[key].held is f.held)
            ]
        return min(open_, key=lambda f: f.id != Trouble.LEASE_LAPSED, default=None)

    def answered(self, finding: Finding, /) -> None:
        with self._guard:
            self._answered[(finding.target, finding.id)] = finding

    def left_s(self) -> float | None:
        """Return the seconds until the way back must start; None without a renewed lease or a deadline."""
        session = self._session
        if session is None or not session.renewing or math.isinf(session.deadline):
            return None
        return session.deadline - self._now()

    def close(self) -> None:
        """Stop all threads and wait for them. A lease that is not sealed ends by itself from now on."""
        self._stop()
        self._second.close()

    # --- threads ---------------------------------------------------------------------------------------

    def _probe(self, session: _Session, stage: Stage) -> None:
        for probe in self._probes(stage):
            session.run(f"probe-{probe.name}", partial(self._prober, session, probe))

    def _stop(self) -> None:
        if self._session is not None:
            self._session.end()
            if self._session.renews:
                self._second.renew(self._session.lease, 0.0)
            self._session = None
        # The findings belong to the window that has ended: a renewal that came after the rehearsal had
        # reopened a door must not turn the next window back.
        with self._guard:
            self._found.clear()

    def _renewer(self, session: _Session, host: str) -> None:
        delivered = self._now()
        period = session.lease.renew_every_ms / 1000
        while not session.over.wait(period):
            self._order(session)
            delivered = max(delivered, self._second.reached(host))
            if not session.renewing:
                delivered = self._now()
            elif self._now() - self._second.reached(host) > _LATE * period:
                delivered = self._round(session, host, delivered)
            else:
                self._clear(host, Trouble.HOST_UNREACHABLE)

    def _order(self, session: _Session) -> None:
        """Set the time until which the second process may renew."""
        if not session.renewing:
            until = 0.0
        elif session.back:
            until = self._now() + session.lease.fence_ttl_ms / 1000
        else:
            until = min(session.deadline, self._now() + _UNHEARD_S)
        self._second.renew(session.lease, until)

    def _round(self, session: _Session, host: str, delivered: float, least_ms: int = 0) -> float:
        """Renew the lease of one host once, for at least ``least_ms`` even after the deadline.

        delivered: when a renewal last reached the host. Return the new value of ``delivered``.
        """
        left_ms = math.inf if session.back else max(least_ms, (session.deadline - self._now()) * 1000)
        if left_ms < LEAST_MS:
            return delivered
        fence_ms, cut_ms = (
            int(min(ttl, left_ms)) for ttl in (session.lease.fence_ttl_ms, session.lease.cut_ttl_ms)
        )
        try:
            outcome = self._renew(host, fence_ms, cut_ms)
        except HostError as error:
            delivered = max(delivered, self._second.reached(host))
            silent = self._now() - delivered
            if silent * 1000 > session.silence_ms:
                self._store(_undelivered(host, silent, str(error)))
            return delivered
        if outcome.rc == _REFUSED and "lapsed" in outcome.output:
            self._store(_lapsed(host))
        elif outcome.rc:
            self._store(_undelivered(host, self._now() - delivered, outcome.output.strip()))
        else:
            self._clear(host, Trouble.HOST_UNREACHABLE)
        return self._now()

    def _prober(self, session: _Session, probe: Probe) -> None:
        while not session.over.wait(probe.every_s):
            if probe.leased and not session.renewing:
                continue
            try:
                with deadline.within(probe.within_s):
                    findings = tuple(probe.ask())
            except Exception as error:  # a failed probe is itself a finding
                seen = f"{type(error).__name__}: {error}"
                claim = f"the probe {probe.name} answers"
                findings = (Finding(Trouble.LOOK_UNKNOWN, claim, Held.UNKNOWN, seen=seen, target=probe.name),)
            else:
                self._clear(probe.name, Trouble.LOOK_UNKNOWN)
            for finding in findings:
                self._store(finding)

    def _store(self, finding: Finding) -> None:
        with self._guard:
            self._found[(finding.target, finding.id)] = finding

    def _clear(self, target: str, id: str) -> None:
        with self._guard:
            if (found := self._found.get((target, id))) is not None:
                self._found[(target, id)] = replace(found, held=Held.YES)


class _Session:
    """The threads that run beside one window, from FENCE until clients are served again."""

    def __init__(self, window: WindowSpec, deadline: float, lease: Lease) -> None:
        self.steps, self.renews, self.deadline, self.lease = window.steps, window.renews, deadline, lease
        self.renewing, self.back, self.silence_ms = True, False, 0
        self.over = threading.Event()
        self._threads: list[threading.Thread] = []

    def run(self, name: str, work: Callable[[], None]) -> None:
        thread = threading.Thread(target=work, name=name, daemon=True)
        self._threads.append(thread)
        thread.start()

    def end(self) -> None:
        self.over.set()
        for thread in self._threads:
            thread.join(timeout=5.0)


def _lapsed(host: str) -> Finding:
    seen = "no renewal came in time, and the host went back by itself"
    claim, needed = (
        "the block on the host held without a gap",
        "the block's entries still exist at every renewal",
    )
    moves = ("let the run walk back, then run again",)
    return Finding(Trouble.LEASE_LAPSED, claim, Held.NO, seen=seen, needed=needed, moves=moves, target=host)


def _undelivered(host: str, silent: float, why: str) -> Finding:
    claim, needed = "the lease is renewed on the host", "a renewal within the lease's time"
    seen = f"no renewal was delivered for {silent:.1f} s: {why}"
    moves = ("let the run walk back, then fix the connection",)
    return Finding(
        Trouble.HOST_UNREACHABLE, claim, Held.UNKNOWN, seen=seen, needed=needed, moves=moves, target=host
    )


def past_deadline(steps: WindowSteps) -> Finding:
    """Return the finding that the deadline for the way back has passed.

    A way back that begins later loses sessions, or comes after requests have continued by themselves.
    """
    claim = "there is still time to turn back before clients notice"
    seen, needed = "the deadline for the way back has passed", f"{steps.seals.upper()} before the deadline"
    moves = ("let the run walk back",)
    return Finding(Trouble.DEADLINE, claim, Held.NO, seen=seen, needed=needed, moves=moves)
