"""The verb ``placement check``: what it finds in what brokers tell, and its exit codes."""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from tests.answers import Answering
from zkmigrate.cli.main import cli
from zkmigrate.cluster.placed import LEAVING_S
from zkmigrate.cluster.placing.text import SHOWN
from zkmigrate.inventory.inventory import Inventory
from zkmigrate.kafka.questions import InFlight, KafkaView, PartitionState
from zkmigrate.runbook.model.fact import Absent, Reading, Seen, Unknown

ID = "abcdefghijklmnopqrstuv"
INVENTORY = f"""
version: 1
name: live
kafka:
  cluster_id: {ID}
  brokers:
    - {{name: b1, address: 10.0.0.1, id: 1}}
    - {{name: b2, address: 10.0.0.2, id: 2}}
    - {{name: b3, address: 10.0.0.3, id: 3}}
"""
BROKERS = {id_: (f"10.0.0.{id_}", 9092, rack) for id_, rack in ((1, "a"), (2, "b"), (3, "b"))}
WELL = KafkaView(
    ID,
    1,
    BROKERS,
    (
        PartitionState("t", 0, 1, (1, 2), (1, 2)),
        PartitionState("t", 1, 3, (3, 1), (3, 1)),
        PartitionState("u", 0, 1, (1, 3), (1, 3)),
    ),
    {"t": 2, "u": 1},
    releases={f"10.0.0.{id_}:9092": "3.9" for id_ in BROKERS},
)


@dataclass
class Site(Answering):
    """A site whose brokers tell this."""

    view: Reading[KafkaView] = field(default_factory=lambda: Seen(WELL))
    moves: Reading[Mapping[tuple[str, int], InFlight]] = field(default_factory=lambda: Seen({}))
    opened: int = 0
    failing: int = 0
    """How many of the first questions fail, for each of the two."""
    failed: Counter[str] = field(default_factory=Counter)

    def __call__(self, inventory: Inventory, run: str) -> Site:
        assert (inventory.name, run) == ("live", "placement")
        self.opened += 1
        return self

    @property
    def look(self) -> Site:
        return self

    def kafka(self, witnesses: int | None = None) -> Reading[KafkaView]:
        assert witnesses is not None, "all brokers of a large cluster would send gigabytes"
        return self._gone("view") or self.view

    def reassignments(self, _cluster: str) -> Reading[Mapping[tuple[str, int], InFlight]]:
        return self._gone("moves") or self.moves

    def _gone(self, question: str) -> Unknown | None:
        """What the brokers say while they name one that has died."""
        if self.failed[question] >= self.failing:
            return None
        self.failed[question] += 1
        return Unknown("failed", "KafkaConnectionError: 111 ECONNREFUSED")

    def close(self) -> None:
        self.opened -= 1


def call(folder: Path, site: Site, *words: str, inventory: str = INVENTORY) -> Result:
    file = folder / "live.yml"
    file.write_text(inventory)
    done = CliRunner().invoke(cli, ["placement", "check", "-i", str(file), *words], obj=site)
    assert site.opened == 0
    return done


def checked(folder: Path, site: Site) -> tuple[int, dict[str, Any]]:
    done = call(folder, site, "--json")
    body: dict[str, Any] = json.loads(done.stdout)
    assert body["code"] == done.exit_code
    assert (body["schema"], bool(body["time"])) == (1, True)
    return done.exit_code, body


KINDS = ("down", "silent", "offline", "below_min_isr", "under_replicated", "few_racks", "moving")


def found(body: Mapping[str, Any]) -> set[str]:
    return {kind for kind in KINDS if body[kind]}


def of(*partitions: PartitionState, **fields: Any) -> Seen[KafkaView]:
    return Seen(replace(WELL, partitions=(*WELL.partitions, *partitions), **fields))


def test_a_cluster_with_nothing_wrong_tells_its_leaders(tmp_path: Path) -> None:
    code, body = checked(tmp_path, Site())
    assert (code, found(body), body["unknown"]) == (0, set(), "")
    assert [
        (b["broker"], b["rack"], b["leaders"], b["preferred"], b["replicas"]) for b in body["brokers"]
    ] == [
        (1, "a", 2, 2, 3),
        (2, "b", 0, 0, 1),
        (3, "b", 1, 1, 2),
    ]
    assert body["topics"] == [
        {"topic": "t", "leaders": {"1": 1, "2": 0, "3": 1}},
        {"topic": "u", "leaders": {"1": 1, "2": 0, "3": 0}},
    ]
    assert "Nothing is wrong." in call(tmp_path, Site()).stdout


def test_a_registered_broker_that_does_not_answer_is_silent(tmp_path: Path) -> None:
    """Between its death and its leaving a broker's replicas count as in sync."""
    site = Site(Seen(replace(WELL, releases={"10.0.0.1:9092": "3.9", "10.0.0.2:9092": "3.9"})))
    code, body = checked(tmp_path, site)
    assert (code, found(body), body["silent"]) == (10, {"silent"}, [3])
    assert "silent: 1 broker registered, but without a response: 3" in call(tmp_path, site).stdout


def test_a_broker_that_died_is_waited_for_until_the_others_no_longer_name_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pauses: list[float] = []
    monkeypatch.setattr(time, "sleep", pauses.append)
    two = {id_: at for id_, at in BROKERS.items() if id_ != 3}
    site = Site(Seen(replace(WELL, brokers=two)), failing=3)
    done = call(tmp_path, site)
    assert (done.exit_code, pauses) == (10, [1.0] * 6)
    assert "trying again for at most 20 s, because a query failed: KafkaConnectionError" in done.stderr

    pauses.clear()
    done = call(tmp_path, Site(failing=10**6))
    assert (done.exit_code, pauses) == (8, [1.0] * LEAVING_S)
    assert "KafkaConnectionError: 111 ECONNREFUSED. Next: make the brokers" in done.stderr

    pauses.clear()
    for cause in ("denied", "timeout", "garbled"):
        assert call(tmp_path, Site(Unknown(cause, "no"))).exit_code == 8
    assert pauses == [], "no later answer differs"


