"""``zxid subtree``: the largest zxids that the znodes of a subtree carry, from a server or from its files."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from zkmigrate.errors import ZkmigrateError
from zkmigrate.zookeeper.clients.session import Limits
from zkmigrate.zookeeper.clients.subtree import Server, walk_subtree
from zkmigrate.zookeeper.data.subtree import Extent, Largest, Walk, extent_of
from zkmigrate.zookeeper.data.tree import load_tree
from zkmigrate.zookeeper.data.txnlog import MAX_RECORD
from zkmigrate.zookeeper.data.zxid import format_zxid
from zkmigrate.zookeeper.disks.location import Disks, Place, read

_SHOWN = 10


class AbsentError(ZkmigrateError):
    """The subtree is not there."""

    exit_code = 8


@dataclass(frozen=True)
class Answer:
    """What is said. source: "server" or "disk"; where: which. begin, end: the newest zxid there before the
    first znode was read and after the last; the same where all were read in one state. gone, denied: as of
    `Walk`; requests: that were sent to the server."""

    source: str
    where: str
    chroot: str
    extent: Extent
    begin: int
    end: int
    seconds: float
    requests: int = 0
    gone: int = 0
    denied: tuple[str, ...] = ()


@dataclass
class Pace:
    """Says now and then how far a long walk is. clock: seconds."""

    say: Callable[[str], None]
    every_s: float = 5.0
    clock: Callable[[], float] = time.monotonic
    _began: float = field(init=False)
    _next: float = field(init=False)

    def __post_init__(self) -> None:
        self._began = self.clock()
        self._next = self._began + self.every_s

    def walked(self, walk: Walk) -> None:
        """How many znodes there are nobody knows before the end: what is known and not answered is told."""
        if self._due():
            znodes = walk.extent.znodes
            rate = znodes / (self.clock() - self._began)
            self.say(f"{znodes} znodes, {rate:.0f} a second; {walk.left} more are known and not answered yet")

    def replayed(self, done: int, _total: int | None) -> None:
        """From disk: after the snapshot."""
        if self._due():
            self.say(f"the snapshot is read, and {done} transactions after it")

    def _due(self) -> bool:
        now = self.clock()
        if now < self._next:
            return False
        self._next = now + self.every_s
        return True


def from_server(
    servers: Sequence[Server], chroot: str, window: int, limits: Limits, hint: Callable[[str], None]
) -> Answer:
    """Walk on one of the servers. hint: told how it goes. Raises HostError where none answers to the end,
    AbsentError where the chroot is not there."""
    pace = Pace(hint)
    found = walk_subtree(servers, chroot, window, limits, pace.walked, hint)
    walk = found.walk
    if walk.above is not None:
        raise AbsentError(
            f"{chroot} is not there on {found.server}; {walk.above} is. Needed: the chroot as in the "
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
    disks: Disks, data: Place, log: Place | None, chroot: str, largest: int, hint: Callable[[str], None]
) -> Answer:
    """Read the newest snapshot and the log after it. log: as of `place.read`. Raises as that, AbsentError."""
    began = time.monotonic()
    with read(disks, data, log) as side:
        most = max(largest, MAX_RECORD)
        tree = load_tree(side.data, side.logs, chroot=chroot, max_record=most, tell=Pace(hint).replayed)
    if chroot not in tree.nodes:
        raise AbsentError(f"{chroot} is not there in {data} at {format_zxid(tree.zxid)}")
    seconds = time.monotonic() - began
    return Answer("disk", str(data), chroot, extent_of(tree), tree.zxid, tree.zxid, seconds)


def told(answer: Answer, say: Callable[[str], None], hint: Callable[[str], None], *, as_json: bool) -> int:
    """Say the answer; 0, or 8 where some of the subtree could not be read."""
    say(json.dumps(body(answer), ensure_ascii=False) if as_json else text(answer))
    if not answer.denied:
        return 0
    hint(
        f"zkmigrate: {answer.chroot} was not read whole: {denials(answer.denied)}. Needed: READ in their "
        "ACL for everybody, or the files of a server (--dir), where no ACL is asked"
    )
    return 8


def body(answer: Answer) -> dict[str, object]:
    """The answer as JSON values."""
    extent = answer.extent
    return {
        "zxid": _zxid(extent.largest),
        "complete": not answer.denied,
        "source": answer.source,
        "where": answer.where,
        "chroot": answer.chroot,
        "znodes": extent.znodes,
        "czxid": {"zxid": _zxid(extent.czxid), "path": extent.czxid.path},
        "mzxid": {"zxid": _zxid(extent.mzxid), "path": extent.mzxid.path},
        "pzxid": {"zxid": _zxid(extent.pzxid), "path": extent.pzxid.path},
        "begin": format_zxid(answer.begin),
        "end": format_zxid(answer.end),
        "gone": answer.gone,
        "denied": list(answer.denied),
        "requests": answer.requests,
        "seconds": round(answer.seconds, 3),
    }


def text(answer: Answer) -> str:
    """The answer for a reader: the largest zxid, the three it is of, and a line for what is out of the
    ordinary."""
    extent = answer.extent
    asked = f", {answer.requests} requests" if answer.requests else ""
    at_least = "at least " if answer.denied else ""
    lines = [
        f"{at_least}{_zxid(extent.largest) or 'none'} {extent.largest.path or answer.chroot} "
        f"({extent.znodes} znodes at and under {answer.chroot} on {answer.where}{asked}, "
        f"{answer.seconds:.2f} s)"
    ]
    for name in ("czxid", "mzxid", "pzxid"):
        largest: Largest = getattr(extent, name)
        if largest.path:
            lines.append(f"  {name} {_zxid(largest)} {largest.path}")
    if answer.source == "disk":
        lines.append(f"at {format_zxid(answer.end)}, the newest transaction in the files")
    elif answer.begin == answer.end:
        lines.append(f"all of it at {format_zxid(answer.end)}: nothing was written meanwhile")
    else:
        lines.append(
            f"written meanwhile, from {format_zxid(answer.begin)} to {format_zxid(answer.end)}: what came "
            "after a znode was read is not in it"
        )
    if answer.gone:
        lines.append(f"deleted before they were read: {answer.gone}")
    if answer.denied:
        lines.append(f"not whole: {denials(answer.denied)}")
    return "\n".join(lines)


def denials(paths: Sequence[str]) -> str:
    """The znodes that may not be read, the first of them by name."""
    more = f" and {len(paths) - _SHOWN} more" if len(paths) > _SHOWN else ""
    return f"no ACL lets this client read {', '.join(paths[:_SHOWN])}{more}, nor what is below"


def _zxid(largest: Largest) -> str | None:
    """None where nothing was read."""
    return format_zxid(largest.zxid) if largest.path else None
