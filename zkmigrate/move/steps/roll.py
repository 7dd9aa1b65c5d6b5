"""What: write dest's addresses into the config files of the members, one safe wave at a time.

Why now: dest follows source, so a member sees the same tree through dest. Its sessions then live on dest.

Clients may notice: the effects of any rolling restart of this dependent. Of Kafka's brokers: leaders move,
and a producer may wait up to a few seconds.

Way back: the same waves with the old file put back, never all members at once. The changes that the policy
requests after the last wave are made in either direction.

Proof: every member's file names dest and its process has read that file. Every member is connected to dest
and not to source, the cluster is settled, and source's client lists show no member.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, get_args

from zkmigrate.errors import HostError, UsageError
from zkmigrate.hosts.facts.host_names import all_unresolved, asked_names
from zkmigrate.hosts.facts.sockets import normalized, sockets
from zkmigrate.hosts.facts.status import HostStatus, runs, unit_status
from zkmigrate.inventory.hours import closed, now_in
from zkmigrate.inventory.inventory import Inventory
from zkmigrate.kafka.facts.recovery import parse_span
from zkmigrate.move.dependent import AnyDependent, Ending, MemberFacts, OfDependent, Position, unit_of
from zkmigrate.move.facts.connections import addresses, connections_of
from zkmigrate.move.facts.dest_status import unanswered
from zkmigrate.move.rules.server_down import servers_to_ask
from zkmigrate.move.rules.soak import soak_progress
from zkmigrate.runbook.model.change import Applied, Changes, inverses, replace_content
from zkmigrate.runbook.model.fact import Absent, NotHeard, Reading, Seen, Unknown
from zkmigrate.runbook.model.finding import Finding, blocking, claim, each, meanings
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
from zkmigrate.zookeeper.data.four_letter_words import Connection

WAVE_DEADLINE_S = 600.0
_SOAK = "soak"
_PROGRESS = "progress"

STOP_MARGIN_S = 60.0
"""The seconds after a unit's TimeoutStopSec by which the member has stopped, because systemd has killed it.
"""


@dataclass(frozen=True)
class RollFacts:
    """The members, their cluster, and the clients of source.

    own: the state of the cluster, which only the dependent can read. identities: the id of the dependent's
    cluster, as seen through each dest host. wall: the operator's clock, in seconds since the epoch. now:
    seconds on a monotonic clock.
    """

    members: dict[str, MemberFacts]
    own: Any
    identities: dict[str, Reading[str]]
    source_clients: dict[str, Reading[tuple[Connection, ...]]]
    wall: float = 0.0
    now: float = 0.0


class RollStep(OfDependent, Step[RollFacts]):
    id = "roll"
    hazard = Hazard.REVERSIBLE

    def __init__(self, dependent: AnyDependent) -> None:
        super().__init__(dependent)
        self.title = f"Roll the {dependent.words.many} to dest"

    def observe(self, c: Context, look: Look) -> RollFacts:
        d, inventory, wall = self.dependent, c.inventory, look.wall()
        ports = {*inventory.source.ports.clients, *inventory.dest.ports.clients}

        def one(host: str) -> MemberFacts:
            return replace(
                self._file(inventory, look, host),
                status=unit_status(look, host, *unit_of(d, inventory, at[host])),
                zookeepers=_peers(look, host, ports),
            )

        at = {m.name: m for m in d.members(inventory)}
        members = look.each(at, one)
        return RollFacts(
            members,
            d.for_roll(c, look, d.cluster(c, look), members),
            look.each(inventory.dest_names, lambda h: d.identity_seen(inventory, look, h)),
            connections_of(look, servers_to_ask(inventory, look)),
            wall,
            look.now(),
        )

    def check(self, c: Context, f: RollFacts) -> Verdict:
        verdict = self._verdict(c, f)
        if isinstance(verdict, Waiting):
            # Any wait other than the soak means that something is not well, so the soak begins anew.
            return replace(verdict, keep={_SOAK: {}, **verdict.keep})
        return verdict

    def _verdict(self, c: Context, f: RollFacts) -> Verdict:
        d, inventory = self.dependent, c.inventory
        silent = {h: why for h, m in f.members.items() if (why := _silence(m))}
        answering = {h: m for h, m in f.members.items() if h not in silent}
        unread = (
            *unanswered("roll.answer", {host: m.file for host, m in answering.items()}),
            *(_state_unknown(d, h, m.status) for h, m in answering.items() if not _state_known(m.status)),
        )
        unread = unread or self._unresolved(c, answering)
        if unread:
            return Blocked(unread)
        if c.way is Way.FORWARD and (wrong := self._another_cluster(inventory, f)):
            return Blocked(wrong)
        if why := d.why_silent(f.own):
            return Waiting(f"the {d.words.many} answer", why, WAVE_DEADLINE_S)
        # A silent member may be up or down. The others continue as long as the cluster is settled anyway.
        positions = tuple(self._position(c, f, m.name) for m in d.members(inventory) if m.name in answering)
        wave, reason = d.next_wave(inventory, f.own, positions)
        if wave and (changing := self._changing(c, f, wave[0])):
            return changing
        if wave and self._has_read(c, f, wave[0]):
            return self._wait_for(c, f, wave[0])
        if c.way is Way.BACK and (without := self._without_image(c, f, wave)):
            return Blocked(without)
        if wave and c.way is Way.FORWARD:
            first = next(p for p in positions if p.name == wave[0])
            if not first.down and (closed := self._out_of_hours(inventory, f, positions)):
                return Blocked(closed)
            if not first.touched and (soaks := self._soaking(c, f, positions, wave)):
                return soaks
        if wave:
            return Ready(wave, ask=self._stopped_by_others(c, f, wave))
        if silent:
            return _wait_for_silent(c, silent, reason)
        if reason := reason or d.why_unsettled(f.own):
            return Waiting(f"every {d.words.one} has settled", reason, WAVE_DEADLINE_S)
        if (ending := d.ending(inventory)) and ending.asked and d.ending_due(f.own):
            closed = self._out_of_hours(inventory, f, positions) if c.way is Way.FORWARD else ()
            return Blocked(closed) if closed else Ready((ending.target,))
        if c.way is Way.BACK:
            return Done()
        return Done.unless_blocked(self._left_source(inventory, f))

    def plan(self, c: Context, f: RollFacts, target: str) -> Changes:
        if ending := self._ending(c.inventory, target):
            return ending.changes
        d, member, path = self.dependent, f.members[target], self.dependent.config(c.inventory)
        if not isinstance(member.file, Seen) or member.entry is None:
            raise UsageError(f"{target}: {path} cannot be read, so it cannot be edited")
        entry, now = member.entry, member.file.value
        content = d.with_dest(c.inventory, now)
        owner = f"{entry.owner}:{entry.group}"
        change = replace_content(target, path, now, content, owner, entry.mode)
        return (change, *d.restart_or_reload(c.inventory, target))

    def undo(self, c: Context, f: RollFacts, target: str, applied: tuple[Applied, ...]) -> Changes:
        if ending := self._ending(c.inventory, target):
            return ending.changes
        # The file comes first: if the operator's machine fails in between, the member still runs.
        return (*inverses(applied), *self.dependent.restart_or_reload(c.inventory, target))

    def forecast(self, c: Context, look: Look) -> Forecast[RollFacts]:
        """Forecast the changes from the members' files, because the cluster may change before the roll."""
        d = self.dependent
        members = look.each(
            (m.name for m in d.members(c.inventory)), lambda h: self._file(c.inventory, look, h)
        )
        for host, member in members.items():
            if not isinstance(member.file, Seen):
                raise HostError(f"{host}: {d.config(c.inventory)} cannot be read: {member.file}")
        targets = (host for host, member in members.items() if not self._names_dest(c.inventory, member))
        ending = d.ending(c.inventory)
        last = (ending.target,) if ending is not None and ending.asked else ()
        return Forecast(RollFacts(members, None, {}, {}), (*targets, *last))

    def _file(self, inventory: Inventory, look: Look, host: str) -> MemberFacts:
        path = self.dependent.config(inventory)
        entry = _entry(look.listing(host, path.rpartition("/")[0]), path)
        member = MemberFacts(look.file(host, path), entry)
        if not isinstance(member.file, Seen):
            return member
        ask, content = partial(self.dependent.names_dest, inventory), member.file.value
        own = addresses(next(m for m in self.dependent.members(inventory) if m.name == host))
        with suppress(UsageError):  # the verdict reports it
            return replace(member, names=asked_names(look, host, own, lambda r: ask(content, r)))
        return member

    def _ending(self, inventory: Inventory, target: str) -> Ending | None:
        """Return the changes that follow the last wave if ``target`` names them, otherwise None."""
        ending = self.dependent.ending(inventory)
        return ending if ending is not None and ending.target == target else None

    def _names_dest(self, inventory: Inventory, member: MemberFacts) -> bool | None:
        """Return whether a member's file names dest; None if a name in it does not resolve."""
        if not isinstance(member.file, Seen):
            return False
        found = member.names
        return self.dependent.names_dest(inventory, member.file.value, lambda n: found.get(n, Absent(n)))

    def _unresolved(self, c: Context, members: Mapping[str, MemberFacts]) -> tuple[Finding, ...]:
        """Return a finding for each member for which it is not known whether its file names dest."""
        words, path = self.dependent.words, self.dependent.config(c.inventory)
        return tuple(
            claim(
                "roll.names",
                f"the {words.one}'s file shows whether it names source or dest",
                None,
                target=host,
                seen=all_unresolved(member.names, host),
                needed=f"each name in {words.key} of {path} resolves on {host}",
                moves=(f"let it resolve on {host}, or name source by its addresses, then resume",),
            )
            for host, member in members.items()
            if self._names_dest(c.inventory, member) is None and not self._untouched(c, host, member)
        )

    def _untouched(self, c: Context, host: str, member: MemberFacts) -> bool:
        """Return whether the way back has nothing to do on this member.

        This is so if the run wrote no file there, and the member's process is connected to source alone.
        """
        return c.way is Way.BACK and host not in c.unrestored and _connected(c, member)

    def _position(self, c: Context, f: RollFacts, name: str) -> Position:
        d, inventory, state = self.dependent, c.inventory, f.members[name]
        file_done = self._file_done(c, state) or self._untouched(c, name, state)
        moved = file_done and _connected(c, state) and d.settled(inventory, f.own, name)
        # On the way back this run changed every member that is not moved, even one that never got in sync.
        lost = c.way is Way.BACK and d.is_spare(inventory, f.own, name)
        touched = not moved and (file_done or not state.runs or lost)
        settling = touched and self._has_read(c, f, name)
        return Position(name, moved, touched, not state.runs, settling)

    def _file_done(self, c: Context, member: MemberFacts) -> bool:
        """Return whether the member's file names the ensemble to which the run currently leads."""
        return self._names_dest(c.inventory, member) is (c.way is Way.FORWARD)

    def _has_read(self, c: Context, f: RollFacts, name: str) -> bool:
        """Return whether the member's file is right and its process has read the file.

        In that case another change would have no effect.
        """
        state = f.members[name]
        return self._file_done(c, state) and self.dependent.has_read(c.inventory, f.own, name, state)

    def _changing(self, c: Context, f: RollFacts, name: str) -> Waiting | None:
        """Return a wait for a service that systemd is stopping, or is starting with the right file.

        Another restart would have no effect in that state.
        """
        state = f.members[name]
        status = state.status.value if isinstance(state.status, Seen) else None
        if status is None:
            return None
        longest_s = c.inventory.policy.roll_recovery_s
        if status.unit_state == "deactivating":
            stop_s = min(_stop_s(status) + STOP_MARGIN_S, longest_s)
            seen = f"systemd is stopping the service; TimeoutStopSec is {status.unit_stop or 'not known'}"
            return Waiting(f"{name} has stopped", seen, max(WAVE_DEADLINE_S, stop_s), 1.0)
        if self._file_done(c, state) and status.unit_state in ("activating", "reloading"):
            seen = f"systemd reports the service as {status.unit_state}"
            return Waiting(f"{name} has started", seen, WAVE_DEADLINE_S, 1.0)
        return None

    def _wait_for(self, c: Context, f: RollFacts, name: str) -> Waiting:
        """Return the wait for a member that has read the right file but does not meet all conditions yet."""
        state, d = f.members[name], self.dependent
        status = state.status.value if isinstance(state.status, Seen) else None
        key = "" if status is None else f"{name} {status.boot_id} {status.unit_since}"
        kept = c.kept.get(_PROGRESS, {}).get(key, {})
        lacks = d.progress(c, f.own, name, kept, f.now, WAVE_DEADLINE_S)
        peers = state.zookeepers
        where = ",".join(sorted(peers.value)) if isinstance(peers, Seen) else peers
        progress = f"{lacks.words}, connected to: {where or 'nothing'}"
        still_on = _hosts_to_leave(c, state)
        if not still_on:
            what, keep = f"{name} is back and in sync", {_PROGRESS: {key: lacks.marks}}
            return Waiting(what, progress, lacks.deadline_s, lacks.poll_s, keep)
        other, wanted = ("source", "dest") if c.way is Way.FORWARD else ("dest", "source")
        return Waiting(
            f"no process of {name} is a client of {other} any more",
            f"the {d.words.one} was started after its file named {wanted}, yet the host is connected to "
            f"{', '.join(still_on)} of {other}. Find the process on that host with ss -tnp; {progress}",
            WAVE_DEADLINE_S,
        )

    def _out_of_hours(
        self, inventory: Inventory, f: RollFacts, positions: tuple[Position, ...]
    ) -> tuple[Finding, ...]:
        """Return the finding that the roll may not continue at this time of day; empty inside policy.window.

        The limit applies only on the way forward, to running members and to the changes after the last wave.
        A member that is down is started at any time, and the way back waits for no window.
        """
        window = inventory.policy.window
        if window is None or closed(None, window, f.wall) is None:
            return ()
        words, moved = self.dependent.words, sum(p.moved for p in positions)
        ending = self.dependent.ending(inventory) if moved == len(positions) else None
        return (
            claim(
                "roll.hour",
                f"{words.many} {words.again} only inside the maintenance window",
                False,
                seen=f"{now_in(window, f.wall)}; {moved} of {len(f.members)} {words.many} have moved",
                needed=window.words,
                moves=(
                    "wait for the window, then resume",
                    "change policy.window in migration.yml, then resume",
                    *(() if ending is None else (ending.without,)),
                    "roll back, which is possible at any hour: zkmigrate rollback",
                ),
            ),
        )

    def _soaking(
        self, c: Context, f: RollFacts, positions: tuple[Position, ...], wave: tuple[str, ...]
    ) -> Waiting | None:
        """Return the wait for policy.roll_soak_s between two waves, or None when it is over."""
        statuses = {p.name: f.members[p.name].status for p in positions if p.moved}
        moved = {name: status.value for name, status in statuses.items() if isinstance(status, Seen)}
        well_s, marks = soak_progress(moved, c.kept.get(_SOAK, {}))
        soak_s = c.inventory.policy.roll_soak_s
        if well_s >= soak_s:
            return None
        return Waiting(
            f"the {self.dependent.words.many} that have moved have been healthy for {soak_s:g} s",
            f"{len(moved)} of {len(f.members)} have moved; {', '.join(wave)} next, "
            f"in {soak_s - well_s:.0f} s",
            soak_s + WAVE_DEADLINE_S,
            1.0,
            {_SOAK: marks},
        )

    def _stopped_by_others(self, c: Context, f: RollFacts, wave: tuple[str, ...]) -> tuple[Finding, ...]:
        """Return a finding for each member of a wave that is down and that this run did not stop.

        Somebody may be working on such a member. A member counts as stopped by this run if the outcome of a
        change of this run is not known, or if the run tried to start the member and failed.
        """
        words = self.dependent.words

        def ours(host: str) -> bool:
            status = f.members[host].status
            failed = isinstance(status, Seen) and status.value.unit_state == "failed"
            return host in c.unconfirmed or (failed and host in c.unrestored)

        return tuple(
            claim(
                "roll.stopped",
                f"every {words.one} that is down was stopped by this run",
                False,
                target=host,
                seen=f"{host} is down, and this run did not stop it",
                needed=f"an operator agrees that the roll starts {host} with its new file",
                moves=(
                    f"find out who stopped {host}",
                    "start it by hand, then resume",
                    "answer go at a terminal",
                ),
            )
            for host in wave
            if runs(f.members[host].status) is False and not ours(host)
        )

    def _without_image(self, c: Context, f: RollFacts, wave: tuple[str, ...]) -> tuple[Finding, ...]:
        """Return a finding for each file that names dest and has no before-image to put back."""
        words, path = self.dependent.words, self.dependent.config(c.inventory)
        return tuple(
            claim(
                "roll.before-image",
                f"the journal holds the {words.one}'s file from before the roll",
                False,
                target=host,
                seen=f"{path} names dest, and no change to it is in the journal",
                needed="the record of the change that wrote the file",
                moves=(
                    "recover the journal from its copies on the dest hosts, then roll back again",
                    f"put {words.key} back by hand and {words.again} the {words.one}, then roll back again",
                ),
            )
            for host in wave
            if host not in c.unrestored and self._names_dest(c.inventory, f.members[host])
        )

    def _another_cluster(self, inventory: Inventory, f: RollFacts) -> tuple[Finding, ...]:
        """Return a finding for each dest host whose chroot does not certainly belong to this dependent's
        cluster.
        """
        wanted = self.dependent.identity(inventory)
        findings = tuple(
            claim(
                "roll.cluster-id",
                "the chroot seen through dest belongs to this cluster",
                reading.value == wanted if isinstance(reading, Seen) else None,
                target=host,
                seen=reading.value if isinstance(reading, Seen) else str(reading),
                needed=wanted,
                moves=(
                    (self.dependent.words.wrong_section,)
                    if isinstance(reading, Seen)
                    else ("find out why this dest host does not report it", "wait for dest to catch up")
                ),
            )
            for host, reading in f.identities.items()
        )
        return blocking(findings)

    def _left_source(self, inventory: Inventory, f: RollFacts) -> tuple[Finding, ...]:
        words = self.dependent.words
        members = {address: m.name for m in self.dependent.members(inventory) for address in addresses(m)}

        def finding(host: str, held: bool | None, seen: str) -> Finding:
            return claim(
                "roll.left-source",
                f"no {words.one} is a client of source any more",
                held,
                target=host,
                seen=seen,
                needed=f"no {words.one}",
                moves=(
                    f"{words.again} the {words.one} named here",
                    "run zkmigrate resume, which checks again",
                ),
            )

        findings = []
        for host, reading in f.source_clients.items():
            if isinstance(reading, Seen):
                still = sorted({members[a] for x in reading.value if (a := normalized(x.address)) in members})
                findings.append(finding(host, not still, ", ".join(still)))
            else:
                findings.append(finding(host, None, str(reading)))
        return tuple(findings)


