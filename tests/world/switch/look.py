"""What an operator sees of the world: the wire text and the values that the real looks give."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from tests.answers import answered
from tests.world.switch.logs import Cluster, Part, differs, first_difference, standings
from tests.world.switch.site import WRITE, World, unit_to
from zkmigrate.hosts.zkm_host import INSTALLED_PATH, STATE_DIR
from zkmigrate.kafka.rights import Acl
from zkmigrate.runbook.model.fact import Absent, Reading, Seen, Unknown
from zkmigrate.runbook.model.look import DirEntry, Request
from zkmigrate.topics.gateway.order import GATEWAY
from zkmigrate.topics.mirror.questions import (
    BothEnds,
    Granted,
    GroupPair,
    GroupReads,
    MirrorRequest,
    MirrorSurvey,
    RangeCompared,
)
from zkmigrate.topics.mirror.rules.direction import Direction, direction

T = TypeVar("T")
STATUS = (Path(__file__).parents[2] / "recorded/zkm-host/status-idle.txt").read_text()
FACTS = (Path(__file__).parents[2] / "recorded/zkm-host/facts.txt").read_text()
NOBODY = Unknown("timeout", "no answer")


def brokers(cluster: str) -> str:
    """Where a cluster is reached."""
    return f"{cluster}1:9092"


@dataclass
class SwitchLook:
    """One operator's look. Each question takes a moment; some have no answer, as often as ``deaf`` says."""

    world: World
    deaf: float = 0.0

    def now(self) -> float:
        return self.world.t

    def wall(self) -> float:
        return self.world.wall()

    def heard(self) -> bool:
        """Let a question take its time; whether it is answered."""
        self.world.advance(self.world.rng.uniform(0.002, 0.03))
        return self.world.rng.random() >= self.deaf

    def zkm(self, host: str, *words: str) -> Reading[str]:
        verb, unit = words
        assert verb in ("status", "facts"), words
        if not self.heard():
            return NOBODY
        if verb == "facts":
            argv = " ".join(f"--topic {topic}" for topic in self.world.unit_topics)
            command = f"{{ path=/z ; argv[]=/z mirror run {argv} ; ignore_errors=no ; pid=0 }}"
            return Seen(re.sub("unit.ExecStart=.*", f"unit.ExecStart={command}", FACTS))
        told = self.world.hosts[host].units[unit_to(unit)]
        state, file = "active" if told.running else "inactive", "enabled" if told.enabled else "disabled"
        return Seen(re.sub("unit_state=.*", f"unit_state={state}\nunit_file={file}", STATUS))

    def file(self, host: str, path: str) -> Reading[bytes]:
        assert path == INSTALLED_PATH or path.endswith("/policy"), path
        if not self.heard():
            return NOBODY
        on_host = self.world.hosts[host]
        if path != INSTALLED_PATH:
            return Seen(on_host.files[path].content) if path in on_host.files else Absent(path)
        return Seen(on_host.installed) if on_host.installed else Absent(path)

    def listing(self, host: str, path: str) -> Reading[tuple[DirEntry, ...]]:
        """Return the runs that have a policy on a host."""
        assert path == STATE_DIR, path
        if not self.heard():
            return NOBODY
        runs = {name.removeprefix(f"{path}/").partition("/")[0] for name in self.world.hosts[host].files}
        return Seen(tuple(DirEntry(run, "d", 0, 0) for run in sorted(runs))) if runs else Absent(path)

    def program(self, channel: str, host: str, *words: str) -> Reading[str]:
        assert (channel, words) == (GATEWAY, ("status",))
        gateway = self.world.gateways[host]
        return Seen(gateway.status()) if self.heard() and gateway.heard else NOBODY

    def ask(self, request: Request[T]) -> T:
        assert isinstance(request, MirrorRequest), request
        one, other = (
            next(c for c in self.world.clusters.values() if at.brokers == (brokers(c.name),))
            for at in (request.source, request.target)
        )
        model = ModelMirror(self, one, other)
        answer: T = answered(model, request, skip=2)
        return answer

    def each(self, hosts: Iterable[str], ask: Callable[[str], T]) -> dict[str, T]:
        return {host: ask(host) for host in hosts}


