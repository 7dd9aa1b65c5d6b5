"""Read from the disks of both ensembles which transactions changed a subtree on dest after the cut.

The same reading shows whether source can repeat these transactions. Nothing is written. The verb ``replay
list`` gets the directories from the command line; a run gets them from its inventory.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from zkmigrate.errors import UsageError
from zkmigrate.kafka.rules.replicas import Replicas
from zkmigrate.runbook.model.finding import meanings
from zkmigrate.zookeeper.data.chroot import Chroot
from zkmigrate.zookeeper.data.contents import contents
from zkmigrate.zookeeper.data.delta import delta
from zkmigrate.zookeeper.data.effect import is_session, touched_paths
from zkmigrate.zookeeper.data.errors import ZkDataError
from zkmigrate.zookeeper.data.histories import compare
from zkmigrate.zookeeper.data.logdir import walk
from zkmigrate.zookeeper.data.proofs import Proved, Reach, Side, reach_of
from zkmigrate.zookeeper.data.replay import Again, Mark, Replay, Tally, marker_of, needed_paths
from zkmigrate.zookeeper.data.session import format_session
from zkmigrate.zookeeper.data.sums import (
    Sums,
    View,
    bucket_of,
    differing_buckets,
    read_sums,
    whole_znode,
    znodes,
)
from zkmigrate.zookeeper.data.tail import newest
from zkmigrate.zookeeper.data.tree import Znode, differences
from zkmigrate.zookeeper.data.txnlog import MAX_RECORD
from zkmigrate.zookeeper.data.zxid import epoch, format_zxid

_SHOWN = 5
BATCH = 100
"""The number of transactions that one journaled change replays."""

STOPPING_S = 300.0
"""The seconds that a stopping broker needs to hand over its partitions.

A replica that fell behind earlier before the stop did so for another reason.
"""

Tell = Callable[[str, int, int | None], None]
"""A function that receives a reader's progress: what is counted, the count so far, and the total or None."""


def silent(_name: str) -> Tell:
    """Return a function that ignores the progress of reading a disk."""
    return lambda _what, _done, _total: None


@dataclass(frozen=True)
class Condition:
    """A claim that must be true before anything is replayed.

    held: whether it is true, or None if that is not known. seen: a text with what was seen.
    """

    id: str
    claim: str
    held: Proved
    seen: str


@dataclass(frozen=True)
class Batch:
    """The transactions that one journaled change replays, up to the zxid `upto`.

    count: the number of these transactions. fingerprint: the fingerprint of all requests from the cut to
    `upto`.
    """

    upto: int
    count: int
    fingerprint: str


@dataclass
class ReplayScope:
    """The transactions to replay and the conditions for replaying them.

    - dest: the name of the disk from which the transactions are read
    - cut: the newest zxid that both ensembles share
    - upto: the newest zxid of dest
    - under: how many of dest's transactions changed the subtree
    - passed: how many of these are skipped because they leave nothing behind
    - tally: counts of the requests to replay
    - batches: all transactions to replay, grouped into journaled changes
    - first: the first transactions to replay, for showing them
    - touched: the znodes that the transactions change, as they were at the cut, and all ephemerals
    """

    chroot: Chroot
    dest: str
    cut: int = 0
    upto: int = 0
    under: int = 0
    passed: int = 0
    tally: Tally = field(default_factory=Tally)
    batches: list[Batch] = field(default_factory=list)
    touched: Mapping[str, Znode] = field(default_factory=dict)
    first: list[Again] = field(default_factory=list)
    conditions: list[Condition] = field(default_factory=list)


