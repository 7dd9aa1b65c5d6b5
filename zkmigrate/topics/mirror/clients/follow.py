"""Keep partitions, settings, group offsets and ACLs on target equal to those on source.

Both clusters are compared between two rounds of the copier. A fact that cannot be read, or a change that
fails, becomes a finding, and copying continues.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from zkmigrate.errors import HostError
from zkmigrate.kafka.rights import Acl, Changed, rights
from zkmigrate.topics.mirror.clients import groups, topics
from zkmigrate.topics.mirror.clients import rights as acls
from zkmigrate.topics.mirror.clients.cluster import Cluster, Part
from zkmigrate.topics.mirror.clients.copier import Copier
from zkmigrate.topics.mirror.clients.replicas import reached
from zkmigrate.topics.mirror.rules.commits import INACTIVE, Committed, standing, to_commit
from zkmigrate.topics.mirror.rules.follow import Change, Configure, Grow, Memory, Stop, follow
from zkmigrate.topics.mirror.rules.position import Ends
from zkmigrate.topics.mirror.rules.share import WHOLE, Share
from zkmigrate.topics.mirror.rules.topic import deletes

SOON_S = 0.5
"""Seconds until the next comparison if a change is not visible yet, or a coordinator is not known."""
SHARE = 9
"""The pause after a comparison, as a multiple of the time that the comparison took.

