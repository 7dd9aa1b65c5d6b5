"""What: write source's addresses into every broker's file and start the brokers. The broker that stopped last
starts first, alone.

Why now: source holds the same subtree as dest, and dest is down.

Clients may notice: the end of the outage. They connect again as brokers register.

Way back: none once a broker has registered on source, because dest does not have what brokers wrote there.
Before that the files are put back.

Proof: every broker is registered on source and in sync. A controller is elected there, with an epoch above
dest's.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from zkmigrate.errors import UsageError
from zkmigrate.kafka.facts.broker import broker_service
from zkmigrate.kafka.facts.cluster import kafka_view
from zkmigrate.kafka.questions import KafkaView
from zkmigrate.kafka.rules.connect import connect_to_source, current_connect, with_connect
from zkmigrate.move.facts.dest_status import unanswered, unknown
from zkmigrate.move.facts.outage import BrokerState, Registered, brokers, registered
from zkmigrate.move.facts.records import Outage
from zkmigrate.move.facts.replay_disks import mark_on
from zkmigrate.move.rules.outage import next_to_start
from zkmigrate.move.steps.brokers_down import STILL_S, registered_among, unknown_services, wait_for_brokers
from zkmigrate.runbook.model.change import Applied, Changes, inverses, replace_content
from zkmigrate.runbook.model.fact import Absent, Reading, Seen
from zkmigrate.runbook.model.finding import Finding, claim, meanings
from zkmigrate.runbook.model.look import Look
from zkmigrate.runbook.model.step import (
    Blocked,
    Context,
    Done,
    Forecast,
    Hazard,
    Ready,
    Step,
    Verdict,
    Waiting,
    Way,
)
from zkmigrate.runbook.model.step_record import known
from zkmigrate.zookeeper.facts.ensemble import source_view


@dataclass(frozen=True)
class BackFacts:
    """Every broker, Kafka as running brokers report it, and the registrations on source.

    replayed: the zxid at which source took the last transaction of the replay; Absent once the replay's mark
    is removed.
    """

    brokers: Mapping[str, BrokerState]
    view: Reading[KafkaView]
    source: Reading[Registered]
    replayed: Reading[int]


class BrokersBackStep(Step[BackFacts]):
    id = "brokers-back"
    title = "Start the brokers against source"
    hazard = Hazard.FINAL

    def observe(self, c: Context, look: Look) -> BackFacts:
        inventory = c.inventory
        hosts = source_view(inventory, look).leader_first
        mark = mark_on(look, hosts[0], inventory.kafka.subtree)
        return BackFacts(
            brokers(inventory, look),
            kafka_view(c, look),
            registered(look, hosts, inventory.kafka.prefix),
            Seen(mark.value[1]) if isinstance(mark, Seen) else mark,
        )

    def check(self, c: Context, f: BackFacts) -> Verdict:
        files = {host: state.properties for host, state in f.brokers.items()}
        unread = unanswered("brokers-back.file", files)
        if unread := (*unknown_services("brokers-back", f.brokers), *unread):
            return Blocked(unread)
        ensembles = c.inventory.source.hosts, c.inventory.dest.hosts
        names = {name: state.names(*ensembles) for name, state in f.brokers.items()}
        rewritten = [name for name, source in names.items() if source]
        started = [name for name, state in f.brokers.items() if state.runs]
        if c.way is Way.BACK:
            return _back(f, rewritten, [name for name in started if names[name] is not False])
        odd = {name: names[name] for name in started if name not in rewritten}
        why = {name: f.brokers[name].why_unknown(name) for name, source in odd.items() if source is None}
        if strangers := tuple(_stranger(name, why.get(name, "")) for name in odd):
            return Blocked(strangers)
        registered = registered_among(c, started, f.source)
        if wave := next_to_start(_order(c), started, registered):
            return Ready(wave)
        if waits := wait_for_brokers(c, f.brokers, f.view, registered, "source"):
            return waits
        assert isinstance(f.source, Seen)
        if f.source.value.controller is None:
            return Waiting("source has a controller", "none is registered", STILL_S, 1.0)
        return Done.unless_blocked((_epoch(c, f.source.value),))

    def plan(self, c: Context, f: BackFacts, target: str) -> Changes:
        kafka, broker = c.inventory.kafka, f.brokers[target]
        if not isinstance(broker.properties, Seen) or broker.entry is None:
            raise UsageError(f"{target}: {kafka.config} cannot be read, so it cannot be edited")
        entry, now = broker.entry, broker.properties.value
        content = with_connect(now, connect_to_source(c.inventory, current_connect(now)))
        return (
            replace_content(target, kafka.config, now, content, f"{entry.owner}:{entry.group}", entry.mode),
            broker_service(c.inventory, target, "start"),
        )

    def undo(self, c: Context, f: BackFacts, target: str, applied: tuple[Applied, ...]) -> Changes:
        return inverses(applied)

    def forecast(self, c: Context, look: Look) -> Forecast[BackFacts]:
        """Forecast from the brokers' files, as they are now."""
        unasked = Absent("not read")
        facts = BackFacts(brokers(c.inventory, look), unasked, unasked, unasked)
        return Forecast(facts, c.inventory.broker_names)


