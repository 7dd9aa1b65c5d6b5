"""A broker's id and cluster against its log directories, before it starts."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from zkmigrate.kafka.facts.broker import LogDirectory
from zkmigrate.kafka.rules.identity import Identity, identity
from zkmigrate.runbook.model.fact import Absent, Reading, Seen, Unknown

PATH, CLUSTER = "/etc/kafka/server.properties", "A" * 22


def judged(given: Mapping[str, str], *held: tuple[str, str | None], id: int = 1) -> Identity:
    dirs: dict[str, Reading[LogDirectory]] = {
        f"/d{n}": Seen(LogDirectory(cluster_id, broker_id)) for n, (broker_id, cluster_id) in enumerate(held)
    }
    return identity(PATH, given, dirs, id, CLUSTER)


@pytest.mark.parametrize("key", ["broker.id", "node.id"])
def test_p12_a_changed_id_is_found_before_a_start_with_two_ways_out(key: str) -> None:
    found = judged({key: "5"}, ("1", CLUSTER))
    assert found.wrong == (f"/d0/meta.properties: broker.id=1, {PATH}: 5",)
    back, new = found.moves
    assert back == f"set the id in {PATH} back to 1, so that the broker starts with its existing replicas"
    assert new.startswith("start it as broker 5 with new, empty log directories")
    assert not any("delete" in move for move in found.moves)


def test_p12_a_directory_of_another_broker_is_found_in_every_directory() -> None:
    found = judged({"broker.id": "1"}, ("1", CLUSTER), ("2", CLUSTER))
    assert found.wrong == (f"/d1/meta.properties: broker.id=2, {PATH}: 1",)


def test_p12_both_changed_and_the_cluster_knows_another() -> None:
    assert judged({"broker.id": "5"}, ("5", CLUSTER)).wrong == (
        f"/d0/meta.properties: broker.id=5, {PATH}: 5",
    )


def test_p12_the_cluster_counts_where_it_is_told() -> None:
    assert judged({"broker.id": "1"}, ("1", "B" * 22)).wrong == (
        f"/d0/meta.properties: cluster.id={'B' * 22}",
    )
    assert judged({"broker.id": "1"}, ("1", None)) == Identity((), None, ("/d0",), ())


@pytest.mark.parametrize("given", [{}, {"broker.id": "-1"}, {"broker.id": " 1 "}])
def test_p12_an_id_that_kafka_generates_is_that_of_the_directory(given: Mapping[str, str]) -> None:
    assert judged(given, ("1", CLUSTER)) == Identity((), None, (), ())


def test_p12_a_directory_that_is_missing_or_cannot_be_read_is_told() -> None:
    dark = Unknown("denied", "no")
    found = identity(PATH, {"broker.id": "1"}, {"/a": Absent(), "/b": dark}, 1, CLUSTER)
    assert (found.wrong, found.unread) == (("no /a/meta.properties",), dark)
