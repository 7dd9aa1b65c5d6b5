"""Find which sessions wrote under the chroot recently, from the log of one source server."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from zkmigrate.runbook.model.fact import Reading, Seen, Unknown
from zkmigrate.runbook.model.step import Teller
from zkmigrate.zookeeper.data.four_letter_words import Connection, Dump
from zkmigrate.zookeeper.data.log_writers import Writer, writers
from zkmigrate.zookeeper.data.reader import Directory
from zkmigrate.zookeeper.data.session import format_session, signed
from zkmigrate.zookeeper.facts.disk import read_disk

LATELY_MS = 24 * 3_600_000
AT_MOST = 64 << 20
"""Largest number of bytes of log that a gate may read, in addition to the newest file."""

_PLACES = 3
_HOUR_MS = 3_600_000


@dataclass(frozen=True)
class Stranger:
    """A session that wrote under the chroot and is not a broker's.

    session: its id. what: how often it wrote, from which address, and which paths.
    """

    session: str
    what: str


@dataclass(frozen=True)
class RecentWrites:
    """The sessions that wrote under the chroot recently.

    hours: how many hours back the log was read. brokers: how many sessions of brokers wrote. hole: the first
    gap in the log, else empty.
    """

    hours: float
    brokers: int
    strangers: tuple[Stranger, ...]
    hole: str


def recent_writes(
    host: str,
    logs: Directory,
    chroot: str,
    dumps: Mapping[str, Reading[Dump]],
    cons: Mapping[str, Reading[tuple[Connection, ...]]],
    tell: Teller,
) -> Reading[RecentWrites]:
    """Read the log of this source host backwards in time, for ``LATELY_MS`` or ``AT_MOST`` bytes.

    logs: its ``version-2`` directory. dumps: the current owners, to recognize brokers that registered before
    this span. cons: where sessions are connected now. tell: receives the progress.
    """
    owners = {
        signed(session): paths
        for reading in dumps.values()
        if isinstance(reading, Seen)
        for session, paths in reading.value.ephemerals.items()
    }
    reading = read_disk(
        lambda: writers(
            logs,
            chroot=chroot,
            span_ms=LATELY_MS,
            at_most=AT_MOST,
            owners=owners,
            tell=lambda done: tell(f"{host}'s log, to find writers under {chroot}", f"{done} transactions"),
        ),
        host,
    )
    if not isinstance(reading, Seen):
        return reading
    found = reading.value
    if not found.records:
        return Unknown("failed", f"{host}: no transaction in its log")
    at = {
        signed(c.session): c.address
        for reading in cons.values()
        if isinstance(reading, Seen)
        for c in reading.value
        if c.session is not None
    }
    strangers = tuple(
        Stranger(format_session(one.session), _described(one, at.get(one.session, "")))
        for one in found.writers
        if not one.is_broker
    )
    hours = (found.until_ms - found.since_ms) / _HOUR_MS
    hole = str(found.gaps[0]) if found.gaps else ""
    return Seen(RecentWrites(hours, len(found.writers) - len(strangers), strangers, hole))


def _described(one: Writer, address: str) -> str:
    where = f" from {address}" if address else " by a session that has ended" if one.ended_ms else ""
    changes = "1 change" if one.changes == 1 else f"{one.changes} changes"
    return f"{changes}{where} to {one.places_text(_PLACES)}"
