"""What: stop the empty brokers, one after the other, the active controller last. A replica that is created on
a broker before it stops is moved first; a partition that names a stopped broker is moved afterwards.

Why now: two queries found no partition with a replica on these brokers.

Clients may notice: nothing of an empty broker. A topic that is created while one stops may lack a replica
until it is moved.

Way back: the brokers start again; then each partition that this step moved gets its former replica list.

Proof: the brokers' services are down, and neither the cluster nor any partition names these brokers.
"""

from __future__ import annotations

from dataclasses import replace

from zkmigrate.cluster.reassign.moves import LateStragglers, Stragglers
from zkmigrate.cluster.removal.disks import identified, starts_as_itself
from zkmigrate.cluster.removal.section import removal, stoppable
from zkmigrate.cluster.removal.survey import naming
from zkmigrate.cluster.removal.sweep_step import SweepFacts, SweepStep, born_late
from zkmigrate.hosts.facts.status import runs, unit_status
from zkmigrate.kafka.facts.broker import broker_service
from zkmigrate.kafka.questions import DescribeCluster, KafkaView, PartitionState
from zkmigrate.runbook.model.change import Applied, Changes
from zkmigrate.runbook.model.fact import Seen
from zkmigrate.runbook.model.finding import Finding, blocking, claim, few, meanings
from zkmigrate.runbook.model.look import Look
from zkmigrate.runbook.model.step import Blocked, Context, Done, Hazard, Ready, Verdict, Waiting, Way

_STOP = ".stop"
"""The suffix that marks a target as a host to stop. No partition's name ends with this suffix.

The suffix has no colon, because zkm-host accepts none in an operation id.
"""
STOPS_S = 600.0
"""Seconds to wait for a stop, or for a start until the broker is registered."""
TRIES = 3
"""How many times a broker is stopped before the step gives up."""