def _entry(listing: Reading[tuple[DirEntry, ...]], path: str) -> DirEntry | None:
    """Return the entry of the file at this path from the listing of its directory."""
    name = path.rpartition("/")[2]
    return next((e for e in listing.value if e.name == name), None) if isinstance(listing, Seen) else None


def _silence(member: MemberFacts) -> str:
    """Return why a member's host does not answer, if the reason may be temporary.

    The text is empty if the host answers, or if the reason is permanent.
    """
    for reading in (member.file, member.status):
        if isinstance(reading, Unknown) and reading.cause in get_args(NotHeard):
            return str(reading)
    return ""


def _wait_for_silent(c: Context, silent: Mapping[str, str], reason: str) -> Waiting:
    """Return the wait for hosts that do not answer, with advice about a host that will never answer.

    silent: host → why it does not answer.
    """
    names = ", ".join(silent)
    waits = f"; the other members wait as well: {reason}" if reason else ""
    return Waiting(
        f"{names} answers" if len(silent) == 1 else f"{names} answer",
        f"{each(silent)}{waits}; if a host is lost: zkmigrate retire {next(iter(silent))} "
        f"--run-id {c.run} --reason …",
        c.inventory.policy.step_deadline_s,
        1.0,
    )


def _state_known(status: Reading[HostStatus]) -> bool:
    return isinstance(status, Seen) and status.value.unit_state != "unknown"


