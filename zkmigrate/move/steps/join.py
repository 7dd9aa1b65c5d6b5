"""What: start each dest host as an observer of source, one at a time.

Why now: dest is proven empty, and observers do not vote, so source's quorum is not affected.

Clients may notice: some latency on source while it sends a large tree. So hosts join one at a time, and the
next host waits while source has more outstanding requests than the policy allows.

Way back: stop the observers, put every file back and move aside the files that the observers wrote. Source
forgets them.

Proof: every dest host is an observer and has reached the zxid that source's leader had when it was read.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from zkmigrate.errors import HostError
from zkmigrate.hosts.facts.status import HostStatus, unit_status
from zkmigrate.inventory.inventory import Inventory
from zkmigrate.move.facts.dest import written_by_zookeeper
from zkmigrate.move.facts.dest_status import unanswered, unknown
from zkmigrate.move.facts.outage import dest_service
from zkmigrate.move.rules.reform import observer_config
from zkmigrate.move.rules.server_down import members_to_copy
from zkmigrate.runbook.model.change import Applied, Changes, Discard, MoveAside, PutFile, inverses
from zkmigrate.runbook.model.fact import Absent, Reading, Seen
from zkmigrate.runbook.model.finding import claim, each, meanings
from zkmigrate.runbook.model.look import DirEntry, Look
from zkmigrate.runbook.model.step import (
    Blocked,
    Context,
    Done,
    Forecast,
    Hazard,
    Ready,
    Step,
    Verdict,
    Waiting,
    Way,
)
from zkmigrate.zookeeper.data.four_letter_words import Srvr
from zkmigrate.zookeeper.data.zxid import format_zxid
from zkmigrate.zookeeper.facts.disk import VERSION_2
from zkmigrate.zookeeper.facts.ensemble import EnsembleView, dest_view, source_view
from zkmigrate.zookeeper.facts.members import Members


@dataclass(frozen=True)
class JoinHost:
    """One dest host: its myid and config files, directories and service, and its server's mode and zxid."""

    myid: Reading[bytes]
    config: Reading[bytes]
    config_dir: Reading[tuple[DirEntry, ...]]
    data: Reading[tuple[DirEntry, ...]]
    txn: Reading[tuple[DirEntry, ...]]
    status: Reading[HostStatus]
    stat: Reading[Srvr]


@dataclass(frozen=True)
class JoinFacts:
    """Source and the dest hosts.

    Source is read before dest, so a dest host at or above source's zxid has caught up. members: the server
    lines of source.
    """

    source: EnsembleView
    members: Reading[Members]
    hosts: dict[str, JoinHost]


class JoinStep(Step[JoinFacts]):
    id = "join"
    title = "Join dest as observers"
    hazard = Hazard.REVERSIBLE

    def observe(self, c: Context, look: Look) -> JoinFacts:
        dest = c.inventory.dest
        view = source_view(c.inventory, look)
        members = members_to_copy(c.inventory, look)
        servers = dest_view(c.inventory, look).servers

        def one(host: str) -> JoinHost:
            return JoinHost(
                look.file(host, f"{dest.data_dir}/myid"),
                look.file(host, dest.config),
                look.listing(host, dest.config.rsplit("/", 1)[0]),
                look.listing(host, dest.data_dir),
                look.listing(host, dest.txn_dir),
                unit_status(look, host, dest.service.unit, dest.commands),
                servers[host],
            )

        return JoinFacts(view, members, look.each(c.inventory.dest_names, one))

    def check(self, c: Context, f: JoinFacts) -> Verdict:
        if unread := unanswered("join.answer", {host: s.status for host, s in f.hosts.items()}):
            return Blocked(unread)
        if c.way is Way.BACK:
            hosts = reversed(c.inventory.dest_names)
            joined = [h for h in hosts if h in c.unrestored or _left_over(c.inventory, f.hosts[h])]
            return Ready((joined[0],)) if joined else Done()
        if not isinstance(f.members, Seen):
            return Blocked((unknown("join.source-config", "source", f.members),))
        leader, limit = f.source.leading, c.inventory.policy.step_deadline_s
        if leader is None:
            # An election takes seconds; a source that finds no leader misses the deadline.
            return Waiting("source has a leader", each(f.source.modes()), limit, 1.0)
        zxids = {}
        for host in c.inventory.dest_names:
            if not self._placed(c, f, host):
                return _busy(c, f.source, host) or Ready((host,))
            stat = f.hosts[host].stat
            srvr = stat.value if isinstance(stat, Seen) else None
            if srvr is None or srvr.mode != "observer" or srvr.zxid < leader.zxid:
                silent = "does not serve yet" if isinstance(stat, Absent) else str(stat)
                seen = f"{srvr.mode} {format_zxid(srvr.zxid)}" if srvr is not None else silent
                what = f"{host} observes source and has caught up"
                return Waiting(what, f"{seen}, source {format_zxid(leader.zxid)}", limit)
            zxids[host] = format_zxid(srvr.zxid)
        sentence = "the dest host observes source"
        return Done(
            tuple(claim("join.observing", sentence, True, target=h, seen=z) for h, z in zxids.items())
        )

    def _placed(self, c: Context, f: JoinFacts, host: str) -> bool:
        state = f.hosts[host]
        files = {p.path: p.content for p in _files(c.inventory, f, host)}
        dest = c.inventory.dest
        return (
            isinstance(state.myid, Seen)
            and state.myid.value == files[f"{dest.data_dir}/myid"]
            and isinstance(state.config, Seen)
            and state.config.value == files[dest.config]
            and isinstance(state.status, Seen)
            and state.status.value.unit_state in ("active", "activating")
        )

    def plan(self, c: Context, f: JoinFacts, target: str) -> Changes:
        state = f.hosts[target].status
        running = isinstance(state, Seen) and state.value.unit_state == "active"
        start = dest_service(c.inventory, target, "restart" if running else "start")
        return (*_files(c.inventory, f, target), start)

    def undo(self, c: Context, f: JoinFacts, target: str, applied: tuple[Applied, ...]) -> Changes:
        state = f.hosts[target]
        return (
            dest_service(c.inventory, target, "stop"),
            *(MoveAside(target, path) for path in _written(c.inventory, state)),
            *(Discard(target, operation, path) for path, operation in _aside(c.inventory, state)),
            *inverses(applied),
        )

    def forecast(self, c: Context, look: Look) -> Forecast[JoinFacts]:
        f = self.observe(c, look)
        if not isinstance(f.members, Seen):
            raise HostError(f"source's server lines cannot be read: {f.members}")
        targets = tuple(host for host in c.inventory.dest_names if not self._placed(c, f, host))
        # ZooKeeper will have written this by then, and the way back moves it aside.
        data = Seen((DirEntry(VERSION_2, "d", 0, None),))
        hosts = {host: replace(state, data=data, txn=data) for host, state in f.hosts.items()}
        return Forecast(replace(f, hosts=hosts), targets)