class StopStep(SweepStep):
    id = LateStragglers.step
    title = "Stop the brokers"
    hazard = Hazard.REVERSIBLE
    record = LateStragglers

    def observe(self, c: Context, look: Look) -> SweepFacts:
        f = super().observe(c, look)
        service, kafka = c.inventory.kafka.service, c.inventory.kafka
        services = look.each(
            stoppable(c.inventory), lambda host: unit_status(look, host, service.unit, kafka.commands(host))
        )
        asked = c.way is Way.BACK or f.every is not None
        down = [host for host in self._stopped(c) if c.way is Way.BACK and runs(services[host]) is False]
        same = identified(c.inventory, look, down)
        return replace(
            f, services=services, identities=same, view=look.ask(DescribeCluster(2)) if asked else None
        )

    def check(self, c: Context, f: SweepFacts) -> Verdict:
        limit = c.inventory.policy.step_deadline_s
        if silent := [f"{host}: {told}" for host, told in f.services.items() if runs(told) is None]:
            what = "the hosts report whether their brokers run"
            return Waiting(what, few(silent), limit, poll_s=1.0, keep=c.kept)
        if c.way is Way.BACK and (starts := self._start(c, f)):
            return starts
        return super().check(c, f)

    def _start(self, c: Context, f: SweepFacts) -> Verdict | None:
        """Start the brokers that this run has stopped, and wait for them.

        Return None once all are registered.
        """
        stopped = [host for host in self._stopped(c) if host in f.services]
        same = tuple(starts_as_itself(host, told) for host, told in f.identities.items())
        if blocking(same):
            return Blocked(same)
        if down := tuple(f"{host}{_STOP}" for host in stopped if not runs(f.services[host])):
            return Ready(down, same)
        here = f.view.value.brokers if isinstance(f.view, Seen) else {}
        if away := [host for host in stopped if c.inventory.broker(host).id not in here]:
            what = "the brokers that were started are registered"
            return Waiting(what, few(away), STOPS_S, poll_s=1.0, keep=c.kept)
        return None

    def _stopped(self, c: Context) -> tuple[str, ...]:
        record = self._added(c)
        return record.stopped if isinstance(record, LateStragglers) else ()

    def _record(self, c: Context, f: SweepFacts) -> Stragglers:
        return self._with(c, f, self._stopped(c))

    def _with(self, c: Context, f: SweepFacts, stopped: tuple[str, ...]) -> LateStragglers:
        made = super()._record(c, f)
        return LateStragglers(made.moves, made.found, made.planned_at, stopped)

    def _empty(self, c: Context, f: SweepFacts) -> Verdict:
        """Stop the next broker, and check again for partitions on the brokers to be removed."""
        assert f.every is not None
        again = {**c.kept, "empty": None}
        gone, up = removal(c.inventory).brokers, [h for h, told in f.services.items() if runs(told)]
        if not isinstance(f.view, Seen):
            return Waiting("a response of Kafka", str(f.view), STOPS_S, poll_s=1.0, keep=again)
        view = f.view.value
        came = naming(view.partitions, gone)
        able = self._able(c, f) if came else up
        if came and not able:
            told = few(f"{p.topic}-{p.partition}" for p in came)
            return Waiting("the brokers are empty", told, STOPS_S, poll_s=0.0, keep=again)
        stopping = [h for h in up if _leaves(f, h) or c.inventory.broker(h).id not in view.brokers]
        if stopping:
            return Waiting("a broker has stopped", few(stopping), STOPS_S, poll_s=1.0, keep=c.kept)
        if up:
            return self._next(c, f, view, able)
        if left := [id for id in gone if id in view.brokers]:
            what = "the cluster no longer names the stopped brokers"
            return Waiting(what, few(map(str, left)), STOPS_S, poll_s=1.0, keep=c.kept)
        return Done((_down(gone),), self._record(c, f).encode())

    def _outrun(self, c: Context, f: SweepFacts) -> bool:
        """Return whether topics are created faster than we move them while at least one broker can stop."""
        return super()._outrun(c, f) and bool(self._able(c, f))

    def _able(self, c: Context, f: SweepFacts) -> list[str]:
        """Return the hosts of brokers that can stop while topics are being created.

        Each partition on such a broker was just created, and has as many replicas in sync elsewhere as writes
        need.
        """
        if not isinstance(f.view, Seen):
            return []
        view = f.view.value

        def spared(p: PartitionState, id: int) -> bool:
            return born_late(c, p) and len({*p.isr} - {id}) >= max(1, view.min_isr.get(p.topic, 1))

        return [
            host
            for host, told in f.services.items()
            if runs(told)
            and all(
                spared(p, id) for id in (c.inventory.broker(host).id,) for p in naming(view.partitions, (id,))
            )
        ]

    def _next(self, c: Context, f: SweepFacts, view: KafkaView, up: list[str]) -> Verdict:
        """Stop the broker that the fewest partitions name, the active controller last.

        Usually no partition names this broker, so no partition loses an in-sync replica. While topics are
        being created, a few partitions may name it.
        """

        def last(host: str) -> tuple[bool, int, int]:
            id = c.inventory.broker(host).id
            return id == view.controller, len(naming(view.partitions, (id,))), id

        host, told = min(up, key=last), c.kept.get("told", {})
        if told.get(host, 0) >= TRIES:
            return Blocked((_runs_on(host),))
        record = self._with(c, f, tuple(dict.fromkeys((*self._stopped(c), host))))
        told = {**told, host: told.get(host, 0) + 1}
        keep = {**c.kept, "empty": None, "rounds": 0, "told": told}  # partitions that name it move first
        return Ready((f"{host}{_STOP}",), record=record.encode(), keep=keep)

    def plan(self, c: Context, f: SweepFacts, target: str) -> Changes:
        if host := _host(c, target):
            return (broker_service(c.inventory, host, "stop"),)
        return super().plan(c, f, target)

    def undo(self, c: Context, f: SweepFacts, target: str, applied: tuple[Applied, ...]) -> Changes:
        if host := _host(c, target):
            return (broker_service(c.inventory, host, "start"),)
        return super().undo(c, f, target, applied)


def _host(c: Context, target: str) -> str:
    """Return the host whose broker is to stop or start, or "" if the target is a partition or a topic."""
    host = target.removesuffix(_STOP)
    return host if host != target and host in stoppable(c.inventory) else ""


def _leaves(f: SweepFacts, host: str) -> bool:
    told = f.services[host]
    return isinstance(told, Seen) and told.value.unit_state == "deactivating"


def _runs_on(host: str) -> Finding:
    return claim(
        "remove.stopped",
        "the removed brokers are down, and no partition names them",
        False,
        target=host,
        seen=f"the run has stopped the broker {TRIES} times, and it still runs",
        needed="a stopped service",
    )


def _down(brokers: tuple[int, ...]) -> Finding:
    seen = f"brokers {few(map(str, brokers))}; an enabled unit starts its broker at the next boot: disable it"
    return claim(
        "remove.stopped", "the removed brokers are down, and no partition names them", True, seen=seen
    )


MEANINGS = meanings(
    """
    remove.stopped: A removed broker runs, or a partition names it. Cause: The step is not finished, or its
    service does not stop. To do: Wait, or find out why the service does not stop, then resume.
    """
)
