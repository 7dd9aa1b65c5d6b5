"""Following between the rounds of the copier: what it adds, stops, and what it cannot do."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import count
from types import SimpleNamespace
from typing import Any, cast

import pytest
from kafka.errors import SecurityDisabledError

from tests.unit.topics.mirror.batches import built
from tests.unit.topics.mirror.model_cluster import Log, ModelCluster
from zkmigrate.errors import HostError
from zkmigrate.kafka.rights import Acl, Changed
from zkmigrate.topics.mirror.clients import copier, follow, groups, rights, topics
from zkmigrate.topics.mirror.clients.codecs import KafkaCodecs
from zkmigrate.topics.mirror.clients.copier import Copier
from zkmigrate.topics.mirror.clients.follow import Finding, Follower
from zkmigrate.topics.mirror.rules.commits import Commit, Committed, Group
from zkmigrate.topics.mirror.rules.direction import Lead
from zkmigrate.topics.mirror.rules.follow import Configure, Grow, State
from zkmigrate.topics.mirror.rules.share import Share, owner
from zkmigrate.topics.mirror.rules.topic import Settings
from zkmigrate.topics.mirror.verbs.follow import told

FIRST, SECOND = ("orders", 0), ("orders", 1)
READ = Acl("TOPIC", "orders", "LITERAL", "User:a", "*", "READ", "ALLOW")


class World:
    """Two clusters and what a look reads of them; broken: names of the parts that fail."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.source = ModelCluster("source", {FIRST: Log()})
        self.target = ModelCluster("target", {FIRST: Log()})
        self.source.logs[FIRST].append(built(3))
        self.ids = {"source": "one", "target": "two"}
        self.groups: tuple[Group, ...] = ()
        self.rules = {"source": frozenset[Acl](), "target": frozenset[Acl]()}
        self.broken, self.hidden = set[str](), set[str]()
        self.done: list[Any] = []
        self.say: list[Any] = []
        for name in ("SETTLE_S", "RETRY_S", "LOOK_S"):
            patch.setattr(copier, name, 0.0)
        patch.setattr(topics, "states", self.states)
        patch.setattr(topics, "grow", self.grow)
        patch.setattr(groups, "read", self.read)
        patch.setattr(groups, "touch", lambda _, read: read)
        patch.setattr(groups, "commit", self.commit)
        patch.setattr(rights, "read", lambda cluster: self.rules[cluster.what])
        patch.setattr(rights, "grant", lambda _, some: self.done.append(("grant", some)))
        patch.setattr(rights, "revoke", lambda _, some: self.done.append(("revoke", some)))
        made = (cast(Any, self.source), cast(Any, self.target))
        self.copier = Copier(*made, [FIRST], {"orders"}, KafkaCodecs(), lambda _: None)
        self.clears = {"orders"}
        self.policy = "delete"
        self.looks = 0
        self.follower = Follower(*made, ["orders"], [], self.clears, 0.0, self.say.append)

    def states(self, cluster: ModelCluster, names: Sequence[str]) -> tuple[Mapping[str, State], Any]:
        if "topics" in self.broken:
            raise HostError("no answer")
        self.looks += cluster is self.source
        one = State(self.ids[cluster.what], len(cluster.logs), 1, Settings({"cleanup.policy": self.policy}))
        told = {name: one for name in names if name not in self.hidden}
        return told, {name: f"{cluster.what} hides it" for name in names if name in self.hidden}

    def grow(self, cluster: ModelCluster, change: Grow) -> None:
        if "grow" in self.broken:
            raise HostError("not allowed")
        assert len(self.copier.partitions) < change.partitions, "copied before target has it"
        cluster.logs.update({("orders", n): Log() for n in range(len(cluster.logs), change.partitions)})

    def read(self, *_: object) -> groups.Read:
        if "groups" in self.broken:
            raise HostError("no answer")
        return groups.Read(self.groups, {one.name: 1 for one in self.groups}, {})

    def commit(self, _: object, wanted: Mapping[str, tuple[int, Any]]) -> dict[str, str]:
        self.done += [(name, commits) for name, (_, commits) in wanted.items()]
        return {name: "no answer" for name in wanted if name in self.broken}

    def run(self, rounds: int = 30) -> None:
        left = count()
        self.copier.copy(lambda: next(left) > rounds, lambda: self.follower.tick(self.copier))

    @property
    def equal(self) -> bool:
        return all(self.target.logs[part].read() == log.read() for part, log in self.source.logs.items())


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> World:
    monkeypatch.setattr(follow, "SOON_S", 0.0)
    monkeypatch.setattr(follow, "SHARE", 0)
    return World(monkeypatch)


def test_h4_a_new_partition_is_copied_after_target_has_it(world: World) -> None:
    world.run()
    world.source.logs[SECOND] = Log()
    world.source.logs[SECOND].append(built(2))
    world.run()
    assert world.equal
    assert world.target.logs[SECOND].end == 2
    assert world.say == [Grow("orders", 2)]