def _busy(c: Context, source: EnsembleView, host: str) -> Waiting | None:
    """Return a wait while source has too many outstanding requests, perhaps because the last host still
    syncs.
    """
    limit = c.inventory.policy.join_outstanding
    outstanding = {h: r.value.outstanding for h, r in source.servers.items() if isinstance(r, Seen)}
    busy = ", ".join(f"{h}: {n} outstanding" for h, n in outstanding.items() if n > limit)
    if not busy:
        return None
    what = f"source has answered enough of its outstanding requests for {host} to join"
    return Waiting(what, f"{busy}; needed: at most {limit}", c.inventory.policy.step_deadline_s, 1.0)


def _files(inventory: Inventory, f: JoinFacts, host: str) -> tuple[PutFile, ...]:
    dest = inventory.dest
    owner = f"{dest.user}:{dest.group}"
    members = f.members.value if isinstance(f.members, Seen) else Members(())
    return (
        PutFile(host, f"{dest.data_dir}/myid", f"{inventory.dest_host(host).myid}\n".encode(), owner),
        PutFile(host, dest.config, observer_config(inventory, members), owner),
    )


def _written(inventory: Inventory, state: JoinHost) -> tuple[str, ...]:
    """Return the paths that ZooKeeper itself wrote: data, logs, and files beside the config.

    As an observer, 3.5 writes a dynamic config beside it. A reformed server with reconfigEnabled writes more
    dynamic configs and a ``.bak``.
    """
    dest = inventory.dest
    paths = []
    for directory, reading in ((dest.data_dir, state.data), (dest.txn_dir, state.txn)):
        if isinstance(reading, Seen) and any(e.name == VERSION_2 for e in reading.value):
            paths.append(f"{directory}/{VERSION_2}")
    config_dir, name = dest.config.rsplit("/", 1)
    if isinstance(state.config_dir, Seen):
        paths += [
            f"{config_dir}/{e.name}"
            for e in state.config_dir.value
            if written_by_zookeeper(name, e.name) and ".zkm-" not in e.name
        ]
    return tuple(dict.fromkeys(paths))


def _left_over(inventory: Inventory, state: JoinHost) -> bool:
    running = isinstance(state.status, Seen) and state.status.value.unit_state not in ("inactive", "failed")
    return running or bool(_written(inventory, state)) or bool(_aside(inventory, state))


def _aside(inventory: Inventory, state: JoinHost) -> list[tuple[str, str]]:
    """Return the paths that this step's undo has moved aside, each with the id of its ``move-aside``
    operation.

    The moved files can be deleted: preflight saw these directories empty, so the observer wrote all of them.
    """
    dest = inventory.dest
    directories = {
        dest.data_dir: state.data,
        dest.txn_dir: state.txn,
        dest.config.rsplit("/", 1)[0]: state.config_dir,
    }
    found = []
    for directory, reading in directories.items():
        for entry in reading.value if isinstance(reading, Seen) else ():
            _, mark, operation = entry.name.partition(".zkm-")
            if mark and operation.startswith("join."):
                found.append((f"{directory}/{entry.name}", operation))
    return found


MEANINGS = meanings(
    """
    join.observing: The dest host does not observe source yet. Cause: The host is still taking the snapshot,
    or cannot reach source. To do: Wait. If this does not end, read the host's ZooKeeper log.

    join.answer: The dest host did not answer. Cause: The host or its ZooKeeper does not answer. To do:
    Find out why, then resume.

    join.source-config: Source's members cannot be read. Cause: No source host answers, or its config
    cannot be read. To do: Find out why, then resume.
    """
)
