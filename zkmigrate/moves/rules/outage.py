"""In which order all brokers go down and come back, and who agreed that source is written to."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from zkmigrate.inventory.inventory import Broker, Inventory
from zkmigrate.model.finding import Finding, claim, meanings
from zkmigrate.model.look import KafkaView
from zkmigrate.moves.rules.accepted import accepted

OWNER = "return.source-owner"
"""Nobody but a person can say so: it holds where ``accept`` of migration.yml names who did."""


def next_down(view: KafkaView, up: Sequence[Broker], width: int) -> tuple[tuple[str, ...], str]:
    """The brokers to stop now, and why none is.

    Every replica whose broker is still up is in sync first. So the ISRs end with the brokers that stop last,
    which know all that was acknowledged, and which come back first. The controller stops last: the others
    hand their partitions over to it. No two that share a partition stop at once. up: those that run.
    """
    ids = {broker.id for broker in up}
    late = [p for p in view.partitions if ids & set(p.replicas) - set(p.isr)]
    if late:
        first = late[0]
        return (), (
            f"{len(late)} partitions have a replica that is up and not in sync, first "
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


def next_up(order: Sequence[str], started: Collection[str], here: Collection[str]) -> tuple[str, ...]:
    """The brokers to start now; none while the first is waited for, or once all are started.

    The first of the order comes alone: it shows that file and ensemble are right before the others follow,
    and leads what it can. started: those whose process may be there. here: those that are registered.
    """
    left = tuple(name for name in order if name not in started)
    if not started:
        return left[:1]
    return left if here else ()


def agreed(inventory: Inventory, at: float, cost: str) -> Finding:
    """Whether source's owner agrees, by name. cost: what they agree to. at: seconds since the epoch."""
    asked = claim(
        OWNER,
        "whoever owns source agrees that it is written to and that every broker is down meanwhile",
        False,
        seen=cost,
        needed="their name in accept of migration.yml",
        moves=(f"accept {OWNER} in migration.yml: who, why, until when", "repair forward instead"),
    )
    return accepted(inventory.accept, (asked,), at)[0]


def consenting(inventory: Inventory, at: float) -> str:
    """Who that is; empty where nobody agrees now."""
    names = [x.who for x in inventory.accept if x.finding == OWNER and at < x.end]
    return names[-1] if names else ""


MEANINGS = meanings(
    """
    return.source-owner: Nobody has agreed that the replay writes to source while every broker is down.
    Cause: Only a person can agree to that, by name. To do: Let the owner of source agree, and add an
    accept entry with who, why and until. Or repair forward instead.
    """
)
