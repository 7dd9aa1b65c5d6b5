"""What plan and status print of topics, groups and ACLs."""

from __future__ import annotations

from typing import Any, cast

import pytest

from tests.unit.mirror.batches import built
from tests.unit.mirror.model_cluster import Log, ModelCluster
from zkmigrate.errors import HostError
from zkmigrate.mirror.clients import groups, rights
from zkmigrate.mirror.clients.survey import Mirrored, beside, places
from zkmigrate.mirror.rules.commits import Commit, Group
from zkmigrate.mirror.rules.rights import LATER, Acl
from zkmigrate.mirror.verbs import follow
from zkmigrate.mirror.verbs.show import plan_lines

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


def test_h5_h7_groups_and_acls_are_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    known = (
        Group("a", "Empty", {P: Commit(5)}, {P: Commit(5)}),
        Group("b", "Empty", {P: Commit(5)}, {P: Commit(2)}),
        Group("c", "Stable", {P: Commit(5)}, {}),
    )
    monkeypatch.setattr(groups, "read", lambda *_: groups.Read(known, {}, {"d": "source has no such group"}))
    acls = {"source": {READ, WRITE}, "target": set[Acl]()}
    monkeypatch.setattr(rights, "read", lambda cluster: acls[cluster.what])
    found = beside(SOURCE, TARGET, ["orders"], [])
    assert list(follow.lines(found)) == [
        "group a: equal",
        "group b: behind by 3",
        "group c: active on target (Stable), left alone",
        f"ACL to grant on target: {READ}",
        f"ACL: {WRITE}: granted at the switch",
        "group d: source has no such group",
    ]
    body = follow.body(found)
    assert [one["state"] for one in body["groups"]] == ["equal", "behind", "active"]
    assert body["acls"] == {"grant": [str(READ)], "not_copied": {str(WRITE): LATER}}
    assert body["notes"] == {"group d": "source has no such group"}


def test_h5_h7_what_cannot_be_looked_at_is_a_note(monkeypatch: pytest.MonkeyPatch) -> None:
    def silent(*_: object) -> None:
        raise HostError("no answer")

    monkeypatch.setattr(groups, "read", silent)
    monkeypatch.setattr(rights, "read", silent)
    assert beside(SOURCE, TARGET, ["orders"], []).notes == {"groups": "no answer", "ACLs": "no answer"}
    monkeypatch.setattr(rights, "read", lambda cluster: None if cluster.what == "target" else {READ})
    assert beside(SOURCE, TARGET, ["orders"], []).notes["ACLs"] == "no authorizer on target"
