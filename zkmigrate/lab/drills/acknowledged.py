"""What clients were promised under the chroot, and what of it a tree on disk does not hold.

Pure: recorded events and a tree in, what is missing out.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from zkmigrate.lab.load.json_lines import Event
from zkmigrate.zookeeper.data.tree import Tree

_SIGN = 1 << 63


@dataclass(frozen=True)
class Owner:
    """Who owned an ephemeral, and since which transaction."""

    session: int
    czxid: int


@dataclass(frozen=True)
class Promised:
    """Everything acknowledged by one moment.

    creates: (path, czxid) of raw creates; a number that was lost is handed out again, so the path alone would
    not tell. topics: those whose creation Kafka confirmed. turns: topic → how many changes of its settings
    Kafka confirmed, each of which raises the version of its config znode. ephemerals: path → owner, as the
    servers said before the fence; sessions: those served then.
    """

    creates: frozenset[tuple[str, int]] = frozenset()
    topics: frozenset[str] = frozenset()
    turns: Mapping[str, int] = field(default_factory=dict)
    ephemerals: Mapping[str, Owner] = field(default_factory=dict)
    sessions: frozenset[int] = frozenset()

    @property
    def count(self) -> int:
        """How many acknowledged writes these are."""
        return len(self.creates) + len(self.topics) + sum(self.turns.values())


@dataclass(frozen=True)
class Missing:
    """What one tree lacks of what was promised, in words that name path and zxid."""

    creates: tuple[str, ...] = ()
    metadata: tuple[str, ...] = ()
    sessions: tuple[str, ...] = ()

    @property
    def count(self) -> int:
        """How many promises are broken."""
        return len(self.creates) + len(self.metadata) + len(self.sessions)


def promised(
    raw: Iterable[Event], metadata: Iterable[Event], baseline: Mapping[str, Any] | None = None
) -> Promised:
    """What these recordings say was acknowledged; baseline as ``lab.baseline`` takes it."""
    changes = [event for event in metadata if event.get("outcome") == "ok"]
    seen = baseline or {"ephemerals": {}, "sessions": {}}
    return Promised(
        frozenset((e["path"], int(e["zxid"], 16)) for e in raw if e["event"] == "ack"),
        frozenset(e["topic"] for e in changes if e["op"] == "create_topic"),
        Counter(e["topic"] for e in changes if e["op"] == "alter_config"),
        {p: Owner(int(e["owner"], 16), int(e["czxid"], 16)) for p, e in seen["ephemerals"].items()},
        frozenset(int(session, 16) for session in seen["sessions"]),
    )


def missing_in(tree: Tree, what: Promised, chroot: str) -> Missing:
    """What the tree does not hold of it. Paths of the tree are absolute; chroot "/" is none."""
    top = chroot.rstrip("/")
    creates = [
        f"{path} {czxid:#x}"
        for path, czxid in sorted(what.creates, key=lambda item: item[1])
        if (node := tree.nodes.get(path)) is None or node.czxid != czxid
    ]
    metadata = [
        f"topic {topic}" for topic in sorted(what.topics) if f"{top}/brokers/topics/{topic}" not in tree.nodes
    ]
    for topic, turns in sorted(what.turns.items()):
        config = tree.nodes.get(f"{top}/config/topics/{topic}")
        if config is None or config.version < turns:
            seen = "none" if config is None else f"version {config.version}"
            metadata.append(f"settings of {topic}: {turns} changes acknowledged, {seen}")
    sessions = [
        f"{path} of {owner.session:#x} {owner.czxid:#x}"
        for path, owner in sorted(what.ephemerals.items())
        if (node := tree.nodes.get(path)) is None
        or (node.ephemeral_owner % (2 * _SIGN), node.czxid) != (owner.session, owner.czxid)
    ]
    known = {session % (2 * _SIGN) for session in tree.sessions}
    sessions += [f"session {session:#x}" for session in sorted(what.sessions - known)]
    return Missing(tuple(creates), tuple(metadata), tuple(sessions))