def _state_unknown(dependent: AnyDependent, host: str, status: Reading[HostStatus]) -> Finding:
    """Return the finding that a member must not be restarted, because it is not known whether it runs."""
    return claim(
        "roll.service",
        f"it is known whether this host's {dependent.words.one} runs",
        None,
        target=host,
        seen="neither systemd nor the status command can report it"
        if isinstance(status, Seen)
        else str(status),
        needed="a service that is reported as active or inactive",
        moves=("run the status command, or systemctl status, on that host by hand; then resume",),
    )


def _peers(look: Look, host: str, ports: set[int]) -> Reading[frozenset[str]]:
    """Return the addresses to which the host has an established connection at one of these ports."""
    reading = sockets(look, host)
    if not isinstance(reading, Seen):
        return reading
    return Seen(frozenset(s.peer for s in reading.value if s.peer_port in ports))


def _connected(c: Context, state: MemberFacts) -> bool:
    """Return whether the member is connected only to the ensemble to which the run currently leads."""
    if not isinstance(state.zookeepers, Seen):
        return False
    source = {a for h in c.inventory.source.hosts for a in addresses(h)}
    dest = {a for h in c.inventory.dest.hosts for a in addresses(h)}
    wanted, other = (dest, source) if c.way is Way.FORWARD else (source, dest)
    return bool(state.zookeepers.value & wanted) and not state.zookeepers.value & other


