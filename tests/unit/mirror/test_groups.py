"""What brokers answer about groups: errors of one group leave the others alone."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest
from kafka.protocol.admin import DescribeGroupsRequest, ListGroupsRequest
from kafka.protocol.consumer import OffsetCommitRequest, OffsetFetchRequest
from kafka.protocol.metadata import FindCoordinatorRequest

from zkmigrate.errors import HostError
from zkmigrate.mirror.clients import groups
from zkmigrate.mirror.rules.commits import Commit, Group
from zkmigrate.model.look import GroupReads

P, LEFT = ("orders", 0), ("other", 0)


class Answers:
    """A cluster of one broker. states: of its groups. errors: by group, Kafka's code or None for silence.
    described: by group, what a description of it tells."""

    def __init__(
        self, what: str, states: dict[str, str], errors: dict[str, int | None] | None = None, listing: int = 0
    ) -> None:
        self.what, self._states, self._errors, self._listing = what, states, errors or {}, listing
        self.asked: list[Any] = []
        self.described: dict[str, Any] = {}

    def begin(self, request: Any, node: int | None = None) -> Any:
        self.asked.append(request)
        return request

    def end(self, sent: Any) -> Any:
        if isinstance(sent, ListGroupsRequest):
            listed = [SimpleNamespace(group_id=name, group_state=one) for name, one in self._states.items()]
            return SimpleNamespace(error_code=self._listing, groups=listed)
        if isinstance(sent, DescribeGroupsRequest):
            if self._errors.get("") is not None:
                raise HostError("no answer")
            return SimpleNamespace(groups=[self.described[name] for name in sent.groups])
        if not isinstance(sent, OffsetFetchRequest | OffsetCommitRequest | FindCoordinatorRequest):
            return SimpleNamespace(brokers=[SimpleNamespace(node_id=1)])
        error = self._errors.get(sent.key if isinstance(sent, FindCoordinatorRequest) else sent.group_id, 0)
        if error is None:
            raise HostError("no answer")
        if isinstance(sent, FindCoordinatorRequest):
            return SimpleNamespace(error_code=error, node_id=1)
        parts = [
            SimpleNamespace(
                name=topic,
                partitions=[
                    SimpleNamespace(partition_index=n, committed_offset=5, metadata=None, error_code=error)
                ],
            )
            for topic, n in (P, LEFT)
        ]
        return SimpleNamespace(error_code=0, topics=parts)


def cluster(*given: Any) -> Any:
    return cast(Any, Answers(*given))


def test_h5_groups_are_read_from_both_sides_for_the_mirrored_topics_only() -> None:
    here, there = cluster("source", {"a": "", "b": ""}), cluster("target", {"a": "Stable"})
    read = groups.read(here, there, ["orders"], [])
    assert read.groups == (
        Group("a", "Stable", {P: Commit(5)}, {P: Commit(5)}),
        Group("b", "Dead", {P: Commit(5)}, {}),
    )
    assert (read.brokers, read.troubles) == ({"a": 1}, {})
    assert groups.read(here, there, ["another"], []).groups == ()


def test_h5_only_named_groups_are_read_and_a_missing_one_is_told() -> None:
    read = groups.read(cluster("source", {"a": "", "b": ""}), cluster("target", {}), ["orders"], ["b", "c"])
    assert [one.name for one in read.groups] == ["b"]
    assert read.troubles == {"c": "source has no such group"}


def test_h5_a_group_that_cannot_be_read_is_told_and_the_others_are_read() -> None:
    here = cluster("source", {"a": "", "b": "", "c": ""}, {"a": 30, "b": None})
    read = groups.read(here, cluster("target", {}), ["orders"], [])
    assert [one.name for one in read.groups] == ["c"]
    assert read.troubles["a"] == "source does not show its offsets: GroupAuthorizationFailedError"
    assert read.troubles["b"] == "no answer"


def test_h5_a_broker_that_cannot_list_its_groups_ends_the_look() -> None:
    """An active group may be among them."""
    loading = cluster("target", {}, {}, 14)
    with pytest.raises(HostError, match="target: groups of broker 1: CoordinatorLoadInProgress"):
        groups.read(cluster("source", {"a": ""}), loading, ["orders"], [])


@pytest.mark.parametrize("error", [15, None])
def test_h5_a_coordinator_that_is_not_told_is_asked_for_again(error: int | None) -> None:
    """The first question on a fresh cluster fails."""
    read = groups.read(cluster("source", {"a": ""}), cluster("target", {}), ["orders"], [])
    refused = groups.touch(cluster("target", {}, {"a": error}), read)
    assert (refused.brokers, list(refused.troubles)) == ({}, ["a"])
    assert groups.touch(cluster("target", {}), read).brokers == {"a": 1}


def test_h5_a_commit_is_of_no_member_and_no_epoch() -> None:
    there = cluster("target", {})
    assert groups.commit(there, {"a": (1, {P: Commit(5, "mine")})}) == {}
    [sent] = there.asked
    assert (sent.generation_id_or_member_epoch, sent.member_id) == (-1, "")
    [[part]] = [topic.partitions for topic in sent.topics]
    assert (part.committed_offset, part.committed_leader_epoch, part.committed_metadata) == (5, -1, "mine")


@pytest.mark.parametrize(
    ("error", "why"),
    [
        (25, "active on target, left alone"),
        (12, "target did not take its offsets: OffsetMetadataTooLargeError"),
        (None, "no answer"),
    ],
)
def test_h5_what_target_does_not_take_is_told_by_group(error: int | None, why: str) -> None:
    wanted = {name: (1, {P: Commit(5)}) for name in ("a", "b")}
    told = groups.commit(cluster("target", {}, {"a": error}), wanted)
    assert {name: str(one) for name, one in told.items()} == {"a": why}
    assert isinstance(told["a"], HostError) == (error is None), "only then it is unknown what target did"


ASSIGNED = "00000000000100066f72646572730000000200000000000000010000000000"
"""Partitions 0 and 1 of orders, as a consumer's assignment."""