def test_h4_a_refused_growth_is_told_once_and_the_rest_is_copied(world: World) -> None:
    world.run()
    world.broken.add("grow")
    world.source.logs[SECOND] = Log()
    world.source.logs[FIRST].append(built(2))
    world.run()
    assert world.target.logs[FIRST].end == 5
    assert world.say == [Finding("topic orders", "not allowed")]
    assert SECOND not in world.copier.partitions


def test_h4_a_topic_that_cannot_be_looked_at_does_not_end_the_others(world: World) -> None:
    """One that an account may not see, or whose settings it may not read."""
    made = (cast(Any, world.source), cast(Any, world.target))
    follower = Follower(*made, ["dark", "orders"], [], world.clears, 0.0, world.say.append)
    world.hidden.add("dark")
    world.source.logs[SECOND] = Log()
    follower.look(world.copier)
    assert follower.findings["topic dark"] == "target hides it"
    assert Grow("orders", 2) in world.say
    assert SECOND not in world.copier.partitions
    follower.look(world.copier)
    assert SECOND in world.copier.partitions


def test_h4_each_of_several_copiers_gets_its_share_of_new_partitions(world: World) -> None:
    """Also one that had no partition of the topic yet."""
    [own] = {1, 2} - {owner(2, FIRST)}
    share, parts = Share(own, 2), [("orders", n) for n in range(9)]
    world.copier.partitions.clear()
    world.source.logs = {part: Log() for part in parts}
    made = (cast(Any, world.source), cast(Any, world.target))
    follower = Follower(*made, ["orders"], [], set(), 0.0, world.say.append, share)
    follower.look(world.copier)
    follower.look(world.copier)
    assert 0 < len(share.of(parts)) < len(parts)
    assert list(world.copier.partitions) == share.of(parts)


def test_h4_a_topic_made_anew_fails_and_is_never_continued(world: World) -> None:
    world.run()
    world.ids["source"] = "three"
    world.run()
    world.source.logs[FIRST].append(built(2))
    world.run()
    assert "created again" in world.copier.partitions[FIRST].failed
    assert world.target.logs[FIRST].end == 3


@pytest.mark.parametrize("part", ["topics", "groups"])
def test_a_failing_look_is_told_and_copying_goes_on(world: World, part: str) -> None:
    world.broken.add(part)
    world.run()
    assert world.equal
    assert world.follower.findings == {part: "no answer"}
    assert world.say == [Finding(part, "no answer")]