def _stop_s(status: HostStatus) -> float:
    """Return the seconds that systemd gives the unit to stop; 0 if that is not known."""
    try:
        return parse_span(status.unit_stop)
    except ValueError:
        return 0.0


def _hosts_to_leave(c: Context, state: MemberFacts) -> tuple[str, ...]:
    """Return the ZooKeeper hosts that the member is still connected to but has to leave."""
    if not isinstance(state.zookeepers, Seen):
        return ()
    hosts = c.inventory.source.hosts if c.way is Way.FORWARD else c.inventory.dest.hosts
    return tuple(h.name for h in hosts if addresses(h) & state.zookeepers.value)


MEANINGS = meanings(
    """
    roll.service: It is not known whether the host's broker runs. Cause: Neither systemd nor the status
    command can report it. To do: Run the status command, or systemctl status, on that host by hand, then
    resume.

    roll.stopped: A broker is down that this run did not stop. Cause: Somebody stopped it, or it crashed. The
    roll would start it, while somebody may be working on its host. To do: Find out who stopped it. Start the
    broker by hand and resume, or resume at a terminal and answer go.

    roll.hour: The maintenance window is over before every broker has moved. Cause: The roll took longer
    than policy.window allows. To do: Wait for the next window, or change policy.window, then resume.
    Rollback works at any hour.

    roll.before-image: The journal does not hold the content of the broker's file from before the roll. Cause:
    The journal is lost, or somebody else wrote dest into the file. To do: Recover the journal from its copies
    on the dest hosts, then roll back. Or put the key back by hand and restart the broker.

    roll.cluster-id: The chroot, seen through this dest host, does not hold this cluster. Cause: The
    chroot or the cluster's id is wrong, or dest is behind. To do: Correct migration.yml, or wait until
    dest has caught up.

    roll.left-source: A broker that was rolled is still a client of source. Cause: Its process did not
    read the new file. To do: Restart the broker that the finding names, then resume.

    roll.names: It is not known whether a broker's file names dest. Cause: A name in zookeeper.connect does
    not resolve on the broker's host. To do: Let the name resolve on that host, or write addresses in its
    place, then resume.

    roll.answer: The broker's file cannot be read. Cause: The host does not answer, or the file cannot be
    read. To do: Find out why it cannot be read, then resume.
    """
)