@dataclass
class ReplayDisks:
    """The disks of source and dest from which a replay is planned.

    opened: lists the directories again, source's first, because servers begin new logs. lines: how many
    transactions to keep for showing. max_record: the largest accepted record of a log, in bytes. tell:
    returns, for the name of a disk, a function that receives the progress of reading it.
    """

    opened: Callable[[], Sequence[Side]]
    chroot: Chroot
    lines: int = 20
    max_record: int = MAX_RECORD
    tell: Callable[[str], Tell] = silent
    source: Side = field(init=False)
    dests: Sequence[Side] = field(init=False)
    _read: dict[tuple[str, int], Sums] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._list()

    def _list(self) -> None:
        self.source, *self.dests = self.opened()

    def examine(self, mark: Mark | None = None) -> ReplayScope:
        """Read the disks and return the transactions to replay with their conditions.

        mark: the mark of a replay that has begun. Raises UsageError if a disk is given twice or belongs to no
        dest that was cut over, HostError and OSError for a disk that cannot be reached, and ZkDataError for a
        disk whose content cannot be parsed.
        """
        if len({dest.name for dest in self.dests}) < len(self.dests):
            raise UsageError("a directory of dest is given twice. Give each directory once")
        source_at = newest(self.source.data, self.source.logs, max_record=self.max_record).zxid
        ends = {d.name: newest(d.data, d.logs, max_record=self.max_record).zxid for d in self.dests}
        dest = max(self.dests, key=lambda side: ends[side.name])
        reach = reach_of(self.source, source_at, dest, after_cut=True, max_record=self.max_record)
        found = ReplayScope(self.chroot, dest.name, _cut(dest, reach), ends[dest.name])
        at_cut = self._at(dest, found.cut)
        if not at_cut.znodes:
            raise UsageError(f"{dest.name} holds no znode {self.chroot.listed} at {format_zxid(found.cut)}")
        found.conditions += [self._one_history(dest, ends), self._same(found.cut, at_cut)]
        if mark is None:
            found.conditions.append(self._untouched(found, at_cut))
        found.conditions.append(_at_rest("source.at-rest", "source", self._at(self.source, source_at)))
        found.conditions.append(_at_rest("dest.at-rest", "dest", self._at(dest, found.upto)))
        if (replicated := self._replicated(dest, found)) is not None:
            found.conditions.append(replicated)
        found.conditions += self._readable(found, mark)
        return found

    def transactions(self, found: ReplayScope) -> Replay:
        """Return a reader of dest's transactions after the cut."""
        dest = self._dest(found)
        return Replay(
            dest.logs,
            chroot=self.chroot,
            after=found.cut,
            at_cut=found.touched,
            owners=self._at(dest, found.cut).owners,
            max_record=self.max_record,
        )

    def _touched(self, found: ReplayScope) -> dict[str, Znode]:
        """Return the value of ``ReplayScope.touched``, for which dest's snapshot is read again."""
        dest = self._dest(found)
        paths = needed_paths(dest.logs, chroot=self.chroot, after=found.cut, max_record=self.max_record)
        at_cut = self._at(dest, found.cut)
        nodes = znodes(dest.data, dest.logs, at_cut, max_record=self.max_record, tell=self.tell(dest.name))
        return {path: node for path, node in nodes if path in paths or is_session(node.ephemeral_owner)}

    def is_of(self, marker: str, created: int) -> Proved:
        """Return whether source's disk shows that the marker was written at this zxid.

        Returns None if the disk has not reached that zxid.
        """
        if self._source_at() < created:
            return None
        for record in walk(self.source.logs, after=created - 1, max_record=self.max_record):
            if record.zxid == created:
                return marker in touched_paths(record.txn())
        return False

    def compare(self, name: str, upto: int, reached: int) -> Condition:
        """Compare the path, data, ACL and versions of the subtree's znodes between dest and source.

        name: the dest disk, compared as of zxid `upto`. reached: the zxid that source's disk must have
        reached. Raises the same errors as `examine`.
        """
        claim = "source holds the same subtree as dest"
        if (at := self._source_at()) < reached:
            seen = f"{self.source.name} is at {format_zxid(at)}, source at {format_zxid(reached)}"
            return Condition("replay.same", claim, None, seen)
        dest = next(side for side in self.dests if side.name == name)
        moved = newest(dest.data, dest.logs, max_record=self.max_record).zxid
        if moved != upto:
            return Condition("replay.same", claim, False, f"dest has advanced to {format_zxid(moved)}")
        views = (lasting_view(self.chroot, marked=True), lasting_view(self.chroot, marked=False))
        left, right = self._sums(self.source, None, views[0]), self._sums(dest, upto, views[1])
        if not (buckets := differing_buckets(left, right)):
            return Condition("replay.same", claim, True, f"{right.znodes} znodes, the same")
        unlike = [
            {path: node for path, node in self._viewed(side, sums, view) if bucket_of(path) in buckets}
            for side, sums, view in ((self.source, left, views[0]), (dest, right, views[1]))
        ]
        every = [f"{one.path} ({one.kind})" for one in differences(*unlike)]
        more = f" and {len(every) - _SHOWN} more" if len(every) > _SHOWN else ""
        seen = f"{len(every)} of {right.znodes} znodes differ: {', '.join(every[:_SHOWN])}{more}"
        return Condition("replay.same", claim, False, seen)

    def _at(self, side: Side, zxid: int) -> Sums:
        """Return the sums of the whole subtree on one disk at a zxid.

        The result is kept, so each disk is read only once for the same zxid.
        """
        if (side.name, zxid) not in self._read:
            self._read[side.name, zxid] = self._sums(side, zxid, whole_znode)
        return self._read[side.name, zxid]

    def _sums(self, side: Side, upto: int | None, view: View) -> Sums:
        return read_sums(
            side.data,
            side.logs,
            chroot=self.chroot,
            upto=upto,
            view=view,
            max_record=self.max_record,
            tell=self.tell(side.name),
        )

    def _viewed(self, side: Side, found: Sums, view: View) -> Iterator[tuple[str, Znode]]:
        for path, node in znodes(side.data, side.logs, found, max_record=self.max_record):
            seen = view(path, node)
            if seen is not None:
                yield path, seen

    def _dest(self, found: ReplayScope) -> Side:
        return next(side for side in self.dests if side.name == found.dest)

    def _one_history(self, dest: Side, ends: dict[str, int]) -> Condition:
        claim = "the disks of dest hold one history, and the newest disk is read"
        parted = []
        for other in self.dests:
            if other is not dest:
                found = compare(dest.logs, other.logs, max_record=self.max_record)
                if found.parting is not None:
                    parted.append(f"{other.name}: {found.parting}".replace(" on source", f" on {dest.name}"))
        seen = ", ".join(f"{name} {format_zxid(at)}" for name, at in ends.items())
        return Condition("dest.one-history", claim, not parted, "; ".join(parted) or seen)

    def _same(self, cut: int, at_cut: Sums) -> Condition:
        theirs = self._at(self.source, cut)
        buckets = differing_buckets(theirs, at_cut)
        seen = f"{at_cut.znodes} znodes at {format_zxid(cut)}, digest {at_cut.digest[:16]}"
        if buckets:
            counted = f"{theirs.znodes} znodes on source and {at_cut.znodes} on dest"
            seen = f"{counted}; {len(buckets)} parts of the tree differ"
        return Condition(
            "cut.same", "the subtree was the same on source and dest at the cut", not buckets, seen
        )

    def _untouched(self, found: ReplayScope, at_cut: Sums) -> Condition:
        claim = "only expiries have changed the subtree on source since the cut"
        since = delta(
            self.source.logs,
            chroot=self.chroot,
            after=found.cut,
            upto=None,
            owners=at_cut.owners,
            living=at_cut.owners.keys(),
            highest=found.cut,
            max_record=self.max_record,
        )
        if since.missing:
            one = since.missing[0]
            seen = (
                f"{len(since.missing)} changes, first {format_zxid(one.zxid)} {one.type} {one.path} "
                f"by {format_session(one.session)}"
            )
        else:
            seen = since.unproved or f"{since.records} transactions of all tenants since the cut"
        return Condition("source.untouched", claim, since.held, seen)

    def _replicated(self, dest: Side, found: ReplayScope) -> Condition | None:
        """Return the condition that all replicas were in sync, or None if the subtree is not Kafka's."""
        root = f"{self.chroot.prefix}/brokers"
        replicas = Replicas(root)
        for content in contents(dest.data, dest.logs, root=root, upto=found.cut, max_record=self.max_record):
            replicas.take(content)
        if not replicas.partitions:
            return None
        claim = "every replica was in sync when the first broker was stopped"
        return Condition("dest.replicated", claim, *_in_sync(replicas))

    def _readable(self, found: ReplayScope, mark: Mark | None) -> list[Condition]:
        """Check in one pass whether each transaction can be repeated, and fill in the scope."""
        claim = "each of dest's transactions can be repeated on source"
        found.touched = self._touched(found)
        steps = self.transactions(found)
        at_mark = {found.cut: steps.fingerprint}
        count = 0
        try:
            for again in steps:
                found.tally.take(again)
                count += 1
                if len(found.first) < self.lines:
                    found.first.append(again)
                if mark is not None and again.zxid == mark.done:
                    at_mark[again.zxid] = steps.fingerprint
                if count == BATCH:
                    found.batches.append(Batch(again.zxid, count, steps.fingerprint))
                    count = 0
        except ZkDataError as error:
            return [Condition("replay.possible", claim, False, str(error))]
        finally:
            found.under, found.passed = steps.under, steps.passed
        if count:
            found.batches.append(Batch(again.zxid, count, steps.fingerprint))
        seen = f"{found.tally.transactions} of {found.under} transactions have a lasting effect"
        possible = Condition("replay.possible", claim, True, seen)
        return [possible, *([] if mark is None else [_continues(mark, at_mark.get(mark.done))])]

    def _source_at(self) -> int:
        """List all directories again, and return the newest zxid on source's disk."""
        self._list()
        return newest(self.source.data, self.source.logs, max_record=self.max_record).zxid


