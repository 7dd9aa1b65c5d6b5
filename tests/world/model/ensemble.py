"""Model ensembles: one log of committed transactions, clients' sessions, four-letter answers.

Rules measured on real ensembles (protocol-facts, lab-facts): without a leader nobody expires a session; a new
leader restarts every session's clock; hosts that lack the newest transaction lose it for all when they lead.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field

from tests.world.model.disk import Kind, Transaction, Tree, replay

UNSERVING = "This ZooKeeper instance is not currently serving requests\n"


@dataclass
class Ensemble:
    """The committed log of one ensemble; ``seen`` is when each session was last heard of."""

    epoch: int
    log: list[Transaction] = field(default_factory=list)
    seen: dict[int, float] = field(default_factory=dict)
    _tree: tuple[int, Tree] = field(default_factory=lambda: (0, Tree()))

    @property
    def zxid(self) -> int:
        """Last zxid; epoch << 32 when this epoch has no transaction yet."""
        newest = self.log[-1].zxid if self.log else 0
        return max(newest, self.epoch << 32)

    def commit(self, kind: Kind, session: int, path: str = "", data: bytes = b"", **more: int) -> Transaction:
        """Append one transaction with the next zxid."""
        known = self.tree().znodes
        parent = known.get(path.rpartition("/")[0])
        txn = Transaction(
            self.zxid + 1,
            session,
            kind,
            path,
            data,
            bool(more.get("ephemeral")),
            more.get("timeout_ms", 0),
            cxid=more.get("cxid", 1),
            version=known[path].version + 1 if kind == "set" else 1,
            cversion=1 if parent is None else parent.cversion + 1,
        )
        self.log.append(txn)
        return txn

    def tree(self) -> Tree:
        """The state that the log leads to; not to be changed by the caller."""
        known, tree = self._tree
        if known != len(self.log):
            whole = known > len(self.log)  # a test has taken its beginning away
            self._tree = (len(self.log), replay(self.log) if whole else replay(self.log[known:], tree))
        return self._tree[1]

    def expire(self, now: float) -> None:
        """Close the sessions that have not been heard of for their timeout."""
        for session, timeout_ms in dict(self.tree().sessions).items():
            if now - self.seen.setdefault(session, now) > timeout_ms / 1000:
                self.commit("close-session", session, cxid=0)


def elected(names: Collection[str], down: Collection[str], leader: str) -> str:
    """Who leads: the leader while it runs, else the last of those that do; nobody below a majority."""
    up = [name for name in names if name not in down]
    if len(up) <= len(names) // 2:
        return ""
    return leader if leader in up else up[-1]


def srvr(version: str, mode: str, zxid: int, nodes: int) -> str:
    """Answer to ``srvr``."""
    return (
        f"Zookeeper version: {version}-model, built on 05/04/2020 15:53 GMT\n"
        "Latency min/avg/max: 0/0/1\nReceived: 10\nSent: 9\nConnections: 1\nOutstanding: 0\n"
        f"Zxid: 0x{zxid:x}\nMode: {mode}\nNode count: {nodes}\n"
    )


def mntr(version: str, mode: str, learners: int, synced: int) -> str:
    """Answer to ``mntr``; the follower counts only where the server leads."""
    lines = [f"zk_version\t{version}-model", "zk_outstanding_requests\t0", f"zk_server_state\t{mode}"]
    if mode == "leader":
        lines += [f"zk_followers\t{learners}", f"zk_synced_followers\t{synced}", "zk_pending_syncs\t0"]
    return "\n".join(lines) + "\n"


def cons(clients: list[tuple[str, int, int, int]]) -> str:
    """Answer to ``cons``: address, port, session, timeout in milliseconds of each client, then the asker."""
    lines = [
        f" /{address}:{port}[1](queued=0,recved=3,sent=3,sid=0x{session:x},lop=PING,est=1,to={timeout},"
        "lcxid=0x1,lzxid=0x1,lresp=1,llat=0,minlat=0,avglat=0,maxlat=1)\n"
        for address, port, session, timeout in clients
    ]
    return "".join(lines) + " /10.0.0.9:50000[0](queued=0,recved=1,sent=0)\n\n"


def dump(tree: Tree) -> str:
    """Answer of a leader to ``dump``."""
    owned: dict[int, list[str]] = {}
    for path, znode in tree.znodes.items():
        if znode.owner:
            owned.setdefault(znode.owner, []).append(path)
    lines = ["SessionTracker dump:", f"Session Sets ({len(tree.sessions)}):", "ephemeral nodes dump:"]
    lines.append(f"Sessions with Ephemerals ({len(owned)}):")
    for session, paths in owned.items():
        lines.append(f"0x{session:x}:")
        lines += [f"\t{path}" for path in paths]
    return "\n".join(lines) + "\n"