The pause is there because a slow cluster must not stop the copier.
"""
NO_AUTHORIZER = "no authorizer"


@dataclass(frozen=True)
class Finding:
    """A difference that remains, or a fact that could not be read.

    about: the subject. why: the reason.
    """

    about: str
    why: str


Told = Grow | Configure | Committed | Changed | Finding


class Follower:
    """A follower that copies changes of topics, group offsets and ACLs while records are copied.

    names: the topics. named: the groups; if empty, all groups that use the topics. clears: the topics whose
    records may be deleted, a set that the follower updates and shares with the copier. refresh_s: the most
    seconds until a change on source is on target. say: a function that is called with each change and each
    new finding. share: the part of the partitions that this copier copies, also of new partitions.

    findings: the findings of the last round. unread: the partitions that had too few replicas in sync on
    source in the last round, so that their last records cannot be read yet.
    """

    def __init__(
        self,
        source: Cluster,
        target: Cluster,
        names: Sequence[str],
        named: Sequence[str],
        clears: set[str],
        refresh_s: float,
        say: Callable[[Told], None],
        share: Share = WHOLE,
    ) -> None:
        self._source, self._target, self._names, self._named = source, target, names, named
        self._share = share
        self._clears, self._every, self._say = clears, refresh_s / 2, say
        self._due = 0.0
        self._memory = dict.fromkeys(names, Memory())
        self._groups: tuple[str, ...] = tuple(named)
        self._keep, self._ruled = frozenset[Acl](), list(names)
        self.findings: dict[str, str] = {}
        self.unread: tuple[Part, ...] = ()

    def tick(self, copier: Copier) -> None:
        """Compare both clusters and make target equal to source, if the time for this has come."""
        if time.monotonic() >= self._due:
            self.look(copier)

    def look(self, copier: Copier) -> bool:
        """Make target equal to source as far as possible now.

        Returns True if more is left to do, so that the next comparison should follow soon.
        """
        before, self.findings = self.findings, {}
        begun, soon = time.monotonic(), False
        parts = {
            "topics": self._follow_topics,
            "replicas": self._watch_replicas,
            "groups": self._follow_groups,
            "ACLs": self._follow_rights,
        }
        for about, part in parts.items():
            try:
                copier.still_leads()
                soon |= part(copier)
            except HostError as error:
                self.findings[about] = str(error)
        ended = time.monotonic()
        self._due = ended + max((ended - begun) * SHARE, SOON_S if soon else begun + self._every - ended)
        for about, why in self.findings.items():
            if before.get(about) != why:
                self._say(Finding(about, why))
        return soon

    def _followed(self, copier: Copier) -> list[str]:
        """Return the topics of which some partitions are still being copied."""
        every = copier.partitions.values()
        over = {p.part[0] for p in every} - {p.part[0] for p in every if p.left}
        return [name for name in self._names if name not in over]

    # -- topics

    def _follow_topics(self, copier: Copier) -> bool:
        names = self._followed(copier)
        if not names:
            return False
        (here, hidden), (there, unseen) = (topics.states(one, names) for one in (self._source, self._target))
        self.findings |= {f"topic {name}": why for name, why in (hidden | unseen).items()}
        soon = False
        for name in names:
            if name in hidden or name in unseen:
                continue
            one, other = here[name], there[name]
            told = follow(name, one, other, self._memory[name])
            self._memory[name] = told.memory
            for key, why in told.left.items():
                self.findings[f"topic {name}: {key}" if key else f"topic {name}"] = why
            for change in told.changes:
                soon |= self._change(change, copier)
            if one is not None and other is not None:
                (self._clears.add if deletes(other.settings.values) else self._clears.discard)(name)
                count = min(one.partitions, other.partitions)
                copier.add(self._share.of((name, n) for n in range(count)))
        return soon

    def _change(self, change: Change, copier: Copier) -> bool:
        try:
            match change:
                case Stop():
                    copier.stop(change.topic, change.why)
                    return False
                case Grow():
                    topics.grow(self._target, change)
                case Configure():
                    topics.configure(self._target, change)
        except HostError as error:
            self.findings[f"topic {change.topic}"] = str(error)
            return False
        self._say(change)
        return True

    # -- replicas

    def _watch_replicas(self, copier: Copier) -> bool:
        """Report the partitions of source that have too few replicas in sync.

        The last records of such partitions cannot be copied yet.
        """
        ours = [part for part, one in copier.partitions.items() if one.left]
        logs = reached(self._source, {topic for topic, _ in ours}) if ours else {}
        short = {part: logs[part] for part in ours if part in logs and logs[part].below}
        self.unread = tuple(part for part, log in short.items() if log.unread)
        self.findings |= {f"{topic}-{number}": log.held for (topic, number), log in short.items()}
        return False

    # -- groups

    def _follow_groups(self, copier: Copier) -> bool:
        names = self._followed(copier)
        if not names:
            return False
        read = groups.read(self._source, self._target, names, self._named)
        read = groups.touch(self._target, read)
        self._groups = tuple(one.name for one in read.groups)
        copier.still_leads()  # after a switch, target's commits are newer than source's
        sound = self._target.ends([p.part for p in copier.partitions.values() if p.open])
        ends = {part: one.end for part, one in sound.items() if isinstance(one, Ends)}
        troubles = dict(read.troubles)
        troubles |= {
            one.name: standing(one).why for one in read.groups if one.refused or one.state not in INACTIVE
        }
        wanted = {
            one.name: (read.brokers[one.name], commits)
            for one in read.groups
            if one.name in read.brokers and (commits := to_commit(one, ends))
        }
        refused = groups.commit(self._target, wanted)
        for name, (_, commits) in wanted.items():
            if name not in refused:
                self._say(Committed(name, commits))
        self.findings.update({f"group {name}": str(why) for name, why in (troubles | refused).items()})
        return any(one.name not in read.brokers for one in read.groups)

    # -- ACLs

    def _follow_rights(self, copier: Copier) -> bool:
        names = self._followed(copier)
        if names != self._ruled:
            # The ACLs of a topic that is no longer followed stay as they are.
            self._ruled, self._keep = names, frozenset()
        if not names:
            return False
        here, there = acls.read(self._source), acls.read(self._target)
        for cluster, told in ((self._source, here), (self._target, there)):
            if told is None:
                self.findings[f"{cluster.what}'s ACLs"] = NO_AUTHORIZER
        if here is None or there is None:
            return False
        found = rights(here, there, names, self._groups, self._keep)
        self._keep = found.keep
        self.findings.update({str(rule): why for rule, why in found.left.items()})
        if found.grant:
            acls.grant(self._target, found.grant)
        if found.revoke:
            acls.revoke(self._target, found.revoke)
        if found.grant or found.revoke:
            self._say(Changed(found.grant, found.revoke))
        return False