def _order(c: Context) -> tuple[str, ...]:
    """Return the brokers in the order to start them: the broker that stopped last comes first.

    Brokers whose stop was not recorded come last.
    """
    outage = known(Outage, c)
    last_first = outage.order[::-1] if outage is not None else ()
    return (
        *(name for name in last_first if name in c.inventory.broker_names),
        *(name for name in c.inventory.broker_names if name not in last_first),
    )


def _back(f: BackFacts, rewritten: list[str], used: list[str]) -> Verdict:
    """Put the old files back, as long as no broker has been registered on source.

    rewritten: brokers whose files this run changed. used: running brokers whose files may name source.
    """
    if not used and not isinstance(f.replayed, Absent):
        if not isinstance(f.source, Seen) or not isinstance(f.replayed, Seen):
            unread = f.replayed if not isinstance(f.replayed, Seen) else f.source
            return Blocked((unknown("brokers-back.source", "", unread),))
        if f.source.value.changed <= f.replayed.value:
            return Ready(tuple(rewritten)) if rewritten else Done()
    found = claim(
        "brokers-back.no-way-back",
        "no broker has used source",
        False,
        seen=f"{', '.join(sorted(used))} started against source"
        if used
        else "a broker has been registered on source",
        needed="none",
        moves=("continue forward: zkmigrate resume", "to return to dest later, start a new move"),
    )
    return Blocked((found,), no_way_back=True)


def _stranger(host: str, why: str) -> Finding:
    return claim(
        "brokers-back.file",
        "the running broker was started against source",
        None if why else False,
        target=host,
        seen=f"the broker runs, and {why}" if why else "the broker runs, and its file does not name source",
        needed="a stopped broker, or one that this step started",
        moves=("stop the broker and find out who started it, then resume",),
    )


def _epoch(c: Context, source: Registered) -> Finding:
    outage = known(Outage, c)
    before = outage.epoch if outage is not None else 0
    return claim(
        "brokers-back.epoch",
        "the controller's epoch on source is above dest's",
        source.epoch > before,
        seen=f"{source.epoch}, controller {source.controller}",
        needed=f"more than {before}",
        moves=("stop the brokers and check controller_epoch on source",),
    )


MEANINGS = meanings(
    """
    brokers-back.no-way-back: A broker has used source already, so this run goes forward only. Cause: What
    the broker wrote to source is missing on dest. To do: Continue forward: zkmigrate resume. To return to
    dest later, start a new move.

    brokers-back.file: A broker runs that was not started against source. Cause: Somebody else started the
    broker: its file does not name source. To do: Stop the broker, find out who started it, then resume.

    brokers-back.epoch: The controller's epoch on source is not above dest's. Cause: The epochs would not show
    which of two controllers is the newer one. To do: Stop the brokers and check controller_epoch on source.

    brokers-back.source: The brokers that are registered on source are not known. Cause: No source server
    answers. To do: Repair source, then resume.
    """
)
