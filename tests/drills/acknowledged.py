"""The writes under the chroot that clients have acknowledged, and those that a tree on disk lacks. Pure."""

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
    """The session that owned an ephemeral, and the transaction that created it."""

    session: int
    czxid: int


@dataclass(frozen=True)
class Promised:
    """Everything that was acknowledged by one moment.

    creates: (path, czxid) of raw creates; the path alone is not enough, because a lost sequence number is
    given out again. topics: topics whose creation Kafka confirmed. turns: how many changes of a topic's
    settings Kafka confirmed, by topic; each raises the version of its config znode. ephemerals, sessions:
    those that servers reported before the fence; ephemerals by path.
    """

    creates: frozenset[tuple[str, int]] = frozenset()
    topics: frozenset[str] = frozenset()
    turns: Mapping[str, int] = field(default_factory=dict)
    ephemerals: Mapping[str, Owner] = field(default_factory=dict)
    sessions: frozenset[int] = frozenset()

    @property
    def count(self) -> int:
        """The number of acknowledged writes."""
        return len(self.creates) + len(self.topics) + sum(self.turns.values())


@dataclass(frozen=True)
class Missing:
    """The promises that one tree breaks, in words with path and zxid."""

    creates: tuple[str, ...] = ()
    metadata: tuple[str, ...] = ()
    sessions: tuple[str, ...] = ()

    @property
    def count(self) -> int:
        """The number of broken promises."""
        return len(self.creates) + len(self.metadata) + len(self.sessions)


def promised(
    raw: Iterable[Event], metadata: Iterable[Event], baseline: Mapping[str, Any] | None = None
) -> Promised:
    """Return the acknowledged writes in these recordings.

    baseline: what ``lab.baseline`` returned.
    """
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
    """Return the promises that the tree does not keep.

    chroot: "/" if there is none. The tree's paths are absolute.
    """
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
