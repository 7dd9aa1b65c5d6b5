"""Find which sessions wrote under the chroot recently, from the log of one source server."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from zkmigrate.runbook.model.fact import Reading, Seen, Unknown
from zkmigrate.runbook.model.step import Teller
from zkmigrate.zookeeper.data.chroot import Chroot
from zkmigrate.zookeeper.data.four_letter_words import Connection, Dump
from zkmigrate.zookeeper.data.log_writers import Writer, writers
from zkmigrate.zookeeper.data.reader import Directory
from zkmigrate.zookeeper.data.session import format_session, signed
from zkmigrate.zookeeper.facts.disk import read_disk

LATELY_MS = 24 * 3_600_000
AT_MOST = 64 << 20
"""The most bytes of log that a gate may read, in addition to the newest log file."""

_PLACES = 3
_HOUR_MS = 3_600_000


@dataclass(frozen=True)
class Stranger:
    """A session that wrote under the chroot and does not belong to a broker.

    session: its id. what: a text with the number of its writes, its address and the paths.
    """

    session: str
    what: str


@dataclass(frozen=True)
class RecentWrites:
    """The sessions that wrote under the chroot recently.

    hours: how many hours back the log was read. brokers: how many brokers' sessions wrote. hole: a text about
    the first gap in the log, or empty.
    """

    hours: float
    brokers: int
    strangers: tuple[Stranger, ...]
    hole: str


def recent_writes(
    host: str,
    logs: Directory,
    chroot: Chroot,
    dumps: Mapping[str, Reading[Dump]],
    cons: Mapping[str, Reading[tuple[Connection, ...]]],
    tell: Teller,
) -> Reading[RecentWrites]:
    """Read the log of this source host from the newest record backwards, and list the sessions that wrote.

    Reading ends ``LATELY_MS`` milliseconds back or after ``AT_MOST`` bytes. logs: the host's ``version-2``
    directory. dumps: ``dump`` of each host, to recognize brokers that registered before this time span. cons:
    ``cons`` of each host, to show the address of a session. tell: receives the progress.
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
