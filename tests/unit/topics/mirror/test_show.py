"""What plan and status print of topics, groups and ACLs."""

from __future__ import annotations

import json
from typing import Any, cast

import pytest

from tests.unit.topics.mirror.batches import built
from tests.unit.topics.mirror.model_cluster import Log, ModelCluster
from zkmigrate.errors import HostError
from zkmigrate.kafka.rights import LATER, Acl
from zkmigrate.topics.mirror.clients import groups, rights, survey
from zkmigrate.topics.mirror.clients.partition import Partition
from zkmigrate.topics.mirror.clients.survey import Mirrored, beside, places
from zkmigrate.topics.mirror.rules.commits import Commit, Group
from zkmigrate.topics.mirror.rules.transactions import Writers
from zkmigrate.topics.mirror.verbs import follow
from zkmigrate.topics.mirror.verbs.compare import _compared
from zkmigrate.topics.mirror.verbs.run import Printer
from zkmigrate.topics.mirror.verbs.show import _code, place_lines, plan_lines

P, Q = ("orders", 0), ("orders", 1)
READ = Acl("TOPIC", "orders", "LITERAL", "User:a", "*", "READ", "ALLOW")
WRITE = READ._replace(operation="WRITE")
SOURCE, TARGET = (cast(Any, ModelCluster(what, {})) for what in ("source", "target"))


def topic(found: int, **given: Any) -> Mirrored:
    return Mirrored("orders", 2, found, 1, {"a": "1"}, given.get("left", {}), given.get("differ", {}), "")


def test_plan_tells_what_run_will_change_and_what_it_leaves() -> None:
    one = topic(1, left={"b": "set on target only"}, differ={"a": ("1", "0"), "b": ("0", "2")})
    assert list(plan_lines([one])) == [
        "orders: exists, partitions: 2, replicas: 1",
        "    a=1",
        "    add partitions: 1",
        "    not copied: b: set on target only",
        "    change: a: 0, needed: 1",
        "    differs: b: 2, needed: 0",
    ]
    assert next(plan_lines([topic(0)])) == "orders: make, partitions: 2, replicas: 1"


def test_h4_a_partition_that_target_lacks_is_missing() -> None:
    source, target = ModelCluster("source", {P: Log(), Q: Log()}), ModelCluster("target", {P: Log()})
    for log in source.logs.values():
        log.append(built(3))
    found = places(cast(Any, source), cast(Any, target), [topic(1)])
    assert [(one.part, one.state, one.lag) for one in found] == [(P, "behind", 3), (Q, "missing", 3)]


def test_records_that_nobody_can_read_yet_are_shown_and_not_called_compared() -> None:
    source, target = (ModelCluster(what, {P: Log(), Q: Log()}) for what in ("source", "target"))
    for log in (*source.logs.values(), *target.logs.values()):
        log.append(built(3))
    source.above, source.in_sync[P] = {P: 2, Q: 1}, (1,)
    here, there = cast(Any, source), cast(Any, target)
    found = places(here, there, [topic(2)])
    assert [(one.state, one.lag) for one in found] == [("held", 2), ("behind", 1)]
    held = "source's log ends at 5, but consumers can read only up to 3; in sync: 1 of replicas 1, 2"
    assert next(iter(place_lines(found))).startswith(f"orders-0: held: {held}")
    assert (_code([], found), _code([], found[1:])) == (11, 0)
    told = [_compared(here, there, one) for one in found]
    assert [(one.state, one.records) for one in told] == [("behind", 3), ("behind", 3)]
    seen = "offsets of source's log cannot be read yet, so they were not compared"
    assert told[0].why.startswith(f"2 {seen}; {held}")
    assert told[1].why == f"1 {seen}"
    source.above.clear()
    assert [one.state for one in places(here, there, [topic(2)])] == ["held", "equal"]


def test_h5_h7_groups_and_acls_are_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    known = (
        Group("a", "Empty", {P: Commit(5)}, {P: Commit(5)}),
        Group("b", "Empty", {P: Commit(5)}, {P: Commit(2)}),
        Group("c", "Stable", {P: Commit(5)}, {}),
    )
    monkeypatch.setattr(
        groups, "read", lambda *_: groups.Read(known, {}, {"d": "source does not have this group"})
    )
    acls = {"source": {READ, WRITE}, "target": set[Acl]()}
    monkeypatch.setattr(rights, "read", lambda cluster: acls[cluster.what])
    writers = Writers({"pay": "the producer wrote to orders-0"}, "no answer")
    monkeypatch.setattr(survey, "transactional", lambda *_: writers)
    found = beside(SOURCE, TARGET, ["orders"], [])
    assert list(follow.lines(found)) == [
        "group a: equal",
        "group b: target's commits are behind by 3 offsets",
        "group c: the group is active on target (Stable), so its commits are not copied",
        f"ACL to grant on target: {READ}",
        f"ACL: {WRITE}: granted at the switch",
        "transactional producer pay: the producer wrote to orders-0",
        "transactional producers: no answer",
        "group d: source does not have this group",
    ]
    body = follow.body(found)
    assert [one["state"] for one in body["groups"]] == ["equal", "behind", "active"]
    assert body["acls"] == {"grant": [str(READ)], "not_copied": {str(WRITE): LATER}}
    assert body["transactional"] == {
        "producers": {"pay": "the producer wrote to orders-0"},
        "unknown": "no answer",
    }
    assert body["notes"] == {"group d": "source does not have this group"}


def test_h5_h7_what_cannot_be_looked_at_is_a_note(monkeypatch: pytest.MonkeyPatch) -> None:
    def silent(*_: object) -> None:
        raise HostError("no answer")

    monkeypatch.setattr(groups, "read", silent)
    monkeypatch.setattr(rights, "read", silent)
    monkeypatch.setattr(survey, "transactional", silent)
    assert beside(SOURCE, TARGET, ["orders"], []).writers == Writers({}, "no answer")
    assert beside(SOURCE, TARGET, ["orders"], []).notes == {"groups": "no answer", "ACLs": "no answer"}
    monkeypatch.setattr(rights, "read", lambda cluster: None if cluster.what == "target" else {READ})
    assert beside(SOURCE, TARGET, ["orders"], []).notes["ACLs"] == "no authorizer on target"


def test_a_run_that_ends_names_the_partitions_whose_lag_it_does_not_know() -> None:
    """They count as no lag, so "lag: 0" alone would say that all is there."""
    lines = list[str]()
    done, dark, over = Partition(P, position=5, stable=5), Partition(Q), Partition(("orders", 2), failed="no")
    dark.again("LEADER_NOT_AVAILABLE")
    Printer(lines.append, as_json=False).ended([done, dark, over], [], 130)
    Printer(lines.append, as_json=True).ended([done, dark], [], 130)
    assert lines[0] == (
        "ended, lag: 0 offsets, failed: orders-2, lag not known: orders-1: LEADER_NOT_AVAILABLE"
    )
    assert json.loads(lines[1])["waiting"] == {"orders-1": "LEADER_NOT_AVAILABLE"}