def _continues(mark: Mark, fingerprint: str | None) -> Condition:
    claim = "the replayed part of source matches dest's transactions"
    seen = f"{mark.version} transactions, up to {format_zxid(mark.done)}, with the consent of {mark.consent}"
    return Condition("replay.mark", claim, fingerprint == mark.fingerprint, seen)


def lasting_view(chroot: Chroot, *, marked: bool) -> View:
    """Return the view of what a replay must reproduce: path, data, ACL and three versions, no ephemerals.

    Ephemerals are left out. marked: whether the tree holds the marker, whose creation the chroot's cversion
    counts.
    """
    marker = marker_of(chroot)

    def view(path: str, node: Znode) -> Znode | None:
        if is_session(node.ephemeral_owner) or path == marker:
            return None
        cversion = node.cversion - (marked and path == chroot.path)
        return replace(node, cversion=cversion, czxid=0, mzxid=0, pzxid=0, ctime=0, mtime=0)

    return view


def _at_rest(id: str, side: str, at_end: Sums) -> Condition:
    """Check that the brokers' sessions have ended, so that no session owns an ephemeral in the subtree."""
    owned = [f"{format_session(owner)} owns {paths[0]}" for owner, paths in at_end.owners.items()]
    more = f" and {len(owned) - _SHOWN} more" if len(owned) > _SHOWN else ""
    seen = "; ".join(owned[:_SHOWN]) + more or f"no ephemeral at {format_zxid(at_end.zxid)}"
    return Condition(id, f"no session owns part of the subtree on {side} any more", not owned, seen)


