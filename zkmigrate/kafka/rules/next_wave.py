"""Which brokers may be restarted next: one safe wave at a time."""

from __future__ import annotations

from dataclasses import dataclass

from zkmigrate.model.look import KafkaView, PartitionState


@dataclass(frozen=True)
class BrokerPosition:
    """One broker on its way.

    moved: config and process follow the wanted ensemble, and it is in sync. touched: its config already names
    the wanted ensemble, or it is down: our own half-done target. down: its process does not run. settling:
    its process has read the right config already, so there is nothing to restart, only to wait for.
    """

    name: str
    id: int
    moved: bool
    touched: bool
    down: bool = False
    settling: bool = False


def out_of_sync(view: KafkaView, expected: frozenset[int]) -> tuple[PartitionState, ...]:
    """Partitions that are offline or under-replicated for another reason than the brokers in ``expected``."""
    return tuple(p for p in view.partitions if p.leader < 0 or (set(p.replicas) - set(p.isr) - expected))


def unsafe_to_stop(
    view: KafkaView, broker: int, spared: frozenset[str] = frozenset()
) -> tuple[PartitionState, ...]:
    """Partitions that would fall below min ISR, or offline, if ``broker`` stopped now.

    spared: topics for which somebody accepts that, as long as every other replica is in sync.
    """
    hurt = []
    for p in view.partitions:
        if broker not in p.replicas:
            continue
        left = [r for r in p.isr if r != broker]
        if p.topic in spared and len(left) == len(p.replicas) - 1:
            continue
        if not left or len(left) < view.min_isr.get(p.topic, 1):
            hurt.append(p)
    return tuple(hurt)


def next_wave(
    brokers: tuple[BrokerPosition, ...], view: KafkaView, width: int, spared: frozenset[str] = frozenset()
) -> tuple[tuple[str, ...], str]:
    """The brokers to restart now, and why nobody can be when there are none.

    A half-done target comes first: one that is down, then one that comes back, then one whose old process
    still runs. It explains its own sickness, but a process that is up and in an ISR stops only where the rest
    can spare it. The controller comes last; no two brokers that share a partition restart in one wave. A
    broker that cannot be spared now is left for a later wave and holds back only the controller.
    Returns ``(names, reason)``; reason is empty when names are given or all have moved. spared: as for
    :func:`unsafe_to_stop`.
    """
    waiting = [b for b in brokers if not b.moved]
    if not waiting:
        return (), ""
    half_done = sorted((b for b in waiting if b.touched), key=lambda b: (not b.down, not b.settling))
    if half_done:
        first = half_done[0]
        if first.down or first.settling or not any(first.id in p.isr for p in view.partitions):
            return (first.name,), ""
        reason = _sick(view, frozenset({first.id})) or _hurt(view, first, spared)
        return ((), reason) if reason else ((first.name,), "")
    if reason := _sick(view, frozenset()):
        return (), reason
    ordered = sorted(waiting, key=lambda b: (b.id == view.controller, b.id))
    wave: list[BrokerPosition] = []
    unsafe = ""
    for candidate in ordered:
        if len(wave) >= width or ((wave or unsafe) and candidate.id == view.controller):
            break
        shares = any(
            candidate.id in p.replicas and any(w.id in p.replicas for w in wave) for p in view.partitions
        )
        if shares:
            continue
        if hurt := _hurt(view, candidate, spared):
            unsafe = unsafe or hurt
            continue
        wave.append(candidate)
    return tuple(b.name for b in wave), "" if wave else unsafe


def _sick(view: KafkaView, expected: frozenset[int]) -> str:
    """Which partitions are sick for another reason than ``expected``, empty when none is."""
    sick = out_of_sync(view, expected)
    if not sick:
        return ""
    p = sick[0]
    return (
        f"{len(sick)} partitions are not fully in sync, first {p.topic}-{p.partition} "
        f"(leader {p.leader}, ISR {list(p.isr)} of {list(p.replicas)})"
    )


def _hurt(view: KafkaView, broker: BrokerPosition, spared: frozenset[str]) -> str:
    """What stopping this broker would take below its minimum, empty when nothing."""
    hurt = unsafe_to_stop(view, broker.id, spared)
    if not hurt:
        return ""
    p = hurt[0]
    return (
        f"stopping {broker.name} would leave {p.topic}-{p.partition} below min ISR "
        f"(ISR {list(p.isr)}, min {view.min_isr.get(p.topic, 1)})"
    )
