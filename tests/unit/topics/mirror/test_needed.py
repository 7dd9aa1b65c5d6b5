"""Which rights an account lacks, and the command that adds them."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

import pytest

from tests.unit.topics.mirror.model_cluster import Alone
from zkmigrate.errors import HostError
from zkmigrate.topics.mirror.clients import permitted as client
from zkmigrate.topics.mirror.rules.needed import (
    Lacking,
    Permitted,
    Purpose,
    Side,
    lacking,
    needed,
    not_copied,
    only_warns,
)

TOPICS = ("Read", "Write", "Delete", "Alter", "AlterConfigs", "DescribeConfigs", "Describe")
CLUSTER = ("Describe", "ClusterAction", "Alter", "DescribeConfigs")
OWN, ID = "zkmigrate-mirror", "zkmigrate-mirror-orders-0"
WHOLE = Permitted(
    {"orders": TOPICS, "__consumer_offsets": ("Describe",), "__transaction_state": ("Read",)},
    CLUSTER,
    {"billing": ("Read", "Describe"), OWN: ("Read", "Describe")},
    {ID: ("Write",), "*": ("Describe",)},
)


def missing(side: Side, purpose: Purpose, told: Permitted) -> list[Lacking]:
    ids = {ID: "orders"} if side == "target" else {}
    rights = needed(side, purpose, ["orders"], ["billing"], OWN, ids, told)
    return lacking(side, "User:mirror", "a:1,b:2", rights, told)


@pytest.mark.parametrize("side", ["source", "target"])
@pytest.mark.parametrize("purpose", ["mirror", "switch"])
def test_who_may_do_all_lacks_nothing(side: Side, purpose: Purpose) -> None:
    assert missing(side, purpose, WHOLE) == []


def test_each_right_is_named_with_its_command() -> None:
    told = replace(WHOLE, topics={**WHOLE.topics, "orders": ("Describe", "Read", "DescribeConfigs", "Alter")})
    [one] = missing("target", "mirror", told)
    assert one.words == "User:mirror lacks AlterConfigs and Delete and Write on topic orders at target"
    assert one.command == (
        "kafka-acls.sh --bootstrap-server a:1,b:2 --add --allow-principal User:mirror "
        "--operation AlterConfigs --operation Delete --operation Write --topic orders"
    )
    assert missing("target", "switch", told) == []
    assert list(not_copied([one])) == ["orders"]
    assert not_copied([replace(one, operations=("Delete",))]) == {}


def test_all_transactional_ids_of_the_mirror_are_one_entry() -> None:
    [one] = missing("target", "mirror", replace(WHOLE, ids={}))
    assert one.words.endswith("lacks Write on transactional id zkmigrate-mirror-… at target")
    end = "--operation Write --transactional-id zkmigrate-mirror- --resource-pattern-type prefixed"
    assert one.command.endswith(end)
    assert list(not_copied([one])) == ["orders"]
    [every] = missing("source", "switch", replace(WHOLE, ids={}))
    assert every.command.endswith("--operation Describe --transactional-id '*'")


def test_a_missing_topic_needs_create_on_the_cluster_or_on_itself() -> None:
    told = replace(WHOLE, missing=["orders"])
    assert [one.operations for one in missing("target", "mirror", told)] == [("Create",)]
    assert missing("target", "mirror", replace(told, cluster=(*CLUSTER, "Create"))) == []
    assert (
        missing("target", "mirror", replace(told, topics={**told.topics, "orders": (*TOPICS, "Create")}))
        == []
    )
    assert missing("target", "switch", told) == []


def test_without_describe_on_the_cluster_its_other_rights_are_unknown() -> None:
    [one] = missing("target", "mirror", replace(WHOLE, cluster=()))
    assert (one.operations, one.resource) == (("Describe",), "cluster")
    [one] = missing("source", "switch", replace(WHOLE, cluster=("Describe",)))
    assert one.operations == ("DescribeConfigs",)
    assert only_warns(one)
    assert one.command.endswith("--operation DescribeConfigs --cluster")


def test_an_old_source_needs_the_log_of_its_coordinators() -> None:
    told = replace(WHOLE, ids={}, logged=True, topics={**WHOLE.topics, "__transaction_state": ()})
    assert [one.name for one in missing("source", "switch", told)] == ["__transaction_state"]


class Brokers(Alone):
    """A cluster that answers by the kind of request. denied: names of groups and ids that it refuses."""

    account, at = "User:mirror", "a:1"

    def __init__(self, denied: Collection[str] = (), silent: str = "") -> None:
        self.denied, self.silent = denied, silent
        self.sent: list[str] = []

    def offers(self, _request: Any) -> bool:
        return True

    def begin(self, request: Any, _node: int | None = None) -> Any:
        self.sent.append(type(request).__name__)
        return request

    def end(self, request: Any) -> Any:
        name = type(request).__name__
        if name == self.silent:
            raise HostError("no answer")
        return getattr(self, name)(request)

    def MetadataRequest(self, request: Any) -> Any:
        assert request.allow_auto_topic_creation is False
        topics = [
            SimpleNamespace(name=one.name, error_code=3, authorized_operations={3, 8})
            for one in request.topics
        ]
        return SimpleNamespace(topics=topics, authorized_operations={8, 9})

    def DescribeGroupsRequest(self, request: Any) -> Any:
        code = {True: 30, False: 16}
        return SimpleNamespace(
            groups=[
                SimpleNamespace(group_id=one, error_code=code[one in self.denied]) for one in request.groups
            ]
        )

    def HeartbeatRequest(self, request: Any) -> Any:
        return SimpleNamespace(error_code=30 if request.group_id in self.denied else 25)

    def EndTxnRequest(self, request: Any) -> Any:
        assert request.producer_id == -1
        return SimpleNamespace(error_code=53 if request.transactional_id in self.denied else 16)

    def DescribeTransactionsRequest(self, request: Any) -> Any:
        [name] = request.transactional_ids
        return SimpleNamespace(
            transaction_states=[SimpleNamespace(error_code=53 if name in self.denied else 105)]
        )


def asked(brokers: Brokers) -> Permitted:
    return client.permitted(cast(Any, brokers), ["orders"], ["billing"], [ID])


def test_the_answers_of_brokers_tell_what_an_account_may() -> None:
    told = asked(Brokers())
    assert told.topics["orders"] == {"Read", "Describe"}
    assert told.cluster == {"Describe", "ClusterAction"}
    assert (told.groups, told.ids) == (
        {"billing": ["Describe", "Read"]},
        {ID: ("Write",), "*": ("Describe",)},
    )
    assert "orders" in told.missing
    told = asked(Brokers(("billing", ID)))
    none: tuple[Mapping[str, Any], Mapping[str, Any]] = ({"billing": []}, {ID: (), "*": ("Describe",)})
    assert (told.groups, told.ids) == none


def test_a_broker_that_does_not_answer_is_no_missing_right() -> None:
    with pytest.raises(HostError):
        asked(Brokers(silent="HeartbeatRequest"))


def test_both_sides_are_asked_and_only_target_for_ids_of_the_mirror() -> None:
    here, there = Brokers(("billing",)), Brokers((ID,))
    found = client.missing_rights(cast(Any, here), cast(Any, there), "mirror", {"orders": 1}, ["billing"])
    assert "EndTxnRequest" not in here.sent
    assert ("source", "group", "billing") in [(one.side, one.resource, one.name) for one in found]
    assert ("target", "transactional-id", "zkmigrate-mirror-") in [
        (one.side, one.resource, one.name) for one in found
    ]
