"""The command ``zxid subtree``: the largest zxids of a subtree's znodes, from a server or from its files."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from zkmigrate.errors import ZkmigrateError
from zkmigrate.json_stamp import stamped
from zkmigrate.zookeeper.clients.login import Credentials
from zkmigrate.zookeeper.clients.session import Limits
from zkmigrate.zookeeper.clients.subtree import Server, walk_subtree
from zkmigrate.zookeeper.data.chroot import Chroot
from zkmigrate.zookeeper.data.subtree import Extent, Largest, Walk, extent_of
from zkmigrate.zookeeper.data.tree import load_tree
from zkmigrate.zookeeper.data.txnlog import MAX_RECORD
from zkmigrate.zookeeper.data.zxid import format_zxid
from zkmigrate.zookeeper.disks.location import Disks, Place, open_disk
from zkmigrate.zookeeper.disks.progress import Interval

_SHOWN = 10


class AbsentError(ZkmigrateError):
    """The subtree does not exist."""

    exit_code = 8


@dataclass(frozen=True)
class Answer:
    """The largest zxids of a subtree, and how they were read.

    source: "server" or "disk". where: the name of that server or disk. begin, end: its newest zxid before the
    first znode was read, and after the last; equal if all znodes were read in one state. requests: how many
    requests were sent to the server. gone, denied: see `Walk`.
    """

    source: str
    where: str
    chroot: Chroot
    extent: Extent
    begin: int
    end: int
    seconds: float
    requests: int = 0
    gone: int = 0
    denied: tuple[str, ...] = ()


@dataclass
class WalkProgress:
    """Progress lines for a long walk."""

    say: Callable[[str], None]
    interval: Interval = field(default_factory=lambda: Interval(5.0))

    def report_walk(self, walk: Walk) -> None:
        """Print a line about a walk if it is due. The total number of znodes is unknown before the end."""
        if self.interval.due():
            znodes = walk.extent.znodes
            rate = znodes / self.interval.elapsed_s
            self.say(f"{znodes} znodes, {rate:.0f} a second; {walk.left} more known znodes are not read yet")

    def report_replay(self, done: int, _total: int | None) -> None:
        """Print a line about reading from disk if it is due. done: transactions read after the snapshot."""
        if self.interval.due():
            self.say(f"read the snapshot and {done} transactions after it")


def from_server(
    servers: Sequence[Server],
    chroot: Chroot,
    window: int,
    limits: Limits,
    credentials: Credentials,
    hint: Callable[[str], None],
) -> Answer:
    """Walk the subtree on one of the servers. hint: receives lines of progress.

    Raises HostError if no server answers to the end, and AbsentError if the chroot does not exist.
    """
    progress = WalkProgress(hint).report_walk
    found = walk_subtree(servers, chroot, window, limits, progress, hint, credentials)
    walk = found.walk
    if walk.above is None and not walk.extent.znodes and not walk.denied:
        raise AbsentError(f"none of {chroot.listed} exists on {found.server}")
    if walk.above is not None:
        raise AbsentError(
            f"{chroot} does not exist on {found.server}; {walk.above} does. Needed: the chroot as in the "
            "brokers' zookeeper.connect"
        )
    return Answer(
        "server",
        str(found.server),
        chroot,
        walk.extent,
        walk.begin,
        walk.end,
        found.seconds,
        walk.requests,
        walk.gone,
        tuple(sorted(walk.denied)),
    )


def from_disk(
    disks: Disks, data: Place, log: Place | None, chroot: Chroot, largest: int, hint: Callable[[str], None]
) -> Answer:
    """Read the largest zxids of a subtree from the newest snapshot and the log after it.

    log: see `open_disk`. largest: the largest accepted record in bytes. hint: receives lines of progress.
    Raises the errors of `open_disk`, and AbsentError if the chroot does not exist.
    """
    began = time.monotonic()
    with open_disk(disks, data, log) as side:
        most = max(largest, MAX_RECORD)
        tree = load_tree(
            side.data, side.logs, chroot=chroot, max_record=most, tell=WalkProgress(hint).report_replay
        )
    if not tree.nodes:
        raise AbsentError(f"{data} has no znode {chroot.listed} at {format_zxid(tree.zxid)}")
    seconds = time.monotonic() - began
    return Answer("disk", str(data), chroot, extent_of(tree), tree.zxid, tree.zxid, seconds)


def print_answer(
    answer: Answer, say: Callable[[str], None], hint: Callable[[str], None], *, as_json: bool
) -> int:
    """Print the answer. Return 0, or 8 if a part of the subtree could not be read."""
    say(json.dumps(stamped(body(answer)), ensure_ascii=False) if as_json else text(answer))
    if not answer.denied:
        return 0
    hint(
        f"zkmigrate: {answer.chroot} was read only in part: {describe_denied(answer.denied)}. Needed: READ "
        "for everybody in their ACLs, or the files of a server (--dir), where ACLs do not apply"
    )
    return 8


def body(answer: Answer) -> dict[str, object]:
    """Return the answer as JSON values."""
    extent = answer.extent
    return {
        "zxid": _zxid(extent.largest),
        "complete": not answer.denied,
        "source": answer.source,
        "where": answer.where,
        **answer.chroot.body(),
        "znodes": extent.znodes,
        **{name: {"zxid": _zxid(one), "path": one.path} for name, one in extent.by_name().items()},
        "begin": format_zxid(answer.begin),
        "end": format_zxid(answer.end),
        "gone": answer.gone,
        "denied": list(answer.denied),
        "requests": answer.requests,
        "seconds": round(answer.seconds, 3),
    }


def text(answer: Answer) -> str:
    """Return the answer as text for the operator.

    The text has the largest zxid, the largest czxid, mzxid and pzxid, and a line for each unusual finding.
    """
    extent = answer.extent
    requests = f", {answer.requests} requests" if answer.requests else ""
    at_least = "at least " if answer.denied else ""
    lines = [
        f"{at_least}{_zxid(extent.largest) or 'none'} {extent.largest.path or answer.chroot.path} "
        f"({extent.znodes} znodes at and under {answer.chroot} on {answer.where}{requests}, "
        f"{answer.seconds:.2f} s)"
    ]
    named = extent.by_name().items()
    lines += [f"  {name} {_zxid(one)} {one.path}" for name, one in named if one.path]
    if answer.source == "disk":
        lines.append(f"at {format_zxid(answer.end)}, the newest transaction in the files")
    elif answer.begin == answer.end:
        lines.append(
            f"every znode was read at {format_zxid(answer.end)}: nothing was written during the read"
        )
    else:
        lines.append(
            f"transactions were written during the read, from {format_zxid(answer.begin)} to "
            f"{format_zxid(answer.end)}: changes made after a znode was read are not included"
        )
    if answer.gone:
        lines.append(f"znodes deleted before they were read: {answer.gone}")
    if answer.denied:
        lines.append(f"incomplete: {describe_denied(answer.denied)}")
    return "\n".join(lines)


def describe_denied(paths: Sequence[str]) -> str:
    """Describe the znodes that this client may not read, the first ones by name."""
    more = f" and {len(paths) - _SHOWN} more" if len(paths) > _SHOWN else ""
    return f"no ACL lets this client read {', '.join(paths[:_SHOWN])}{more}, nor the znodes below"


def _zxid(largest: Largest) -> str | None:
    """Return the zxid as text; None if nothing was read."""
    return format_zxid(largest.zxid) if largest.path else None
