"""Two clusters as logs and commits, and the copiers between them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from zkmigrate.topics.mirror.rules.commits import Commit, Group, Standing, standing, to_commit
from zkmigrate.topics.mirror.rules.direction import Lead, barred

Part = tuple[str, int]

SESSION_S = 6.0
"""A group has members for so long after its last request."""
REFRESH_S = 2.0
"""Between two looks of a copier at the commits."""


@dataclass
class Cluster:
    """logs: the values of each partition by their offset. sent: what producers appended, so that a retry
    appends nothing. commits: by group. heard: when a member of a group last asked for something. lead: which
    cluster leads, as it keeps it."""

    name: str
    logs: dict[Part, list[str]]
    sent: dict[tuple[Part, str], int] = field(default_factory=dict)
    commits: dict[str, dict[Part, int]] = field(default_factory=dict)
    heard: dict[str, float] = field(default_factory=dict)
    lead: Lead | None = None

    def append(self, part: Part, value: str) -> int:
        """The offset of a record, appended unless its producer did that before."""
        if (part, value) not in self.sent:
            self.sent[part, value] = len(self.logs[part])
            self.logs[part].append(value)
        return self.sent[part, value]

    def state(self, group: str, now: float) -> str:
        """As Kafka calls it."""
        return "Stable" if now - self.heard.get(group, -SESSION_S) < SESSION_S else "Empty"


def pair(group: str, source: Cluster, target: Cluster, now: float) -> Group:
    """A group's commits on both clusters."""
    here, there = (
        {part: Commit(offset) for part, offset in cluster.commits.get(group, {}).items()}
        for cluster in (source, target)
    )
    return Group(group, target.state(group, now), here, there)


def standings(groups: Sequence[str], source: Cluster, target: Cluster, now: float) -> dict[str, Standing]:
    """How these groups stand on target."""
    return {group: standing(pair(group, source, target, now)) for group in groups}


def copy_commits(group: str, source: Cluster, target: Cluster, parts: Sequence[Part], now: float) -> None:
    """Commit on target what a group has committed on source, as far as its log goes."""
    ends = {part: len(target.logs[part]) for part in parts}
    for part, commit in to_commit(pair(group, source, target, now), ends).items():
        target.commits.setdefault(group, {})[part] = commit.offset


@dataclass
class Copier:
    """A unit on a mirror host, or somebody's own process. parts: its share. groups: whose commits it copies.
    speed: records per second. enabled: it starts at boot. failed: the partitions that it can no longer
    continue, and why."""

    source: Cluster
    target: Cluster
    parts: Sequence[Part]
    groups: Sequence[str]
    speed: float
    running: bool = False
    enabled: bool = False
    failed: dict[Part, str] = field(default_factory=dict)
    _left: float = 0.0
    _refreshed: float = 0.0

    def start(self) -> None:
        """As systemd starts a unit: one that runs goes on."""
        if not self.running:
            self.running, self.failed = True, {}

    def copy(self, passed_s: float, now: float) -> None:
        """What it does meanwhile. Target says whether it may."""
        self.running = self.running and not barred("", self.target.lead, self.source.name, self.target.name)
        if not self.running:
            return
        self._left = min(self._left + passed_s * self.speed, self.speed)
        for part in self.parts:
            self._continue(part)
        if now - self._refreshed >= REFRESH_S and self.speed:
            self._refreshed = now
            sound = [part for part in self.parts if part not in self.failed]
            for group in self.groups:
                copy_commits(group, self.source, self.target, sound, now)

    def _continue(self, part: Part) -> None:
        here, there = self.source.logs[part], self.target.logs[part]
        if part in self.failed:
            return
        if why := differs(here, there):
            self.failed[part] = why
            return
        new = here[len(there) : len(there) + int(self._left)]
        self._left -= len(new)
        there += new


def differs(source: Sequence[str], target: Sequence[str]) -> str:
    """Why a copier cannot go on, from both ends; empty where it can."""
    if len(target) > len(source):
        return f"target ends at {len(target)}, source at {len(source)}"
    if target and source[len(target) - 1] != target[-1]:
        return f"the record before {len(target)} differs"
    return ""


def first_difference(
    source: Cluster, target: Cluster, ranges: Mapping[Part, tuple[int, int]]
) -> dict[Part, str]:
    """The first difference in each range, empty where there is none."""
    found = {}
    for part, (begin, end) in ranges.items():
        one, other = source.logs[part][begin:end], target.logs[part][begin:end]
        at = next((n for n, pair in enumerate(zip(one, other, strict=False)) if pair[0] != pair[1]), -1)
        if at < 0 and len(one) != len(other):
            at = min(len(one), len(other))
        found[part] = f"offset {begin + at}" if at >= 0 else ""
    return found
