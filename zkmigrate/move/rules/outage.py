"""The order in which all brokers stop and start, and the consent of source's owner to the replayed writes."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from zkmigrate.inventory.inventory import Broker, Inventory
from zkmigrate.kafka.questions import KafkaView
from zkmigrate.runbook.accepted import accepted
from zkmigrate.runbook.model.finding import Finding, claim, meanings

OWNER = "return.source-owner"
"""The id of the consent finding. It holds if ``accept`` in migration.yml names the person who agreed."""


def next_to_stop(view: KafkaView, up: Sequence[Broker], width: int) -> tuple[tuple[str, ...], str]:
    """Return the brokers to stop now, and the reason why none may stop, of which one is empty.

    up: the running brokers. width: the most brokers to stop at once.

    Before the first broker stops, every replica on a running broker must be in sync. So the brokers that stop
    last are in the last ISRs: they hold every acknowledged record, and start first. The controller stops
    last, because the other brokers hand their partitions over to it. No two brokers that share a partition
    stop at the same time.
    """
    ids = {broker.id for broker in up}
    late = [p for p in view.partitions if ids & set(p.replicas) - set(p.isr)]
    if late:
        first = late[0]
        return (), (
            f"{len(late)} partitions have a replica on a running broker that is not in sync; the first is "
            f"{first.topic}-{first.partition} (ISR {list(first.isr)} of {list(first.replicas)})"
        )
    wave: list[Broker] = []
    for broker in sorted(up, key=lambda b: (b.id == view.controller, b.id)):
        if len(wave) >= width or (wave and broker.id == view.controller):
            break
        others = {one.id for one in wave}
        if not any(broker.id in p.replicas and others & set(p.replicas) for p in view.partitions):
            wave.append(broker)
    return tuple(broker.name for broker in wave), ""


def next_to_start(
    order: Sequence[str], started: Collection[str], registered: Collection[str]
) -> tuple[str, ...]:
    """Return the brokers to start now.

    The first broker of the order starts alone: it shows that its file and the ensemble are right, and it
    leads every partition that it can. Once it is registered, all other brokers start. started: the brokers
    whose process may run.
    """
    waiting = tuple(name for name in order if name not in started)
    if not started:
        return waiting[:1]
    return waiting if registered else ()


def owner_consent(inventory: Inventory, at: float, cost: str) -> Finding:
    """Return the finding on whether the owner of source has agreed, with the owner's name.

    cost: a text with the consequences to which the owner agrees. at: the time, in seconds since the epoch.
    """
    consent = claim(
        OWNER,
        "the owner of source agrees to the writes there and to an outage of every broker",
        False,
        seen=cost,
        needed="the owner's name under accept in migration.yml",
        moves=(
            f"add an accept entry for {OWNER} to migration.yml, with who, why and until",
            "repair forward instead",
        ),
    )
    return accepted(inventory.accept, (consent,), at)[0]


def consenting_owner(inventory: Inventory, at: float) -> str:
    """Return the name of the person whose consent is valid at this time, or an empty string."""
    names = [x.who for x in inventory.accept if x.finding == OWNER and at < x.end]
    return names[-1] if names else ""


MEANINGS = meanings(
    """
    return.source-owner: The owner of source has not agreed to the replay, which writes to source while
    every broker is down. Cause: Only a person can agree to that, by name. To do: Ask the owner of source,
    then add an accept entry with who, why and until. Or repair forward instead.
    """
)