def described(name: str, *members: str, **told: Any) -> Any:
    """A group with members that have these assignments, in hex."""
    body = {"group_state": "Stable", "protocol_type": "consumer", "error_code": 0, **told}
    each = [SimpleNamespace(member_assignment=bytes.fromhex(one)) for one in members]
    return SimpleNamespace(group_id=name, members=each, **body)


def reading(*groups_there: Any, errors: dict[str, int | None] | None = None) -> Any:
    one = cluster("source", {group.group_id: "" for group in groups_there}, errors)
    one.described = {group.group_id: group for group in groups_there}
    return one


def test_h12_what_members_are_assigned_stands_with_its_commits() -> None:
    source = reading(described("a", ASSIGNED, ""), described("b", ASSIGNED))
    both = GroupReads({P: 5, ("orders", 1): None})
    assert groups.reads(source, ["orders"], []) == {"a": both, "b": both}
    assert groups.reads(source, ["orders"], ["b", "gone"]) == {"b": both}
    assert groups.reads(source, ["other"], []) == {}


@pytest.mark.parametrize(
    ("told", "why"),
    [
        ({"group_state": "Empty"}, None),
        ({"group_state": "Dead"}, None),
        ({"protocol_type": "connect"}, None),
        ({"group_state": "PreparingRebalance"}, "its members are joining (PreparingRebalance)"),
        ({"error_code": 30}, "source does not describe it: GroupAuthorizationFailedError"),
    ],
)
def test_h12_a_group_without_members_reads_nothing_and_others_are_told(
    told: dict[str, Any], why: str | None
) -> None:
    found = groups.reads(reading(described("a", ASSIGNED, **told)), ["orders"], [])
    assert found == ({} if why is None else {"a": GroupReads({}, why)})


@pytest.mark.parametrize("garbled", ["00", "0000", "00000000000100066f7264", "0000ffffffffffffffff"])
def test_h12_an_assignment_that_is_not_understood_is_told(garbled: str) -> None:
    found = groups.reads(reading(described("a", garbled)), ["orders"], [])
    assert found["a"].parts == {}
    assert found["a"].why.startswith("its assignment is not understood")


def test_h12_a_coordinator_that_is_silent_leaves_its_groups_unknown() -> None:
    found = groups.reads(reading(described("a", ASSIGNED), errors={"": 1}), ["orders"], [])
    assert found == {"a": GroupReads({}, "no answer")}
    found = groups.reads(reading(described("a", ASSIGNED), errors={"a": None}), ["orders"], [])
    assert found == {"a": GroupReads({}, "no answer")}


def test_h12_other_groups_are_those_with_commits_or_members_on_the_topics() -> None:
    names = ["a", "b", "idle", "dark", "joins"]
    source = reading(*(described(name, ASSIGNED) for name in names), errors={"dark": None})
    source.described["idle"].group_state = "Empty"
    source.described["joins"].group_state = "PreparingRebalance"
    joins = {"joins": "its members are joining (PreparingRebalance)"}
    assert groups.others(source, ["orders"], ["a", "gone"]) == groups.Others(
        {"b": {P: 5}, "idle": {P: 5}, "joins": {P: 5}}, frozenset({"b"}), {"dark": "no answer"} | joins
    )
    assert groups.others(source, ["bills"], ["a", "dark"]) == groups.Others({}, frozenset(), joins)
    assert groups.others(source, ["orders"], names) == groups.Others({}, frozenset(), {})