WRONG = {
    "offline": (PartitionState("v", 0, -1, (1, 2), (1, 2)), {}, "v-0 [1,2]: no broker leads it"),
    "below_min_isr": (
        PartitionState("v", 0, 1, (1, 2), (1, 2)),
        {"v": 3},
        "v-0 [1,2]: 2 in sync, min.insync.replicas is 3",
    ),
    "under_replicated": (PartitionState("v", 0, 1, (1, 2), (1,)), {"v": 1}, "v-0 [1,2]: not in sync: 2"),
    "few_racks": (PartitionState("v", 0, 2, (2, 3), (2, 3)), {}, "v-0 [2,3]: in 1 of 2 possible racks"),
}


@pytest.mark.parametrize("kind", WRONG)
def test_each_kind_of_trouble_is_found_alone_and_ends_with_10(tmp_path: Path, kind: str) -> None:
    partition, least, told = WRONG[kind]
    site = Site(of(partition, min_isr={**WELL.min_isr, **least}))
    code, body = checked(tmp_path, site)
    assert (code, found(body)) == (10, {kind})
    [one] = body[kind]
    assert (one["topic"], one["partition"], one["replicas"]) == ("v", 0, list(partition.replicas))
    done = call(tmp_path, site)
    assert done.exit_code == 10
    assert told in done.stdout


def test_a_broker_of_the_inventory_that_is_not_registered_is_down(tmp_path: Path) -> None:
    """Also one that holds nothing; and its place in a set counts as a rack of its own."""
    two = {id_: at for id_, at in BROKERS.items() if id_ != 3}
    kept = (PartitionState("t", 0, 1, (1, 2), (1, 2)),)
    code, body = checked(tmp_path, Site(Seen(replace(WELL, brokers=two, partitions=kept))))
    assert (code, found(body), body["down"]) == (10, {"down"}, [3])
    behind = PartitionState("v", 0, 2, (2, 3), (2,))
    code, body = checked(tmp_path, Site(Seen(replace(WELL, brokers=two, partitions=(*kept, behind)))))
    assert (code, found(body)) == (10, {"down", "under_replicated"})
    assert [(b["broker"], b["registered"]) for b in body["brokers"]] == [(1, True), (2, True), (3, False)]


def test_moves_of_anybody_are_told_and_what_they_add_is_not_behind(tmp_path: Path) -> None:
    """The set that a move leads to is the one whose racks count."""
    moving = PartitionState("v", 0, 2, (1, 2, 3), (2, 3))
    site = Site(of(moving), Seen({("v", 0): InFlight((1, 2, 3), (1,), (3,))}))
    code, body = checked(tmp_path, site)
    assert (code, found(body)) == (10, {"moving"})
    assert body["moving"] == [
        {"topic": "v", "partition": 0, "replicas": [1, 2, 3], "adding": [1], "removing": [3]}
    ]
    assert "  v-0 [2,3] -> [1,2]" in call(tmp_path, site).stdout


def test_brokers_that_do_not_tell_their_moves_leave_that_unknown(tmp_path: Path) -> None:
    denied = Unknown("denied", "CLUSTER_AUTHORIZATION_FAILED")
    code, body = checked(tmp_path, Site(moves=denied))
    assert (code, body["moving"], body["unknown"]) == (11, None, "CLUSTER_AUTHORIZATION_FAILED")
    assert "Nothing is wrong. Some checks could not be made." in call(tmp_path, Site(moves=denied)).stdout
    old = Absent("ListPartitionReassignments")
    assert checked(tmp_path, Site(of(reassigning=None), old))[0] == 11
    code, body = checked(tmp_path, Site(of(reassigning=(("t", 1),)), old))
    assert (code, body["moving"][0]["partition"], body["unknown"]) == (10, 1, "")


def test_of_thousands_of_partitions_the_first_are_told_and_json_has_all(tmp_path: Path) -> None:
    many = [PartitionState("v", number, 1, (1, 2), (1,)) for number in range(3000)]
    site = Site(of(*many))
    assert len(checked(tmp_path, site)[1]["under_replicated"]) == 3000
    text = call(tmp_path, site).stdout
    assert "under-replicated: 3,000 partitions" in text
    assert f"and {3000 - SHOWN} more; --json has all" in text
    assert len(text.splitlines()) < 40


@pytest.mark.parametrize(
    ("site", "inventory", "code", "told"),
    [
        (Site(Unknown("timeout", "no broker answered")), INVENTORY, 8, "no broker answered. Next: make"),
        (
            Site(Seen(replace(WELL, cluster_id="B" * 22))),
            INVENTORY,
            3,
            "placement.other-cluster: the brokers",
        ),
        (Site(), INVENTORY.replace("brokers:", "brokrs:"), 2, "brokrs"),
        (Site(), "version: 1\nname: live\n", 2, "kafka"),
    ],
)
def test_who_cannot_be_checked_is_told(
    tmp_path: Path, site: Site, inventory: str, code: int, told: str
) -> None:
    done = call(tmp_path, site, inventory=inventory)
    assert done.exit_code == code, done.output
    assert told in done.stderr
    as_json = json.loads(call(tmp_path, site, "--json", inventory=inventory).stdout)
    assert as_json["code"] == code
    assert told in as_json["error"]
