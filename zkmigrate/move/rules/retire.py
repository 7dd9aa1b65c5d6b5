"""Decide whether a broker may be left out of a run: it serves no partition and is not a client of source."""

from __future__ import annotations

from collections.abc import Collection

from zkmigrate.kafka.questions import KafkaView
from zkmigrate.move.facts.connections import SourceClients
from zkmigrate.runbook.model.fact import Reading, Seen
from zkmigrate.runbook.model.finding import Finding, claim, meanings
from zkmigrate.runbook.model.step import Retired

NOT_ON_SOURCE = "none of its addresses in source's client lists"


def may_retire(
    broker: Retired, view: Reading[KafkaView], clients: SourceClients, source: Collection[str]
) -> tuple[Finding, ...]:
    """Return the findings on whether this broker may be retired.

    source: the source hosts that may have clients.
    """
    held, seen = on_source(broker, clients, source)
    return (
        _serves_nothing(broker, view),
        claim(
            "retire.left-source",
            "the broker is not a client of source",
            held,
            target=broker.host,
            seen=seen,
            needed=NOT_ON_SOURCE,
            moves=(
                "allow cons in source's 4lw.commands.whitelist, or let the ssh account run ss there"
                if held is None
                else "stop the broker, or disconnect its host from the network, then retire it again",
            ),
        ),
    )


def on_source(broker: Retired, clients: SourceClients, source: Collection[str]) -> tuple[bool | None, str]:
    """Return whether this broker has left source, and a text that says where it was seen.

    The client lists of all source hosts decide. The first value is None if no list that could be read shows
    the broker and at least one list could not be read.
    """
    where = [host for host, found in clients.at.items() if set(found) & set(broker.addresses)]
    if where:
        return False, f"client of {', '.join(where)}"
    blind = [host for host in source if host not in clients.at]
    return (
        (None, f"the clients of {', '.join(blind)} are not known")
        if blind
        else (True, "not connected to source")
    )


def _serves_nothing(broker: Retired, view: Reading[KafkaView]) -> Finding:
    sentence, needed = "the broker serves no partition", "not registered, or in the ISR of no partition"
    moves = (
        "stop the broker, or wait until the controller has removed it from every ISR",
        "move its replicas elsewhere, then retire it again",
    )
    if not isinstance(view, Seen):
        return claim("retire.serves", sentence, None, target=broker.host, seen=str(view), needed=needed)
    registered = broker.id in view.value.brokers
    count = sum(broker.id in p.isr for p in view.value.partitions)
    seen = f"{'registered' if registered else 'not registered'}, in the ISR of {count} partitions"
    held = not registered or not count
    return claim("retire.serves", sentence, held, target=broker.host, seen=seen, needed=needed, moves=moves)


MEANINGS = meanings(
    """
    retire.serves: The broker still serves: it is registered and in the ISR of a partition. Cause: It
    runs, or the controller has not removed it from its ISRs yet. To do: Stop the broker, wait until it
    has left every ISR, then retire it again.

    retire.left-source: The broker is still a client of source, or source's hosts do not show whether it is.
    Cause: Its process runs. To do: Stop the broker or disconnect its host from the network, then retire it
    again. If this is unknown, allow cons or ss on source.
    """
)
