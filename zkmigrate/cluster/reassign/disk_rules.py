"""Check that log directories can take the replicas of a plan."""

from __future__ import annotations

from collections.abc import Sequence

from zkmigrate.cluster.placement.log_dirs import nameable
from zkmigrate.cluster.placement.plan import Refused
from zkmigrate.cluster.reassign.answers import Disks
from zkmigrate.cluster.reassign.choice import in_room, tight
from zkmigrate.cluster.reassign.moves import Move
from zkmigrate.runbook.model.finding import Finding, Severity, claim, few
from zkmigrate.runbook.model.step import Way


def check_room(moves: Sequence[Move], disks: Disks) -> Finding:
    """Check that every broker has room for its new replicas beside the old ones.

    Moves to a broker without room for all its new replicas wait until earlier moves have ended.
    """
    room = disks.room
    ordered = in_room(moves, room)
    full = [reason.text for reason in ordered.reasons] if isinstance(ordered, Refused) else []
    shut = sorted(broker for broker in {id for move in moves for id in move.added} if disks.shut(broker))
    full += [f"broker {broker}: all its log directories are cordoned" for broker in shut]
    silent = sorted({broker for move in moves for broker in move.added} - set(room))
    short = tight(moves, room)
    seen = (
        f"not reported by broker{'s' * (len(silent) > 1)} {few(map(str, silent))}"
        if silent
        else "room for all moves at once"
    )
    if short:
        told = few(map(str, short))
        seen = f"not all at once; moves to brokers {told} wait until old copies are deleted"
        seen += f"; not reported by brokers {few(map(str, silent))}" if silent else ""
    return claim(
        "reassign.room",
        "every broker has room for its new replicas",
        False if full else None if silent else True,
        seen=few(full) if full else seen,
        needed="free bytes on log directories that are not cordoned; brokers report them since Kafka 3.3",
        severity=Severity.BLOCK if full else Severity.WARN,
    )


def check_log_dirs(moves: Sequence[Move], disks: Disks) -> tuple[Finding, ...]:
    """Check that each directory that the plan names can take its replica. Empty if the plan names none."""
    named = [(move, broker, path) for move in moves for broker, path in move.paths(Way.FORWARD).items()]
    silent, wrong = [], []
    for move, broker, path in named:
        at, where = (broker, move.name), f"{move.target} on {broker}"
        if not disks.paths.get(broker) or (broker in move.before and at not in disks.places):
            silent.append(where)
        elif path not in disks.paths[broker]:
            wrong.append(f"broker {broker} has no {path}, only {', '.join(sorted(disks.paths[broker]))}")
        elif path in disks.cordoned.get(broker, ()):
            wrong.append(f"{where}: {path} is cordoned")
        elif not nameable(move.name):
            wrong.append(f"{where}: Kafka does not move a log with such a long name")
        elif at in disks.futures:
            wrong.append(f"{where} is moving to {disks.futures[at][0]} already")
    if not named:
        return ()
    seen = (
        few(dict.fromkeys(wrong))
        if wrong
        else f"not reported: {few(silent)}"
        if silent
        else "every named directory can"
    )
    return (
        claim(
            "reassign.log-dirs",
            "the log directories of the plan can take their replicas",
            False if wrong else None if silent else True,
            seen=seen,
            needed="directories that their brokers report, that are not cordoned and receive no other move",
        ),
    )


def check_cordoned(moves: Sequence[Move], disks: Disks) -> tuple[Finding, ...]:
    """Warn about replicas that the way back cannot return to their original log directory."""
    shut = [
        f"{move.target} on {broker}: {path}"
        for move in moves
        for broker in move.before
        if (path := disks.places.get((broker, move.name), "")) in disks.cordoned.get(broker, ())
        and (broker not in move.after or broker in move.paths(Way.FORWARD))
    ]
    if not shut:
        return ()
    return (
        claim(
            "reassign.cordoned",
            "no replica leaves a cordoned log directory",
            False,
            seen=few(shut),
            needed="directories to which the way back can return; Kafka assigns none to a cordoned one by "
            "name",
            severity=Severity.WARN,
        ),
    )
