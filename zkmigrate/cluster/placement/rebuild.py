"""Plan ``rebuild``: move each replica off brokers that are gone or left out, or with force every replica.

Brokers are chosen one by one, as ``Rebuild.placement`` says. If no broker has room for the next replica,
planned replicas are moved to make room. As a last resort all placements are tried, up to a limit. No replica
list ends shorter than requested.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from fractions import Fraction
from math import ceil

from zkmigrate.cluster.placement.board import Replicas, Task, numbered
from zkmigrate.cluster.placement.cluster import Cluster, Partition
from zkmigrate.cluster.placement.constraints import racks_needed
from zkmigrate.cluster.placement.fill import Fill
from zkmigrate.cluster.placement.order import in_order
from zkmigrate.cluster.placement.plan import Notice, Plan, Reassignment, Refused
from zkmigrate.cluster.placement.rebalance import worse
from zkmigrate.cluster.placement.request import By, Optimize, Rebuild
from zkmigrate.cluster.placement.validation import Chosen, chosen, partition_names, sizes_missing

LOOKS = 200_000
"""The number of placements that ``effort`` 1 checks when all placements are tried."""

PAIRS = 20_000
"""How many pairs of brokers ``effort`` 1 compares to make free bytes more equal."""


def rebuild(cluster: Cluster, request: Rebuild) -> Plan | Refused:
    """Return the moves that put every chosen replica list on chosen brokers with the requested length.

    A list that needs no change keeps its brokers. A refusal names the partition and the limit.
    """
    choice = chosen(cluster, request.choice)
    if isinstance(choice, Refused):
        return choice
    if faults := _faulty_options(request):
        return Refused(faults, options=True)
    racks = cluster.racks(choice.brokers)
    if request.min_rack_ids > racks:
        text = f"--min-rack-ids is {request.min_rack_ids}; the limit: {racks} racks of chosen brokers"
        return Refused((Notice("placement.few-racks", text),))
    notices = choice.notices + _short_sets(choice.partitions, request)
    if unknown := sizes_missing(choice.partitions):
        if request.placement is By.STORAGE:
            return unknown
        notices += _capacity_unknown(choice.partitions)
    started = _started(cluster, choice, request)
    if isinstance(started, Refused):
        return started
    fill, freed = started
    if request.sub_affinity and (no_pair := _substitute(cluster, fill, choice)):
        return Refused(no_pair)
    if (no_place := _fill(fill, choice, request)) and freed:
        fill.clear(freed)
        no_place = _fill(fill, choice, request)
    if no_place:
        return Refused(no_place)
    if request.placement is By.COUNT:
        fill.even()
    else:
        fill.level_out(PAIRS * request.effort)
    moves = (
        Reassignment(*one.name, one.replicas, tuple(fill.ids[broker] for broker in after), one.size or 0)
        for one, after in zip(choice.partitions, fill.sets, strict=True)
    )
    ordered = in_order(cluster, [move for move in moves if move.after != move.before])
    if isinstance(ordered, Refused):
        return ordered
    if request.placement is By.STORAGE:
        notices += worse(cluster, choice.brokers, ordered)
    return Plan(cluster, ordered, notices=notices)


def _capacity_unknown(partitions: Sequence[Partition]) -> tuple[Notice, ...]:
    """Return a notice that room on brokers is not checked.

    It refuses the plan if only some sizes are known, because the input lacks the others.
    """
    unknown = [one for one in partitions if one.size is None]
    text = (
        f"The size of {len(unknown)} of {len(partitions)} partitions is not known: "
        f"{partition_names(unknown)}. Whether their copies fit on brokers is not checked. Next: compare the "
        "sizes with the brokers' free bytes."
    )
    return (Notice("placement.capacity-unknown", text, refuses=len(unknown) < len(partitions)),)


def _short_sets(partitions: Sequence[Partition], request: Rebuild) -> tuple[Notice, ...]:
    """Return a notice about replica lists that are too short to span the requested racks."""
    short = [one for one in partitions if (request.replication or len(one.replicas)) < request.min_rack_ids]
    if not short:
        return ()
    text = (
        f"--min-rack-ids is {request.min_rack_ids}; partitions with fewer replicas span one rack for "
        f"each replica: {partition_names(short)}"
    )
    return (Notice("placement.few-replicas", text),)


def _faulty_options(request: Rebuild) -> tuple[Notice, ...]:
    return tuple(
        Notice(id, text)
        for id, wrong, text in (
            (
                "placement.storage-without-meta",
                request.placement is By.STORAGE and not request.use_meta,
                "--placement storage needs sizes, which --use-meta=false leaves out. Next: remove "
                "one of them.",
            ),
            (
                "placement.racks-without-meta",
                request.min_rack_ids > 0 and not request.use_meta,
                "--min-rack-ids needs racks, which --use-meta=false leaves out. Next: remove one of them.",
            ),
            (
                "placement.racks-above-replicas",
                0 < request.replication < request.min_rack_ids,
                f"--min-rack-ids is {request.min_rack_ids}, --replication is {request.replication}; needed: "
                "no more racks than replicas",
            ),
            (
                "placement.force-and-affinity",
                request.force_rebuild and request.sub_affinity,
                "--force-rebuild and --sub-affinity exclude each other. Next: remove one of them.",
            ),
            (
                "placement.size-factor",
                not 0 < request.partition_size_factor < float("inf"),
                f"--partition-size-factor is {request.partition_size_factor}; needed: a number above 0",
            ),
            (
                "placement.option-negative",
                request.replication < 0 or request.min_rack_ids < 0,
                f"--replication is {request.replication}, --min-rack-ids is {request.min_rack_ids}; "
                "needed: 0 or more",
            ),
        )
        if wrong
    )


def _started(cluster: Cluster, choice: Chosen, request: Rebuild) -> tuple[Fill, Mapping[int, int]] | Refused:
    """Return the board before any slot is filled, and the bytes that dropped replicas free later, by broker.

    Returns Refused if a partition cannot span the requested racks.
    """
    ids, number, racks = numbered(cluster, choice)
    targets = set(choice.brokers)
    free = {broker: cluster.brokers[broker].room for broker in choice.brokers}
    freed: dict[int, int] = {}
    factor = Fraction(str(request.partition_size_factor))
    lengths = [request.replication or len(one.replicas) for one in choice.partitions]
    homes = range(len(ids), len(ids) + max(lengths, default=0))
    sets, needed, rows, refused = [], [], [], []
    for partition, (one, length) in enumerate(zip(choice.partitions, lengths, strict=True)):
        if request.force_rebuild:
            kept: list[int | None] = [None] * length
            for broker in targets & set(one.replicas):
                free[broker] += one.size or 0
        else:
            short = _shortened(cluster, one.replicas, targets, length)
            kept = [broker if broker in targets else None for broker in short]
            kept += [None] * (length - len(kept))
            for broker in targets & set(one.replicas) - set(kept):
                freed[number[broker]] = freed.get(number[broker], 0) + (one.size or 0)
        goal = _racks_to_span(cluster, one, kept, request, targets)
        if isinstance(goal, Notice):
            refused.append(goal)
            continue
        needed.append(goal)
        sets.append([homes[slot] if broker is None else number[broker] for slot, broker in enumerate(kept)])
        size = ceil((one.size or 0) * factor)
        rows += [
            (partition, slot, homes[slot], size, size) for slot, broker in enumerate(kept) if broker is None
        ]
    if refused:
        return Refused(tuple(refused))
    room = [free.get(broker, 0) for broker in ids] + [0] * len(homes)
    takers = range(len(choice.brokers))
    task = Task(
        sets=sets,
        racks=[*racks, *homes],
        needed=needed,
        level=room,
        room=room,
        ranked=takers,
        sources=(),
        takers=takers,
        replicas=Replicas.of(rows),
    )
    held = [[number[broker] for broker in one.replicas] for one in choice.partitions]
    return Fill(task, held, ids, request.placement), freed


def _racks_to_span(
    cluster: Cluster, one: Partition, held: Sequence[int | None], request: Rebuild, targets: Collection[int]
) -> int | Notice:
    """Return how many racks a partition's replicas must span, or a notice that says why they cannot.

    The number is 0 if every slot is filled. held: the broker in each slot of the replica list; None for an
    open slot.
    """
    kept = [broker for broker in held if broker is not None]
    if None not in held:
        return 0
    length, open_slots = len(held), len(held) - len(kept)
    if length > len(targets):
        return Notice(
            "placement.few-brokers",
            f"{one.topic}-{one.number} needs {length} replicas; the limit: {len(targets)} chosen brokers",
        )
    asked = min(request.min_rack_ids or length, length) if request.use_meta else 0
    spanned = cluster.racks(kept)
    goal = min(max(asked, racks_needed(cluster, one.replicas, length)), spanned + open_slots)
    racks = cluster.racks((*kept, *targets))
    if goal > racks:
        return Notice(
            "placement.few-racks",
            f"{one.topic}-{one.number} needs {goal} racks; the limit: {racks} racks of chosen brokers",
        )
    return goal


def _shortened(
    cluster: Cluster, replicas: tuple[int, ...], targets: Collection[int], length: int
) -> tuple[int, ...]:
    """Return the replicas that a partition keeps if it has ``length`` of them: the first ones.

    A replica that must move anyway is dropped before the last ones. One of the last ones is kept if its rack
    would be lost.
    """
    if len(replicas) <= length:
        return replicas
    needed = racks_needed(cluster, replicas, length)
    kept: list[int] = []
    rest = sorted(replicas, key=lambda broker: broker not in targets)
    while len(kept) < length:
        broker = rest.pop(0)
        racks = cluster.racks((*kept, broker))
        to_come = cluster.racks((*kept, broker, *rest)) - racks
        if racks + min(to_come, length - len(kept) - 1) >= needed:
            kept.append(broker)
    return tuple(broker for broker in replicas if broker in kept)


def _fill(fill: Fill, choice: Chosen, request: Rebuild) -> tuple[Notice, ...]:
    """Fill the open slots.

    Returns no notice if all slots were filled, otherwise a notice that names the partition and the reason.
    """
    for row in _turns(fill, request):
        if (broker := fill.best(row)) is not None:
            fill.go(row, broker)
        elif not fill.make_room(row):
            why = _limit(fill, choice, row)
            looks = LOOKS * request.effort
            found = fill.searched(looks)
            if found:
                return ()
            sure = (
                "no placement of all replicas exists"
                if found is False
                else f"the search gave up after {looks:,} attempts; a placement may still exist"
            )
            return (Notice("placement.no-place", f"{why}; {sure}"),)
    return ()


def _turns(fill: Fill, request: Rebuild) -> Sequence[int]:
    """Return the open slots in the order of filling: slot by slot over all partitions, or by partition."""
    by_set = request.placement is By.STORAGE and request.optimize is Optimize.STORAGE
    replicas = fill.task.replicas

    def turn(row: int) -> tuple[int, int, int]:
        size = replicas.size[row] if request.placement is By.STORAGE else 0
        return 0 if by_set else replicas.slot[row], -size, row

    return sorted(filter(fill.open, range(len(fill.at))), key=turn)


def _limit(fill: Fill, choice: Chosen, row: int) -> str:
    """Return why no broker takes the replica of a slot."""
    replicas = fill.task.replicas
    one = choice.partitions[replicas.partition[row]]
    replica = f"{one.topic}-{one.number} replica {replicas.slot[row] + 1}"
    suited = [broker for broker in fill.task.takers if fill.suits(row, broker)]
    if not suited:
        return (
            f"{replica}: the limit is racks; needed: {fill.task.needed[replicas.partition[row]]}, and no "
            "chosen broker outside the replica list is in another rack"
        )
    most = max(suited, key=lambda broker: (fill.room[broker], -broker))
    return (
        f"{replica}: the limit is disk; needed: {replicas.size[row]} bytes, and the {len(suited)} brokers "
        f"that may take it have at most {fill.room[most]} left (broker {fill.ids[most]})"
    )


def _substitute(cluster: Cluster, fill: Fill, choice: Chosen) -> tuple[Notice, ...]:
    """Fill each slot of a gone broker with the new broker that replaces it.

    Returns no notice if each gone broker was replaced, otherwise a notice that says why one was not.
    """
    by_broker: dict[int, list[int]] = {broker: [] for broker in (*choice.missing, *choice.replaced)}
    columns = fill.task.replicas
    for row, (partition, slot) in enumerate(zip(columns.partition, columns.slot, strict=True)):
        replicas, held = choice.partitions[partition].replicas, fill.sets[partition]
        gone = [broker for broker in replicas if broker in by_broker]
        if len(held) >= len(replicas):
            if slot < len(replicas):
                by_broker[replicas[slot]].append(row)
        else:
            place = [slot for slot, broker in enumerate(held) if broker >= len(fill.ids)].index(slot)
            by_broker[gone[place]].append(row)
    pairs: dict[int, int] = {}

    def paired(old: int, seen: set[int]) -> bool:
        for new in choice.new:
            if new in seen or not _replaces(cluster, fill, old, new, by_broker[old]):
                continue
            seen.add(new)
            if new not in pairs or paired(pairs[new], seen):
                pairs[new] = old
                return True
        return False

    alone = [old for old in sorted(by_broker) if by_broker[old] and not paired(old, set())]
    if alone:
        text = (
            "sub-affinity needs a new broker of the same rack with room for all replicas; none for "
            f"broker{'s' * (len(alone) > 1)} {', '.join(map(str, alone))}; new brokers: "
            f"{', '.join(map(str, choice.new)) or 'none'}"
        )
        return (Notice("placement.no-substitute", text),)
    for new, old in sorted(pairs.items()):
        for row in by_broker[old]:
            fill.go(row, fill.ids.index(new))
            fill.barred.add(row)
    return ()


def _replaces(cluster: Cluster, fill: Fill, old: int, new: int, rows: Sequence[int]) -> bool:
    """Return whether a new broker is in an old one's rack and has room for its replicas.

    The rack of a broker that is not registered is unknown; any new broker that suits all its replica lists
    may replace it.
    """
    number = fill.ids.index(new)
    if old in cluster.brokers and cluster.brokers[old].rack != cluster.brokers[new].rack:
        return False
    room = sum(fill.task.replicas.size[row] for row in rows) <= fill.room[number]
    return room and all(fill.suits(row, number) for row in rows)