def _in_sync(replicas: Replicas) -> tuple[bool, str]:
    some = ", ".join(sorted(replicas.behind)[:_SHOWN])
    more = f" and {len(replicas.behind) - _SHOWN} more" if len(replicas.behind) > _SHOWN else ""
    counted = f"{replicas.partitions} partitions"
    if replicas.left is None:
        lack = f"{len(replicas.behind)} of {counted} lack a replica: {some}{more}"
        up = f"{len(replicas.registered)} brokers up"
        return not replicas.behind, f"{lack if replicas.behind else counted}; {up}"
    if replicas.short is None:
        return True, f"{counted}, all in sync to the end"
    if not replicas.whole:
        return (
            False,
            f"not in sync since the last broker started; of {counted} these lack a replica: {some}{more}",
        )
    before_s = (replicas.left.time_ms - replicas.short.time_ms) / 1000
    seen = f"{counted}; the first replica fell out of sync {before_s:.1f} s before the first broker left"
    return before_s <= STOPPING_S, seen


def _cut(dest: Side, reach: Reach) -> int:
    """Return the newest zxid that dest received from source. Later zxids are dest's own.

    Raises UsageError if the disks do not show that zxid.
    """
    common, own = reach.histories.common, reach.histories.own
    cut = reach.zxid if common is None else common
    why = reach.unproved
    if not why and own is None:
        why = f"the disk is at {format_zxid(reach.newest)}, and its log holds no transaction of dest alone"
    elif not why and own is not None and epoch(own) <= epoch(cut):
        why = f"its log continues with {format_zxid(own)} in the epoch of {format_zxid(cut)}"
    if why:
        raise UsageError(f"{dest.name}: {why}. Needed: disks of a dest that was cut over")
    return cut


MEANINGS = meanings(
    """
    dest.one-history: A disk of dest holds another history than the other disks. Cause: A dest server probably
    continued alone. To do: Repair forward instead. Keep the logs of that host.

    cut.same: The subtree differed between source and dest at the cut. Cause: A replay can start only from
    equal trees. To do: Repair forward instead. Compare with zkmigrate prove digest.

    source.untouched: A client has written under the chroot on source since the cut. Cause: A broker or a tool
    still uses source. The replay would overwrite its writes, or stop half way. To do: Find the writer with
    zkmigrate writers, and decide which ensemble's state to keep.

    source.at-rest: A session owns a part of the subtree on source. Cause: A broker or a tool uses source.
    The subtree must not change during the replay. To do: Stop that client.

    dest.at-rest: A session owns a part of the subtree on dest. Cause: A broker still runs on dest, or its
    session has not ended yet. To do: Stop the brokers and wait until their sessions end.

    dest.replicated: A partition lacked a replica when the first broker stopped. Cause: A broker was down
    or behind. It may hold the newer data. To do: Bring the brokers on dest back into sync first, then
    begin again.

    replay.possible: A transaction of dest cannot be repeated on source. Cause: The subtree holds
    containers or TTL znodes, which servers delete by themselves. Kafka has none. To do: Repair forward
    instead.

    replay.mark: The mark of the replay on source does not match dest's transactions. Cause: The mark
    belongs to another replay, or dest has changed since. To do: Find out who wrote the mark. Do not
    delete it before you know.

    replay.same: After the replay source and dest differ. Cause: A client wrote under the chroot, or dest
    has changed since. To do: Find the other writer. After a rollback the brokers continue with dest.
    """
)
