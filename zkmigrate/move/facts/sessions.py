"""Find the sessions that own ephemerals under a chroot, and their timeouts, from an ensemble's servers.

``dump`` lists the owners on every server. Since 3.5 the ``dump`` of a learner also lists timeouts, but that
of a leader does not. ``cons`` gives the timeout of each connected session. A single server may not know all
timeouts, so all servers are read.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass

from zkmigrate.move.facts.connections import connections_of
from zkmigrate.runbook.model.fact import Cause, Reading, Seen, Unknown
from zkmigrate.runbook.model.look import Look
from zkmigrate.zookeeper.data.chroot import Chroot
from zkmigrate.zookeeper.data.four_letter_words import Connection, Dump, parse_dump
from zkmigrate.zookeeper.data.session import unsigned
from zkmigrate.zookeeper.facts.ensemble import answer


@dataclass(frozen=True)
class Sessions:
    """The owners of ephemerals under the chroot, with their timeouts.

    owners: session → the paths of its ephemerals. timeouts: session → its timeout in milliseconds, if known.
    """

    owners: Mapping[int, tuple[str, ...]]
    timeouts: Mapping[int, int]

    @property
    def smallest_timeout_ms(self) -> int | None:
        """T, the smallest timeout in milliseconds, or None if it cannot be determined.

        It is None if there are no owners. It is also None if the timeout of any owner is not known, because
        that timeout could be the smallest.
        """
        known = [self.timeouts.get(session) for session in self.owners]
        return min((t for t in known if t is not None), default=None) if None not in known else None

    def kept(self, keeps: Callable[[str], bool]) -> Sessions:
        """Return the sessions with only those ephemerals that must keep their owner.

        keeps: returns whether the ephemeral at a path must keep its owner.
        """
        kept = {s: tuple(path for path in paths if keeps(path)) for s, paths in self.owners.items()}
        return Sessions({s: paths for s, paths in kept.items() if paths}, self.timeouts)


@dataclass(frozen=True)
class Homes:
    """The ensemble to which each session is connected, as :func:`homes` finds it.

    on_dest: the sessions in the client list of a dest host and of no source host. astray: session → where it
    was seen, for sessions on source, and for sessions on no ensemble that must survive the move. unknown:
    hosts whose client list could not be read, with the reason; if this is not empty, the other two fields are
    uncertain.
    """

    on_dest: frozenset[int]
    astray: Mapping[int, str]
    unknown: tuple[str, ...]


def homes(
    sessions: Iterable[int],
    dest: Mapping[str, Reading[tuple[Connection, ...]]],
    source: Mapping[str, Reading[tuple[Connection, ...]]],
    unkept: Collection[int] = (),
) -> Homes:
    """Find which of these sessions are clients of dest, from ``cons`` of every dest and source host.

    unkept: sessions that need not survive the move, so they may be connected to neither ensemble.
    """
    on_dest: set[int] = set()
    astray: dict[int, str] = {}
    for session in sessions:
        at_dest, at_source = _seen_at(session, dest), _seen_at(session, source)
        if at_dest and not at_source:
            on_dest.add(session)
        elif at_source or session not in unkept:
            astray[session] = f"client of {', '.join(at_source) or 'no ensemble'}"
    both = {**dest, **source}
    unknown = tuple(f"cons of {host}: {r}" for host, r in both.items() if not isinstance(r, Seen))
    return Homes(frozenset(on_dest), astray, unknown)


def _seen_at(session: int, cons: Mapping[str, Reading[tuple[Connection, ...]]]) -> list[str]:
    # Logs and snapshots hold session ids signed, cons prints them unsigned.
    wanted = unsigned(session)
    return [
        host
        for host, reading in cons.items()
        if isinstance(reading, Seen)
        and any(c.session is not None and unsigned(c.session) == wanted for c in reading.value)
    ]


def dump(look: Look, host: str) -> Reading[Dump]:
    """Return the sessions and ephemerals that ``dump`` of a ZooKeeper host lists."""
    return answer(look, host, "dump", parse_dump)


def dumps_of(look: Look, hosts: Iterable[str]) -> dict[str, Reading[Dump]]:
    """Return ``dump`` of several ZooKeeper hosts by host, requested at the same time."""
    return look.each(hosts, lambda host: dump(look, host))


def owning_sessions(look: Look, hosts: Iterable[str], chroot: Chroot) -> Reading[Sessions]:
    """Read ``dump`` and ``cons`` of every host and return the owners of ephemerals under the chroot.

    Returns Unknown if no host answers ``dump``.
    """
    hosts = tuple(hosts)
    return sessions_of(dumps_of(look, hosts), connections_of(look, hosts), chroot)


def sessions_of(
    dumps: Mapping[str, Reading[Dump]], cons: Mapping[str, Reading[tuple[Connection, ...]]], chroot: Chroot
) -> Reading[Sessions]:
    """Combine ``dump`` and ``cons`` of all hosts into the owners of ephemerals under the chroot.

    Returns Unknown if no host answered ``dump``.
    """
    owners: dict[int, tuple[str, ...]] = {}
    timeouts: dict[int, int] = {}
    seen = [reading.value for reading in dumps.values() if isinstance(reading, Seen)]
    if not seen:
        causes: set[Cause] = {r.cause for r in dumps.values() if isinstance(r, Unknown)}
        cause = causes.pop() if len(causes) == 1 else "failed"
        return Unknown(cause, "; ".join(f"{host}: {reading}" for host, reading in dumps.items()))
    for listed in seen:
        for session, paths in listed.ephemerals.items():
            under = tuple(path for path in paths if chroot.holds(path))
            if under:
                owners[session] = under
        timeouts |= {s: t for s, t in (listed.sessions or {}).items() if t is not None}
    for reading in cons.values():
        if isinstance(reading, Seen):
            timeouts |= {c.session: c.timeout_ms for c in reading.value if c.session and c.timeout_ms}
    return Seen(Sessions(owners, timeouts))
