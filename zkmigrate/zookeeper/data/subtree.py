"""The largest zxids of a subtree's znodes, from a walk over a server's answers, or from a `Tree`.

A znode has the zxid of its creation (czxid), of the last change of its data (mzxid), and of the last creation
or deletion of a child (pzxid). setACL, and the deletion of the subtree's own root, leave no zxid in the
subtree.

`Walk` creates requests and reads replies; it sends nothing itself. It requests each znode once, with
getChildren2, which returns the znode's Stat and the names of its children. At most `window` requests are in
flight.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

from zkmigrate.zookeeper.data.chroot import QUOTAS, Chroot
from zkmigrate.zookeeper.data.errors import MalformedError, ZkDataError
from zkmigrate.zookeeper.data.jute import JuteInput
from zkmigrate.zookeeper.data.messages import (
    EXISTS,
    GET_CHILDREN2,
    NO_AUTH,
    NO_NODE,
    OK,
    SYNC,
    error_name,
    get_children2_response,
    reply_header,
    request,
)
from zkmigrate.zookeeper.data.tree import Tree


class RefusedError(ZkDataError):
    """A server's answer that ends the walk: an error that neither the znode nor its ACL explains."""


@dataclass(slots=True)
class Largest:
    """The largest zxid so far and its path. If paths have the same zxid, the first in order is kept."""

    zxid: int = -1
    path: str = ""

    def take(self, zxid: int, path: str) -> None:
        if zxid > self.zxid or (zxid == self.zxid and path < self.path):
            self.zxid, self.path = zxid, path


class Extent:
    """The number of znodes in a subtree, and the largest czxid, mzxid and pzxid among them."""

    __slots__ = ("czxid", "mzxid", "pzxid", "znodes")

    def __init__(self) -> None:
        self.znodes = 0
        self.czxid, self.mzxid, self.pzxid = Largest(), Largest(), Largest()

    def take(self, path: str, czxid: int, mzxid: int, pzxid: int) -> None:
        """Add a znode."""
        self.znodes += 1
        self.czxid.take(czxid, path)
        self.mzxid.take(mzxid, path)
        self.pzxid.take(pzxid, path)

    @property
    def largest(self) -> Largest:
        """The largest of the three zxids. Of equal zxids, czxid is preferred to mzxid, and mzxid to pzxid."""
        return max(self.by_name().values(), key=lambda each: each.zxid)

    def by_name(self) -> dict[str, Largest]:
        return {"czxid": self.czxid, "mzxid": self.mzxid, "pzxid": self.pzxid}


def extent_of(tree: Tree) -> Extent:
    """Return the Extent of a tree that was read from disk."""
    found = Extent()
    for path, node in tree.nodes.items():
        found.take(path, node.czxid, node.mzxid, node.pzxid)
    return found


class Walk:
    """A walk over the znodes of a chroot, parents before their children.

    begin: the newest zxid that the server had applied before the first znode was read. end: the newest zxid
    that it had applied when the last znode was read. Both are -1 before. If they are equal, all answers show
    one state of the tree. gone: how many znodes were deleted after their parent was read. denied: the znodes
    that this client may not read; the znodes below them are unknown.

    above: the nearest existing ancestor of a chroot that does not exist, else None.
    """

    def __init__(self, chroot: Chroot, window: int) -> None:
        self.chroot = chroot
        self.extent = Extent()
        self.begin = self.end = -1
        self.gone = 0
        self.denied: list[str] = []
        self.above: str | None = None
        self.requests = 0
        self._window = window
        # A sync first: a follower that lags behind answers from its own, older tree.
        self._left = [(SYNC, chroot.path)]
        self._sent: deque[tuple[int, int, str]] = deque()

    @property
    def left(self) -> int:
        """The number of known znodes without an answer yet."""
        return len(self._left) + len(self._sent)

    @property
    def done(self) -> bool:
        return not self._left and not self._sent

    def requests_to_send(self) -> bytes:
        """Return as many framed requests as may be sent now; empty if there is none to send."""
        out = []
        while self._left and len(self._sent) < self._window:
            kind, path = self._left.pop()
            self.requests += 1
            self._sent.append((self.requests, kind, path))
            out.append(request(self.requests, kind, path))
        return b"".join(out)

    def take(self, frame: bytes) -> None:
        """Read one reply.

        Raises MalformedError for bytes that do not answer the oldest request in flight, and RefusedError for
        an error that ends the walk.
        """
        cursor = JuteInput(frame)
        header = reply_header(cursor)
        if not self._sent or header.xid != self._sent[0][0]:
            expected = f"request {self._sent[0][0]} is the next" if self._sent else "no request is open"
            raise MalformedError(f"a reply to request {header.xid} arrived, but {expected}")
        _, kind, path = self._sent.popleft()
        self.end = header.zxid
        if kind == SYNC and header.err == OK:
            self.begin = header.zxid
            self._left.append((GET_CHILDREN2, path))
        elif kind == GET_CHILDREN2 and header.err == OK:
            names, stat = get_children2_response(cursor)
            if self.chroot.holds(path):
                self.extent.take(path, stat.czxid, stat.mzxid, stat.pzxid)
            if path == self.chroot.path and not self.chroot.holds(QUOTAS):
                self._left.append((GET_CHILDREN2, QUOTAS))
            self._plan(path, names)
        elif kind == EXISTS and header.err == OK:
            self.above = path
        elif kind == GET_CHILDREN2 and header.err == NO_NODE and path != self.chroot.path:
            self.gone += 1
        elif kind != SYNC and header.err == NO_NODE and path != "/":
            self._left.append((EXISTS, path.rpartition("/")[0] or "/"))
        elif kind == GET_CHILDREN2 and header.err == NO_AUTH:
            self.denied.append(path)
        else:
            raise RefusedError(f"the server refused a request for {path}: {error_name(header.err)}")

    def _plan(self, path: str, names: list[str]) -> None:
        below = "/" if path == "/" else f"{path}/"
        for name in names:
            if not name or "/" in name:
                raise MalformedError(f"{path}: invalid child name {name!r}")
            child = below + name
            if self.chroot.holds(child):
                self._left.append((GET_CHILDREN2, child))