@dataclass
class ModelMirror:
    """Two clusters, as the mirror's own verbs see them."""

    look: SwitchLook
    source: Cluster
    target: Cluster

    def survey(self, topics: Sequence[str], groups: Sequence[str]) -> Reading[MirrorSurvey]:
        if not self.look.heard():
            return NOBODY
        partitions = {part: self._state(part) for part in self._parts(topics)}
        ids = (self.source.name, self.target.name)
        later = () if self._knows(self.target) else (WRITE,)
        others = {name: "it committed" for name in self.source.commits if name not in groups}
        pairs = self._groups(groups)
        return Seen(MirrorSurvey(ids, ([1], [1]), {}, {}, partitions, pairs, (), later, {}, others, ()))

    def _knows(self, cluster: Cluster) -> bool:
        return cluster.name in self.look.world.granted_at

    def granted(self, acls: Sequence[Acl]) -> Reading[Granted]:
        """Some brokers learn of an ACL later than others."""
        if not self.look.heard():
            return NOBODY
        known = frozenset(acls) if self._knows(self.target) else frozenset[Acl]()
        everywhere = known if self.look.world.may_write(self.target) else frozenset[Acl]()
        return Seen(Granted(everywhere, known))

    def _parts(self, topics: Sequence[str]) -> list[Part]:
        return [part for part in self.source.logs if part[0] in topics]

    def _state(self, part: Part) -> tuple[str, str]:
        here, there = self.source.logs[part], self.target.logs[part]
        if why := differs(here, there):
            return "failed", why
        return ("equal" if len(here) == len(there) else "behind"), ""

    def _groups(self, groups: Sequence[str]) -> dict[str, GroupPair]:
        told = standings(groups, self.source, self.target, self.look.now())
        return {name: GroupPair(one.state, one.behind, one.why) for name, one in told.items()}

    def ends(self, topics: Sequence[str]) -> Reading[Mapping[Part, BothEnds]]:
        """Target is asked first, as the real look does it."""
        if not self.look.heard():
            return NOBODY
        there = {part: len(self.target.logs[part]) for part in self._parts(topics)}
        self.look.heard()
        here = {part: len(self.source.logs[part]) for part in self._parts(topics)}
        dark = self.look.now() < self.look.world.dark
        source, target = (
            None if dark and one is self.look.world.target else one for one in (self.source, self.target)
        )
        return Seen(
            {
                part: BothEnds(
                    here[part] if source else None,
                    here[part] if source else None,
                    there[part] if target else None,
                )
                for part in here
            }
        )

    def direction(self, topics: Sequence[str]) -> Reading[Direction]:
        if not self.look.heard() or self.look.now() < self.look.world.dark:
            return NOBODY
        ids = (self.source.name, self.target.name)
        here, there = (
            {topic: one.lead for topic in topics if one.lead} for one in (self.source, self.target)
        )
        return Seen(direction(topics, ids, (here, there)))

    def commits(self, topics: Sequence[str], groups: Sequence[str]) -> Reading[Mapping[str, GroupPair]]:
        return Seen(self._groups(groups)) if self.look.heard() else NOBODY

    def reads(self, topics: Sequence[str], groups: Sequence[str]) -> Reading[Mapping[str, GroupReads]]:
        if not self.look.heard():
            return NOBODY
        commits, now = self.source.commits, self.look.now()
        return Seen(
            {
                one.group: GroupReads({part: commits.get(one.group, {}).get(part) for part in one.parts})
                for one in self.look.world.consumers
                if one.group in groups and self.source.state(one.group, now) == "Stable"
            }
        )

    def differences(
        self, ranges: Mapping[Part, tuple[int, int]]
    ) -> Reading[Mapping[Part, Reading[RangeCompared]]]:
        if not self.look.heard():
            return NOBODY
        found = first_difference(self.source, self.target, ranges)
        return Seen({part: Seen(RangeCompared(told, 0)) for part, told in found.items()})
