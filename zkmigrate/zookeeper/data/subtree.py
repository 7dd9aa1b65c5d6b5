"""The largest zxids that a subtree's znodes carry: found by a walk over a server's answers, or in a `Tree`.

A znode carries the zxid of its creation (czxid), of the last change of its data (mzxid), and of the last
creation or deletion of a child (pzxid). What leaves none of them is not seen: setACL, a deletion of the
subtree's own root, and whatever concerns another part of the tree.

`Walk` plans and takes in; it sends nothing itself. Each znode is asked once, by getChildren2: its answer has
the znode's Stat and the names of the children, which are asked next. No more than `window` requests are under
way.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

from zkmigrate.zookeeper.data.effect import SYSTEM_ROOT
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
    """A server's answer that ends the walk: an error that is neither of the znode nor of its ACL."""


@dataclass(slots=True)
class Largest:
    """A zxid and the path that carries it; of several paths with the same zxid the first in order."""

    zxid: int = -1
    path: str = ""

    def take(self, zxid: int, path: str) -> None:
        if zxid > self.zxid or (zxid == self.zxid and path < self.path):
            self.zxid, self.path = zxid, path


class Extent:
    """What was found so far: the number of znodes, and the largest of each of the three zxids."""

    __slots__ = ("czxid", "mzxid", "pzxid", "znodes")

    def __init__(self) -> None:
        self.znodes = 0
        self.czxid, self.mzxid, self.pzxid = Largest(), Largest(), Largest()

    def take(self, path: str, czxid: int, mzxid: int, pzxid: int) -> None:
        """One znode more."""
        self.znodes += 1
        self.czxid.take(czxid, path)
        self.mzxid.take(mzxid, path)
        self.pzxid.take(pzxid, path)

    @property
    def largest(self) -> Largest:
        """Of all three; of equals that which comes first in the order czxid, mzxid, pzxid."""
        return max((self.czxid, self.mzxid, self.pzxid), key=lambda each: each.zxid)


def extent_of(tree: Tree) -> Extent:
    """The same of a tree that was read from disk."""
    found = Extent()
    for path, node in tree.nodes.items():
        found.take(path, node.czxid, node.mzxid, node.pzxid)
    return found


class Walk:
    """A walk over the subtree at `root`, parents before their children.

    extent: what was found. begin, end: the newest zxid that the server had applied before the first znode was
    read, and when the last one was; -1 before. Equal, they say that all answers are of one state of the tree.
    gone: znodes that were deleted after their parent was read. denied: those whose ACL lets this client not
    read them: what lies below them is not known. above: where the root is not there, its nearest ancestor
    that is; None else. `/zookeeper` is left out unless the root lies in it, as in `tree`.
    """

    def __init__(self, root: str, window: int) -> None:
        self.root = root
        self.extent = Extent()
        self.begin = self.end = -1
        self.gone = 0
        self.denied: list[str] = []
        self.above: str | None = None
        self.requests = 0
        self._window = window
        # A sync first: a follower that lags behind answers from its own, older tree.
        self._left = [(SYNC, root)]
        self._asked: deque[tuple[int, int, str]] = deque()

    @property
    def left(self) -> int:
        """Znodes known and not answered yet."""
        return len(self._left) + len(self._asked)

    @property
    def done(self) -> bool:
        return not self._left and not self._asked

    def requests_to_send(self) -> bytes:
        """As many requests as the window has room for, framed; empty when there is none to send."""
        out = []
        while self._left and len(self._asked) < self._window:
            kind, path = self._left.pop()
            self.requests += 1
            self._asked.append((self.requests, kind, path))
            out.append(request(self.requests, kind, path))
        return b"".join(out)

    def take(self, frame: bytes) -> None:
        """One reply. Raises MalformedError for bytes that are not the reply to the oldest request under way,
        RefusedError for an error that ends the walk."""
        cursor = JuteInput(frame)
        header = reply_header(cursor)
        if not self._asked or header.xid != self._asked[0][0]:
            expected = f"to request {self._asked[0][0]}" if self._asked else "none"
            raise MalformedError(f"a reply to request {header.xid}, expected is {expected}")
        _, kind, path = self._asked.popleft()
        self.end = header.zxid
        if kind == SYNC and header.err == OK:
            self.begin = header.zxid
            self._left.append((GET_CHILDREN2, path))
        elif kind == GET_CHILDREN2 and header.err == OK:
            names, stat = get_children2_response(cursor)
            self.extent.take(path, stat.czxid, stat.mzxid, stat.pzxid)
            self._plan(path, names)
        elif kind == EXISTS and header.err == OK:
            self.above = path
        elif kind == GET_CHILDREN2 and header.err == NO_NODE and path != self.root:
            self.gone += 1
        elif kind != SYNC and header.err == NO_NODE and path != "/":
            self._left.append((EXISTS, path.rpartition("/")[0] or "/"))
        elif kind == GET_CHILDREN2 and header.err == NO_AUTH:
            self.denied.append(path)
        else:
            raise RefusedError(f"{path}: {error_name(header.err)}")

    def _plan(self, path: str, names: list[str]) -> None:
        below = "/" if path == "/" else f"{path}/"
        for name in names:
            if not name or "/" in name:
                raise MalformedError(f"{path}: a child named {name!r}")
            child = below + name
            if child != SYSTEM_ROOT:
                self._left.append((GET_CHILDREN2, child))
