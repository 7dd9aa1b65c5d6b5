"""What brokers answer about groups: errors of one group leave the others alone."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest
from kafka.protocol.admin import DescribeGroupsRequest, ListGroupsRequest
from kafka.protocol.consumer import OffsetCommitRequest, OffsetFetchRequest
from kafka.protocol.metadata import FindCoordinatorRequest

from tests.unit.topics.mirror.model_cluster import Alone
from zkmigrate.errors import HostError
from zkmigrate.topics.mirror.clients import groups, listing
from zkmigrate.topics.mirror.clients.cluster import Latest, Part
from zkmigrate.topics.mirror.questions import GroupReads
from zkmigrate.topics.mirror.rules.commits import Commit, Group, standing, to_commit
from zkmigrate.topics.mirror.rules.position import Ends

P, LEFT = ("orders", 0), ("other", 0)


class Answers(Alone):
    """A cluster of one broker. states: of its groups. errors: by group, Kafka's code or None for silence.
    described: by group, what a description of it tells. types: of groups that are not classic. told: where
    its logs end. starts: where they begin. led: the leaders of Kafka's topic of commits."""

    def __init__(
        self, what: str, states: dict[str, str], errors: dict[str, int | None] | None = None, listing: int = 0
    ) -> None:
        self.what, self._states, self._errors, self._listing = what, states, errors or {}, listing
        self.asked: list[Any] = []
        self.described: dict[str, Any] = {}
        self.types: dict[str, str] = {}
        self.committed = 5
        self.led = [1, 1]
        self.told: dict[tuple[str, int], int | None] = {P: 9, LEFT: 9}
        self.starts = dict.fromkeys((P, LEFT), 0)

    def latest(self, topics: Any) -> dict[Part, Latest]:
        """The last record is not on enough replicas yet."""
        return {
            part: Latest(None, None) if end is None else Latest(end - 1, end - 1, end)
            for part, end in self.told.items()
            if part[0] in topics
        }

    def ends(self, parts: Any) -> dict[Part, Ends | int]:
        return {part: Ends(self.starts[part], 9) if part in self.starts else 6 for part in parts}

    def begin(self, request: Any, node: int | None = None) -> Any:
        self.asked.append(request)
        return request

    def _describe(self, sent: Any) -> Any:
        """As Kafka does: a group of another type than the one asked for is Dead, or not found."""
        if self._errors.get("") is not None:
            raise HostError("no answer")
        kind = type(sent).__name__
        if isinstance(sent, DescribeGroupsRequest):
            dead = [described(name, group_state="Dead") for name in sent.groups if name in self.types]
            rest = [name for name in sent.groups if name not in self.types]
            known = [self.described.get(name) or described(name, group_state="Empty") for name in rest]
            return SimpleNamespace(groups=dead + known)
        if kind == "DescribeShareGroupOffsetsRequest":
            return SimpleNamespace(groups=[self.described[f"{one.group_id} at"] for one in sent.groups])
        wanted = {"ConsumerG": "consumer", "ShareGrou": "share", "StreamsGr": "streams"}[kind[:9]]
        assert {self.types[name] for name in sent.group_ids} == {wanted}
        return SimpleNamespace(groups=[self.described[name] for name in sent.group_ids])

    def end(self, sent: Any) -> Any:
        if isinstance(sent, ListGroupsRequest):
            listed = [
                SimpleNamespace(group_id=name, group_state=one, group_type=self.types.get(name, "classic"))
                for name, one in self._states.items()
            ]
            return SimpleNamespace(error_code=self._listing, groups=listed)
        if "Describe" in type(sent).__name__:
            return self._describe(sent)
        if not isinstance(sent, OffsetFetchRequest | OffsetCommitRequest | FindCoordinatorRequest):
            commits = [
                SimpleNamespace(partition_index=n, leader_id=leader) for n, leader in enumerate(self.led)
            ]
            return SimpleNamespace(
                brokers=[SimpleNamespace(node_id=1)], topics=[SimpleNamespace(partitions=commits)]
            )
        error = self._errors.get(sent.key if isinstance(sent, FindCoordinatorRequest) else sent.group_id, 0)
        if error is None:
            raise HostError("no answer")
        if isinstance(sent, FindCoordinatorRequest):
            return SimpleNamespace(error_code=error, node_id=1)
        if self.types.get(sent.group_id) == "share":
            return SimpleNamespace(error_code=69, topics=[])
        parts = [
            SimpleNamespace(
                name=topic,
                partitions=[
                    SimpleNamespace(
                        partition_index=n, committed_offset=self.committed, metadata=None, error_code=error
                    )
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


def test_a_commit_that_a_copier_made_between_both_reads_is_not_ahead() -> None:
    here, there = cluster("source", {"a": "Stable"}), cluster("target", {"a": "Empty"})
    begin = there.begin

    def later(request: Any, node: int | None = None) -> Any:
        here.committed = there.committed = 7
        return begin(request, node)

    there.begin = later
    for first in (5, -1):  # Kafka's offset of no commit
        here.committed, there.committed = first, 5
        [read] = groups.read(here, there, ["orders"], ["a"]).groups
        assert read == Group("a", "Empty", {P: Commit(7)}, {P: Commit(7)})
    there.committed, there.begin = 8, begin
    [read] = groups.read(here, there, ["orders"], []).groups
    assert standing(read).state == "ahead"


def test_h5_only_named_groups_are_read_and_a_missing_one_is_told() -> None:
    read = groups.read(cluster("source", {"a": "", "b": ""}), cluster("target", {}), ["orders"], ["b", "c"])
    assert [one.name for one in read.groups] == ["b"]
    assert read.troubles == {"c": "source does not have this group"}


def test_h5_a_group_that_cannot_be_read_is_told_and_the_others_are_read() -> None:
    here = cluster("source", {"a": "", "b": "", "c": ""}, {"a": 30, "b": None})
    read = groups.read(here, cluster("target", {}), ["orders"], [])
    assert [one.name for one in read.groups] == ["c"]
    assert read.troubles["a"] == "source does not return the group's offsets: GROUP_AUTHORIZATION_FAILED"
    assert read.troubles["b"] == "no answer"


def test_h5_a_broker_that_cannot_list_its_groups_ends_the_look() -> None:
    """An active group may be among them."""
    loading = cluster("target", {}, {}, 14)
    with pytest.raises(HostError, match="target: groups of broker 1: COORDINATOR_LOAD_IN_PROGRESS"):
        groups.read(cluster("source", {"a": ""}), loading, ["orders"], [])


def test_groups_that_no_broker_lists_end_the_look() -> None:
    """A group of that partition would be left behind without a word."""
    for side in (0, 1):
        both = cluster("source", {"a": ""}), cluster("target", {})
        both[side].led = [1, -1]
        with pytest.raises(HostError, match=r"no broker lists the groups of __consumer_offsets-1, which has"):
            groups.read(*both, ["orders"], [])
        with pytest.raises(HostError, match="has no leader"):
            listing.leads(both[side], ["orders"])


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
        (25, "the group is active on target, so its commits are not copied"),
        (12, "target refused the group's offsets: OFFSET_METADATA_TOO_LARGE"),
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
        ({"group_state": "PreparingRebalance"}, "the group's members are still joining (PreparingRebalance)"),
        ({"error_code": 30}, "source does not describe the group: GROUP_AUTHORIZATION_FAILED"),
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
    assert found["a"].why.startswith("the assignment of a member cannot be read")


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
    joins = {"joins": "the group's members are still joining (PreparingRebalance)"}
    assert groups.others(source, ["orders"], ["a", "gone"]) == groups.Others(
        {"b": {P: 5}, "idle": {P: 5}, "joins": {P: 5}},
        {"b": "the group has members"},
        {"dark": "no answer"} | joins,
    )
    assert groups.others(source, ["bills"], ["a", "dark"]) == groups.Others({}, {}, joins)
    assert groups.others(source, ["orders"], names) == groups.Others({}, {}, {})


# -- groups of newer types


def member(*topics: str, assigned: str = "", pattern: str | None = None) -> Any:
    """A member that subscribes to topics, or by a pattern, and has partitions of one."""
    parts = [SimpleNamespace(topic_name=assigned)] if assigned else []
    assignment = SimpleNamespace(topic_partitions=parts)
    told = {"subscribed_topic_names": list(topics), "subscribed_topic_regex": pattern}
    return SimpleNamespace(assignment=assignment, target_assignment=assignment, **told)


def newer(name: str, *members: Any, error: int = 0, **told: Any) -> Any:
    seen = {"error_code": error, "error_message": None, **told}
    return SimpleNamespace(group_id=name, members=list(members), **seen)


def topology(*sources: str) -> Any:
    part = SimpleNamespace(source_topics=list(sources), repartition_sink_topics=[])
    return SimpleNamespace(subtopologies=[part])


def stands(name: str, *topics: str, error: int = 0) -> Any:
    """Where a share group stands; it has not begun to read the topic "new"."""
    told = [
        SimpleNamespace(topic_name=one, partitions=[SimpleNamespace(start_offset=-1 if one == "new" else 3)])
        for one in topics
    ]
    return SimpleNamespace(group_id=name, error_code=error, error_message=None, topics=told)


def newer_types(state: str, **groups_there: tuple[str, Any]) -> Any:
    """A source with these groups, each with its type. They have committed something only if they rest."""
    one = cluster("source", dict.fromkeys(groups_there, state))
    one.committed = 5 if state == "Empty" else -1
    one.types = {name: type for name, (type, _) in groups_there.items()}
    one.described = {name: group for name, (_, group) in groups_there.items()}
    one.described |= {f"{name} at": stands(name) for name in groups_there}
    return one


LIVE = {
    "names": ("consumer", newer("names", member("orders"))),
    "parts": ("consumer", newer("parts", member(assigned="orders", pattern="o.*"))),
    "shares": ("share", newer("shares", member("orders", "bills"))),
    "flows": ("streams", newer("flows", topology=topology("bills", "orders"))),
}
AWAY = {
    "names": ("consumer", newer("names", member("bills"))),
    "parts": ("consumer", newer("parts", member(assigned="bills", pattern="b.*"))),
    "shares": ("share", newer("shares", member("bills"))),
    "flows": ("streams", newer("flows", topology=topology("bills"))),
}


def test_live_groups_of_newer_types_without_commits_are_refused_by_name() -> None:
    """DescribeGroups calls them Dead."""
    source = newer_types("Stable", **LIVE)
    source.told = {}
    read = groups.read(source, cluster("target", {}), ["orders"], [])
    why = {one.name: one.refused for one in read.groups}
    assert list(why) == sorted(LIVE)
    assert why["names"].startswith(
        "a group of KIP-848 (group.protocol=consumer), Stable: the group reads orders."
    )
    assert why["parts"].startswith(
        "a group of KIP-848 (group.protocol=consumer), Stable: the group reads orders."
    )
    assert why["shares"].startswith("a share group (KIP-932), Stable: the group reads orders.")
    assert why["flows"].startswith("a streams group (KIP-1071), Stable: the group reads orders.")
    assert {standing(one).state for one in read.groups} == {"refused"}
    assert read.troubles == {}
    beside = groups.others(newer_types("Stable", **LIVE), ["orders"], ["names"])
    assert beside.members["shares"] == "the group is a share group (KIP-932), Stable: the group reads orders"
    assert sorted(beside.members) == ["flows", "parts", "shares"]


def test_groups_of_newer_types_that_use_other_topics_are_in_nobodys_way() -> None:
    source = newer_types("Stable", **AWAY)
    assert groups.read(source, cluster("target", {}), ["orders"], []).groups == ()
    assert groups.others(source, ["orders"], ["mail"]).members == {}
    named = groups.read(source, cluster("target", {}), ["orders"], ["shares"]).groups
    assert [(one.name, standing(one).state) for one in named] == [("shares", "refused")], "it was named"


def test_a_classic_group_with_members_and_no_commit_is_named() -> None:
    source = reading(described("a", ASSIGNED), described("b", ASSIGNED, group_state="PreparingRebalance"))
    source.committed = -1
    read = groups.read(source, cluster("target", {}), ["orders"], [])
    [one] = read.groups
    assert (one.name, read.troubles) == ("a", {})
    assert standing(one).why.startswith("the group has no commit: after a switch its consumers begin at")


def test_a_group_of_kip_848_without_members_is_kept_by_its_commits() -> None:
    source = newer_types("Empty", names=("consumer", newer("names")))
    [one] = groups.read(source, cluster("target", {}), ["orders"], []).groups
    assert (one.refused, one.source) == ("", {P: Commit(5)})


@pytest.mark.parametrize("topic", ["orders", "new"])
def test_a_share_group_at_rest_counts_where_it_keeps_a_position(topic: str) -> None:
    source = newer_types("Empty", shares=("share", newer("shares")))
    source.described["shares at"] = stands("shares", topic)
    read = groups.read(source, cluster("target", {}), [topic], [])
    told = [one.refused.split(". ")[0] for one in read.groups]
    begun = "a share group (KIP-932), Empty: the group has a position in orders"
    assert told == ([begun] if topic == "orders" else [])


@pytest.mark.parametrize(
    ("kind", "told", "why"),
    [
        (
            "consumer",
            newer("a", error=30),
            "the topics that the group reads are not known: GROUP_AUTHORIZATION_FAILED",
        ),
        (
            "streams",
            newer("a", topology=None),
            "the topics that the group reads are not known: it has reported no topology yet",
        ),
        (
            "consumer",
            newer("a", member(pattern="o.*")),
            "the group's members subscribe by a pattern, and are",
        ),
    ],
)
def test_what_a_group_of_a_newer_type_reads_may_be_unknown(kind: str, told: Any, why: str) -> None:
    source = newer_types("Reconciling", a=(kind, told))
    beside = groups.others(source, ["orders"], [])
    assert why in beside.members["a"]


def test_a_share_group_whose_position_is_not_told_is_unknown() -> None:
    source = newer_types("Empty", shares=("share", newer("shares")))
    source.described["shares at"] = stands("shares", error=30)
    assert "not known: GROUP_AUTHORIZATION_FAILED" in groups.others(source, ["orders"], []).members["shares"]


def test_a_group_of_a_newer_type_on_target_gets_no_commits() -> None:
    for type, state in (("share", "Empty"), ("streams", "Empty"), ("consumer", "Stable")):
        there = cluster("target", {"a": state})
        there.types = {"a": type}
        [one] = groups.read(cluster("source", {"a": "Empty"}), there, ["orders"], []).groups
        assert standing(one).state == "active", type
        assert to_commit(one, {P: 9}) == {}
    there.types, there = {"a": "consumer"}, cluster("target", {"a": "Empty"})
    [one] = groups.read(cluster("source", {"a": "Empty"}), there, ["orders"], []).groups
    assert standing(one).state == "equal"


def test_a_state_that_listing_does_not_tell_is_asked_for() -> None:
    """ListGroups tells none before Kafka 2.6; such a target took no commit after the first one."""
    for state, stands_so in (("Empty", "equal"), ("Stable", "active"), ("", "active")):
        there = cluster("target", {"a": ""})
        there.described = {"a": described("a", group_state=state)}
        [one] = groups.read(cluster("source", {"a": ""}), there, ["orders"], []).groups
        assert standing(one).state == stands_so


# -- commits behind the log's end


@pytest.mark.parametrize(
    ("ends", "why"),
    [
        (
            {P: 4},
            "the group committed on orders-0 at 5, where source's log ends at 4: a consumer that starts",
        ),
        ({}, "the group committed on orders-0, which source does not have: "),
        ({P: 5}, ""),
        ({P: None}, ""),
    ],
)
def test_a_commit_behind_the_end_of_sources_own_log_is_refused_by_name(
    ends: dict[tuple[str, int], int | None], why: str
) -> None:
    """The mirror can never commit it, so a switch would wait for it for ever."""
    source = cluster("source", {"a": "Empty"})
    source.told = ends
    [one] = groups.read(source, cluster("target", {}), ["orders"], []).groups
    assert one.refused.startswith(why)
    assert standing(one).state == ("refused" if why else "behind")


@pytest.mark.parametrize(
    ("starts", "why"),
    [
        ((0, 7), "the group committed on orders-0 at 5, where source's log begins at 0 and target's at 7: "),
        ((5, 6), "the group committed on orders-0 at 5, where source's log begins at 5 and target's at 6: "),
        ((6, 7), ""),
        ((0, 5), ""),
        ((0, None), ""),
        ((None, 7), ""),
    ],
)
def test_a_commit_on_records_that_target_has_deleted_and_source_has_not_is_refused_by_name(
    starts: tuple[int | None, int | None], why: str
) -> None:
    """Both have the same commit; its consumers would be reset on target alone."""
    both = cluster("source", {"a": "Empty"}), cluster("target", {"a": "Empty"})
    for side, start in zip(both, starts, strict=True):
        side.starts = {} if start is None else {P: start}
    [one] = groups.read(*both, ["orders"], []).groups
    assert one.source == one.target
    assert one.refused.startswith(why)
    assert standing(one).state == ("refused" if why else "equal")
