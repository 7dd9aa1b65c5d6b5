"""Choose the brokers to restart next, one safe wave at a time."""

from __future__ import annotations

from dataclasses import dataclass

from zkmigrate.kafka.questions import KafkaView, PartitionState


@dataclass(frozen=True)
class BrokerPosition:
    """One broker during the roll.

    moved: its config and process use the wanted ensemble, and it is in sync. touched: a half-done target,
    because its config names the wanted ensemble or it is down. down: no process runs. settling: its process
    has read the right config, so it must not be restarted but waited for.
    """

    name: str
    id: int
    moved: bool
    touched: bool
    down: bool = False
    settling: bool = False


def out_of_sync(view: KafkaView, expected: frozenset[int]) -> tuple[PartitionState, ...]:
    """Return the partitions that are offline, or have replicas out of sync on brokers not in ``expected``."""
    return tuple(p for p in view.partitions if p.leader < 0 or (set(p.replicas) - set(p.isr) - expected))


def unsafe_to_stop(
    view: KafkaView, broker: int, spared: frozenset[str] = frozenset()
) -> tuple[PartitionState, ...]:
    """Return the partitions that would fall below min ISR, or go offline, if ``broker`` stopped now.

    spared: topics for which the operator accepts that, as long as all other replicas are in sync.
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
    """Return the brokers to restart now, or why none can be restarted: ``(names, reason)``.

    A half-done broker (``touched``) comes first: one that is down, then one that settles, then one with its
    old process. Its own missing replicas are expected, but a process that is in an ISR stops only if that is
    safe. The controller comes last. No two brokers of one wave share a partition. A broker that cannot stop
    safely waits for a later wave. It holds up the controller but no other broker.

    The reason is empty if there are names, or if all brokers have moved. spared: as for
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
        reason = _sync_problem(view, frozenset({first.id})) or _stop_problem(view, first, spared)
        return ((), reason) if reason else ((first.name,), "")
    if reason := _sync_problem(view, frozenset()):
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
        if hurt := _stop_problem(view, candidate, spared):
            unsafe = unsafe or hurt
            continue
        wave.append(candidate)
    return tuple(b.name for b in wave), "" if wave else unsafe


def _sync_problem(view: KafkaView, expected: frozenset[int]) -> str:
    """Describe the partitions found by :func:`out_of_sync`; empty if there are none."""
    sick = out_of_sync(view, expected)
    if not sick:
        return ""
    p = sick[0]
    return (
        f"{len(sick)} partitions are not fully in sync, first {p.topic}-{p.partition} "
        f"(leader {p.leader}, ISR {list(p.isr)} of {list(p.replicas)})"
    )


def _stop_problem(view: KafkaView, broker: BrokerPosition, spared: frozenset[str]) -> str:
    """Describe the first partition found by :func:`unsafe_to_stop`; empty if there is none."""
    hurt = unsafe_to_stop(view, broker.id, spared)
    if not hurt:
        return ""
    p = hurt[0]
    return (
        f"stopping {broker.name} would leave {p.topic}-{p.partition} below min ISR "
        f"(ISR {list(p.isr)}, min {view.min_isr.get(p.topic, 1)})"
    )
