"""Judge the state of a window after its process has died, and describe that state to the operator.

The judgement follows from the journal, the state of the hosts, and the time. Only :func:`asked` and
:func:`by_hosts` connect to hosts.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from zkmigrate.errors import RecordError
from zkmigrate.inventory.inventory import Inventory
from zkmigrate.runbook.engine.history import History
from zkmigrate.runbook.model.look import Look
from zkmigrate.runbook.model.playbook import Playbook, Stage
from zkmigrate.runbook.model.step import Context, Way
from zkmigrate.runbook.model.window import Loss, Stand, Unattended, WindowSpec
from zkmigrate.runbook.ui import sentences

SHUT_OUT = 12
"""Exit code of ``status``: clients are, or may be, shut out, and no process works on the run."""

Stands = Mapping[str, Stand]


class Kind(StrEnum):
    """The state in which a window was left.

    LEASED: no host is sealed, so every host opens by itself. PARTLY: some hosts are sealed. SEALED: all hosts
    are sealed. GOING: at least one host may have been told to finish. BACK: the run was on its way back.
    REOPENED: all hosts reopened by themselves, as before the window. OPENED: most hosts opened by themselves
    on the new side. In all states but these two, hosts shut clients out or may do so.
    """

    LEASED = "leased"
    PARTLY = "partly sealed"
    SEALED = "sealed"
    GOING = "going"
    BACK = "way back"
    REOPENED = "reopened"
    OPENED = "opened"


@dataclass(frozen=True)
class LeftWindow:
    """A window in which clients were shut out when its process died.

    since: when clients were shut out, in seconds since the epoch; None if the journal does not say.
    at: the present time, in seconds since the epoch.
    stands: the state of each host; None if no host was asked.
    alone_s, loss: the values of ``Unattended``; None if the run's records do not say.
    heading: the direction in which ``resume`` goes, by the journal.
    left: how the process ended, in words.
    """

    kind: Kind
    stage: Stage
    window: WindowSpec
    unattended: Unattended
    since: float | None
    at: float
    stands: Stands | None
    alone_s: float | None
    loss: Loss | None
    heading: str
    left: str

    @property
    def code(self) -> int:
        """The exit code of ``status``."""
        return 0 if self.kind in (Kind.REOPENED, Kind.OPENED) else SHUT_OUT

    def body(self, command: str) -> dict[str, Any]:
        """Return the window as JSON, with its lines.

        command: the command that continues the run; empty where unknown.
        """
        runs_out = None if self.loss is None or self.since is None else self.since + self.loss.from_s
        do_now = [f"do now: {command} ({self.follows()})"] if command else []
        return {
            "kind": self.kind.value,
            "code": self.code,
            "since": self.since,
            "runs_out": runs_out,
            "stands": None if self.stands is None else {h: s.name.lower() for h, s in self.stands.items()},
            "lines": [*self.lines(), *do_now],
        }

    def lines(self) -> list[str]:
        """Return lines: the headline, the hosts' next actions, each host's state, and the loss of clients."""
        where = [f"{', '.join(hosts)}: {stand.value}" for stand, hosts in self._by_stand().items()]
        return [self._headline(), *self._alone(), *where, *self._loss()]

    def follows(self) -> str:
        """Return a clause that says what ``resume`` does."""
        back = self.heading if self.heading != "forward" else f"back to the start of {self.stage.id}"
        steps = self.window.steps
        match self.kind:
            case Kind.SEALED | Kind.GOING if self.heading == "forward":
                go, opens = f"{self.stage.id}.{steps.goes}", f"{self.stage.id}.{steps.opens}"
                costs = f"after {opens} every way back has a cost"
                return f"the run goes forward: {go} and {opens} follow, and {costs}"
            case Kind.OPENED:
                return "the run goes forward: hosts have opened, and every way back has a cost"
            case Kind.PARTLY if self._open():
                return f"the run walks {back}, because a lease has ended"
            case Kind.LEASED | Kind.PARTLY if self.heading == "forward":
                return f"the run walks {back}, or goes forward if no lease has ended"
        return f"the run walks {back}"

    def _headline(self) -> str:
        unattended, died = self.unattended, self.left
        if self.kind is Kind.REOPENED:
            return f"{died}; the {unattended.many} reopened by themselves: {unattended.opened}"
        if self.kind is Kind.OPENED:
            stands = list((self.stands or {}).values())
            many = f"{stands.count(Stand.AFTER)} of {len(stands)} {unattended.many}"
            return f"{died}; {many} went forward and opened by themselves: {unattended.opened}"
        may = "it may be that " if self.stands is None and self.kind in (Kind.LEASED, Kind.GOING) else ""
        since = ""
        if self.since is not None:
            since = f" since {sentences.local_time(self.since)}, for {_span(self.at - self.since)}"
        hosts = len(self.stands or ())
        still = f"{unattended.still} {hosts - len(self._open())} of {hosts} {unattended.many}"
        return f"DANGER: {died}; {may}{still if self._open() else unattended.shut}{since}"

    def _alone(self) -> list[str]:
        """Return lines about the actions of the hosts without an operator."""
        one, many = self.unattended.one, self.unattended.many
        limit = "" if self.alone_s is None else f", at the latest {self.alone_s:g} s after the last renewal"
        shut = f"a sealed {one} stays closed to clients until this run continues"
        leased = f"{many} that are not sealed open by themselves{limit}"
        alone = {
            Kind.LEASED: [f"no {one} is sealed: the {many} open by themselves{limit}"],
            Kind.PARTLY: [f"{shut}; {leased}"],
            Kind.SEALED: [f"every {one} is sealed: none opens by itself, however long you wait"],
            Kind.GOING: [
                f"a {one} with the order to finish opens by itself once enough {many} serve; {shut}"
            ],
            Kind.BACK: [f"{shut}; {leased}"],
        }.get(self.kind, [])
        asked = self.stands is not None or self.kind is Kind.SEALED
        return (
            alone
            if asked
            else [
                *alone,
                "the journal does not show whether the {many} have opened; run status without --offline",
            ]
        )

    def _loss(self) -> list[str]:
        if self.kind is Kind.OPENED or self.loss is None or self.since is None:
            return []
        runs_out = self.since + self.loss.from_s
        if self.kind is Kind.REOPENED:
            return [
                f"{self.loss.what}: kept by clients that were back before {sentences.local_time(runs_out)}"
            ]
        left = runs_out - self.at
        when = f"in {_span(left)}" if left > 0 else f"{_span(-left)} ago"
        if self.loss.forward and self.kind in (Kind.SEALED, Kind.GOING) and self.heading == "forward":
            lost = f"a way back loses {self.loss.what} from {sentences.local_time(runs_out)} on ({when})"
            return [f"{lost}. {self.loss.forward}"]
        who = ", for clients that are not back by then" if self._open() else ""
        return [f"{self.loss.what} run out from {sentences.local_time(runs_out)} on ({when}){who}"]

    def _open(self) -> list[str]:
        """Return the hosts through which clients reach the service."""
        return [host for host, stand in (self.stands or {}).items() if stand in (Stand.BEFORE, Stand.AFTER)]

    def _by_stand(self) -> dict[Stand, list[str]]:
        by_stand: dict[Stand, list[str]] = {}
        for host, stand in (self.stands or {}).items():
            by_stand.setdefault(stand, []).append(host)
        return by_stand


def shut_stage(history: History, playbook: Playbook, inventory: Inventory) -> Stage | None:
    """Return the stage whose window shut clients out and has not opened again, by the journal.

    A rehearsal that puts no client at risk does not count.
    """
    for stage in playbook.stages:
        window = stage.window
        if window is None or window.unattended is None:
            continue
        begun = f"{stage.id}.{window.steps.begins}" in history.first_sent
        if not begun or f"{stage.id}.{window.steps.opens}" in history.done:
            continue
        if not (stage.rehearsal and math.isinf(window.deadline_s(_context(history, stage, inventory)))):
            return stage
    return None


def asked(history: History, playbook: Playbook, inventory: Inventory, look: Look) -> Stands | None:
    """Return the state of the hosts in the window that shuts clients out; None without such a window."""
    stage = shut_stage(history, playbook, inventory)
    unattended = stage.window.unattended if stage is not None and stage.window is not None else None
    return None if unattended is None else unattended.stands(inventory, look)


def judged(
    history: History, playbook: Playbook, inventory: Inventory, stands: Stands | None, now: float
) -> LeftWindow | None:
    """Judge the window that a dead process left; return None if it shut no client out.

    stands: the state of each host, None if no host was asked. now: seconds since the epoch.
    """
    stage = shut_stage(history, playbook, inventory)
    left = "the operator's process died" if history.ended is None else "no process works on this run"
    return None if stage is None else _judged(history, stage, inventory, stands, now, left)


def by_hosts(
    history: History, playbook: Playbook, inventory: Inventory, look: Look, now: float
) -> LeftWindow | None:
    """Judge the window of a run without a readable journal, by the state of its hosts.

    history: what the remaining lines of the journal say. now: seconds since the epoch. Returns None if the
    hosts shut no client out.
    """
    windows = (stage for stage in playbook.stages if stage.window is not None and not stage.rehearsal)
    stage = shut_stage(history, playbook, inventory) or next(windows, None)
    if stage is None or stage.window is None or stage.window.unattended is None:
        return None
    stands = stage.window.unattended.stands(inventory, look)
    if not {Stand.LEASED, Stand.SEALED, Stand.FINISHING}.intersection(stands.values()):
        return None
    return _judged(history, stage, inventory, stands, now, "the journal of this run cannot be read")


def _judged(
    history: History, stage: Stage, inventory: Inventory, stands: Stands | None, now: float, left: str
) -> LeftWindow | None:
    window = stage.window
    if window is None or window.unattended is None:
        return None
    since, alone_s, loss = None, None, None
    if sent := history.first_sent.get(f"{stage.id}.{window.steps.begins}"):
        since, context = sent[1], _context(history, stage, inventory)
        with contextlib.suppress(RecordError):
            alone_s, loss = window.unattended.alone_s(context), window.unattended.loss(context)
    kind = _kind(history, stage, window, stands or {})
    return LeftWindow(
        kind, stage, window, window.unattended, since, now, stands, alone_s, loss, history.heading, left
    )


def _kind(history: History, stage: Stage, window: WindowSpec, stands: Stands) -> Kind:
    """Judge how the window was left: by the hosts' states, and by the journal where hosts do not answer."""
    seen, steps = set(stands.values()), window.steps
    sent = {step for step in (steps.seals, steps.goes) if f"{stage.id}.{step}" in history.first_sent}
    if list(stands.values()).count(Stand.AFTER) * 2 > len(stands):
        return Kind.OPENED
    if seen == {Stand.BEFORE}:
        return Kind.REOPENED
    if history.way is Way.BACK:
        return Kind.BACK
    unsure = not seen or Stand.UNHEARD in seen
    if seen & {Stand.FINISHING, Stand.AFTER} or (unsure and steps.goes in sent):
        return Kind.GOING
    by_journal = unsure and f"{stage.id}.{steps.seals}" in history.done
    if seen == {Stand.SEALED} or (seen <= {Stand.SEALED, Stand.UNHEARD} and by_journal):
        return Kind.SEALED
    return Kind.PARTLY if Stand.SEALED in seen or (unsure and sent) else Kind.LEASED


def _context(history: History, stage: Stage, inventory: Inventory) -> Context:
    return Context(
        history.run, inventory, rehearsal=stage.rehearsal, way=history.way, records=history.records()
    )


def _span(seconds: float) -> str:
    minutes, rest = divmod(round(max(0.0, seconds)), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes} min" if hours else f"{minutes} min {rest} s" if minutes else f"{rest} s"