def test_a_slow_cluster_does_not_stop_the_copier(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """A look of one second is followed by nine without one."""
    now = [100.0]
    monkeypatch.setattr(follow, "SHARE", 9)
    monkeypatch.setattr(follow, "time", SimpleNamespace(monotonic=lambda: now[0]))
    monkeypatch.setattr(rights, "read", lambda _: now.__setitem__(0, now[0] + 0.5) or frozenset())
    for at, looks in ((100.0, 1), (109.9, 1), (110.1, 2)):
        now[0] = at
        world.follower.tick(world.copier)
        assert world.looks == looks


def test_h7_records_are_deleted_only_while_targets_policy_lets_them(world: World) -> None:
    world.policy = "compact"
    world.follower.look(world.copier)
    assert world.clears == set()
    world.policy = "compact,delete"
    world.follower.look(world.copier)
    assert world.clears == {"orders"}


def test_h5_commits_go_up_to_the_copied_end_and_one_failure_stops_no_other(world: World) -> None:
    world.groups = tuple(Group(name, "Empty", {FIRST: Commit(9)}, {}) for name in ("a", "b"))
    world.run()
    assert world.done[-2:] == [("a", {FIRST: Commit(3)}), ("b", {FIRST: Commit(3)})]
    assert world.say[-1] == Committed("b", {FIRST: Commit(3)})
    world.broken.add("a")
    told = len(world.say)
    world.follower.look(world.copier)
    assert world.follower.findings == {"group a": "no answer"}
    assert world.say[told:] == [Committed("b", {FIRST: Commit(3)}), Finding("group a", "no answer")]


def test_h5_a_failed_partition_gets_no_commits(world: World) -> None:
    world.run()
    world.copier.stop("orders", "for a test")
    world.groups = (Group("a", "Empty", {FIRST: Commit(2)}, {}),)
    world.follower.look(world.copier)
    assert world.done == []


def test_a_partition_whose_last_records_cannot_be_copied_is_named(world: World) -> None:
    world.source.above[FIRST] = 2
    world.follower.look(world.copier)
    assert (world.follower.unread, world.follower.findings) == ((), {}), "another replica gets them soon"
    world.source.in_sync[FIRST] = (1,)
    world.follower.look(world.copier)
    [(about, why)] = world.follower.findings.items()
    assert (world.follower.unread, about) == ((FIRST,), "orders-0")
    assert why.startswith(
        "source's log ends at 5, but consumers can read only up to 3; in sync: 1 of replicas 1, 2"
    )
    world.source.above.clear()
    world.source.in_sync.clear()
    world.follower.look(world.copier)
    assert (world.follower.unread, world.follower.findings) == ((), {})


def test_a_group_that_cannot_switch_is_named(world: World) -> None:
    world.groups = (Group("a", "Empty", {}, {}, "a share group"),)
    world.follower.look(world.copier)
    assert world.follower.findings == {"group a": "a share group"}


def test_h5_an_active_group_is_named(world: World) -> None:
    world.groups = (Group("a", "Stable", {FIRST: Commit(2)}, {}),)
    world.run()
    assert world.done == []
    assert world.follower.findings == {
        "group a": "the group is active on target (Stable), so its commits are not copied"
    }


def test_h7_acls_are_added_and_what_source_had_is_deleted(world: World) -> None:
    world.rules["source"] = frozenset({READ})
    world.follower.look(world.copier)
    world.rules = {"source": frozenset(), "target": frozenset({READ})}
    world.follower.look(world.copier)
    assert world.done == [("grant", {READ}), ("revoke", {READ})]
    assert world.say == [Changed(frozenset({READ}), frozenset()), Changed(frozenset(), frozenset({READ}))]


SWITCHED = Lead("target", 7)


def test_after_a_switch_nothing_beside_the_records_is_changed(world: World) -> None:
    """Nor does a group that reads on target count as a finding."""
    world.groups = (Group("a", "Stable", {FIRST: Commit(1)}, {}),)
    world.run()
    assert "group a" in world.follower.findings
    world.done.clear()
    world.say.clear()
    world.rules["source"] = frozenset({READ, READ._replace(resource="GROUP", name="a")})
    world.source.logs[SECOND] = Log()
    world.target.leads.kept["orders"] = SWITCHED
    world.follower.look(world.copier)
    assert (world.done, world.say, SECOND in world.target.logs) == ([], [], False)
    assert world.follower.findings == {}


def test_a_group_gets_no_commits_of_source_that_were_read_before_a_switch(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.run()
    read = world.read

    def late(*words: object) -> groups.Read:
        world.target.leads.kept["orders"] = SWITCHED
        return read(*words)

    world.groups = (Group("a", "Empty", {FIRST: Commit(2)}, {}),)
    monkeypatch.setattr(groups, "read", late)
    world.follower.look(world.copier)
    assert world.done == []


def test_without_an_answer_who_leads_nothing_is_changed(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.run()
    world.rules["source"] = frozenset({READ})
    monkeypatch.setattr(world.target.leads, "told", silent)
    world.follower.look(world.copier)
    assert world.done == []
    assert world.follower.findings == dict.fromkeys(("topics", "replicas", "groups", "ACLs"), "no answer")


def silent(*_: object) -> None:
    raise HostError("no answer")


def test_the_acls_of_a_topic_that_target_leads_stay(world: World) -> None:
    """The topic that is left has ACLs of its own."""
    made = (cast(Any, world.source), cast(Any, world.target))
    world.copier.add([("audit", 0)])
    world.source.logs["audit", 0] = world.target.logs["audit", 0] = Log()
    follower = Follower(*made, ["orders", "audit"], [], world.clears, 0.0, world.say.append)
    other = READ._replace(name="audit")
    world.rules["source"] = frozenset({READ, other})
    follower.look(world.copier)
    world.rules["target"] = frozenset({READ, other})
    world.target.leads.kept["orders"] = SWITCHED
    follower.look(world.copier)
    world.rules["source"] = frozenset()
    follower.look(world.copier)
    assert world.done == [("grant", {READ, other}), ("revoke", {other})]


class Answering:
    """A cluster that answers with one error."""

    what = "source"

    def __init__(self, error: int) -> None:
        self.error = error

    def ask(self, _request: object, _node: int | None) -> Any:
        return SimpleNamespace(error_code=self.error, error_message=None, resources=[])


def test_h7_a_cluster_without_an_authorizer_is_told() -> None:
    assert rights.read(cast(Any, Answering(SecurityDisabledError.errno))) is None
    assert rights.read(cast(Any, Answering(0))) == frozenset()


def test_h7_a_cluster_that_does_not_show_its_acls_has_not_none() -> None:
    with pytest.raises(HostError, match="source does not return its ACLs: CLUSTER_AUTHORIZATION_FAILED"):
        rights.read(cast(Any, Answering(31)))


def test_h7_without_an_authorizer_nothing_is_changed(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rights, "read", lambda cluster: None if cluster.what == "target" else {READ})
    world.run()
    assert world.done == []
    assert world.follower.findings == {"target's ACLs": "no authorizer"}


@pytest.mark.parametrize(
    ("what", "event", "text"),
    [
        (Grow("orders", 5), "PartitionsAdded", "added partitions to topic orders, now: 5"),
        (
            Configure("orders", {"a": "1"}, ("b",)),
            "SettingsChanged",
            "changed settings of topic orders: a=1, b removed",
        ),
        (Committed("app", {FIRST: Commit(3)}), "OffsetsCommitted", "committed for group app: 1 partitions"),
        (
            Changed(frozenset({READ}), frozenset()),
            "AclsChanged",
            "ACLs on target: added ALLOW READ to User:a from * on topic orders",
        ),
        (Finding("groups", "no answer"), "Finding", "groups: no answer"),
    ],
)
def test_each_change_is_told(what: Any, event: str, text: str) -> None:
    assert told(what)[:2] == (event, text)
