"""What-ifs: their file, clusters as lines of JSON, and what each gives."""

from __future__ import annotations

import json
from typing import Any

import pytest

from zkmigrate.cluster.placement import what_if as module
from zkmigrate.cluster.placement.cluster import Broker
from zkmigrate.cluster.placement.cluster_file import ClusterFileError
from zkmigrate.cluster.placement.request import Balance, By, Choice, Rebalance, Rebuild
from zkmigrate.cluster.placement.what_if import BY_DEFAULT, Outcome, WhatIf, parse, tried
from zkmigrate.errors import UsageError

GB = 10**9
BROKERS = [
    {"broker": 1, "rack": "a", "storage_free": 10 * GB},
    {"broker": 2, "rack": "b", "storage_free": 90 * GB},
    {"broker": 3, "rack": "a", "storage_free": 95 * GB},
]
PARTITIONS = [
    {"topic": "t", "partition": 0, "replicas": [1, 2], "size": 20 * GB},
    {"topic": "t", "partition": 1, "replicas": [1, 2], "size": 9 * GB},
    {"topic": "u", "partition": 0, "replicas": [1, 2], "size": 30 * GB, "rate": None},
]


def lines(*rows: dict[str, Any]) -> list[str]:
    return [json.dumps({"cluster": "c", **row}) for row in rows]


def done(
    what_if: WhatIf = BY_DEFAULT[0], partitions: list[Any] = PARTITIONS, brokers: list[Any] = BROKERS
) -> Outcome:
    return tried("c", lines(*partitions), lines(*brokers), what_if)


def asked(*rows: dict[str, Any]) -> tuple[WhatIf, ...]:
    return parse(json.dumps(rows).encode(), "w.json")


def test_a_file_of_every_verb() -> None:
    assert asked(
        {"name": "r", "verb": "rebalance", "storage_threshold": 0.1, "storage_threshold_gb": 5,
         "topics": ["a.*"], "topics_exclude": ["ab"], "balance": "both", "effort": 0},
        {"name": "s", "verb": "scale", "clusters": ["c"], "tolerance": 1,
         "add": {"4": {"rack": "a", "storage_free": 7}}},
        {"name": "b", "verb": "rebuild", "remove": [1], "placement": "storage", "partition_size_factor": 1.5},
    ) == (
        WhatIf("r", Rebalance(Choice(("a.*",), ("ab",)), storage_threshold=0.1, storage_threshold_gb=5,
                              balance=Balance.BOTH, effort=0)),
        WhatIf("s", Rebalance(scale=True, tolerance=1), ("c",), (Broker(4, "a", 7, new=True),)),
        WhatIf("b", Rebuild(placement=By.STORAGE, partition_size_factor=1.5), remove=(1,)),
    )  # fmt: skip


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("{", "w.json: line 1, column 2"),
        ('[{"name": "a", "name": "b", "verb": "scale"}]', 'key "name" 2 times'),
        ("[]", "w.json: seen an empty list; needed: at least one what-if"),
        ("{}", "w.json: the file: seen {}; needed: "),
        ('[{"verb": "scale"}]', "w.json: [0].name: seen nothing; needed: "),
        ('[{"name": "", "verb": "scale"}]', '[0].name: seen ""'),
        ('[{"name": "a"}]', "[0].verb: needed: rebalance, scale or rebuild"),
        ('[{"name": "a", "verb": "grow"}]', "[0].verb: needed: rebalance, scale or rebuild"),
        ('[{"name": "a", "verb": "scale", "storage_threshold": 0.1}]', "[0].storage_threshold: unknown key"),
        ('[{"name": "a", "verb": "scale", "remove": [1]}]', "[0].remove: unknown key"),
        (
            '[{"name": "a", "verb": "scale", "tolerance": "0.1"}]',
            '[0].tolerance: seen "0.1"; needed: valid number',
        ),
        ('[{"name": "a", "verb": "scale", "tolerance": 1.1}]', "seen 1.1; needed: less than or equal to 1"),
        ('[{"name": "a", "verb": "rebalance", "storage_threshold": -1}]', "[0].storage_threshold: seen -1"),
        ('[{"name": "a", "verb": "rebalance", "balance": "all"}]', "[0].balance: seen"),
        (
            '[{"name": "a", "verb": "scale"}, {"name": "a", "verb": "rebalance"}]',
            '[1].name: seen "a" a second time; needed: each name once',
        ),
        (
            '[{"name": "a", "verb": "scale", "add": {"x": {"storage_free": 1}}}]',
            'w.json: [0].add: brokers: seen the id "x"',
        ),
        ('[{"name": "a", "verb": "scale", "add": {"4": {"storage_free": -1}}}]', "storage_free: seen -1"),
        ('[{"name": "a", "verb": "scale", "add": {"4": {}}}]', "brokers.4: seen no storage_free"),
    ],
)  # fmt: skip
def test_a_bad_file_is_told_by_its_place(content: str, said: str) -> None:
    with pytest.raises(ClusterFileError) as told:
        parse(content.encode(), "w.json")
    assert said in str(told.value)


def test_the_figures_of_a_rebalance() -> None:
    found = done()
    assert (found.cluster, found.what_if, found.verb) == ("c", "rebalance", "rebalance")
    assert (found.brokers, found.partitions, found.range_before) == (3, 3, 85 * GB)
    assert (found.error, found.refused, found.refusing) == (None, (), ())
    assert found.moves
    assert found.bytes
    assert found.range_after is not None
    assert found.range_after < 85 * GB
    assert found.lower_bound is not None
    assert found.eta == found.lower_bound / found.bytes


def test_the_order_of_lines_does_not_count() -> None:
    assert done(partitions=PARTITIONS[::-1], brokers=BROKERS[::-1]) == done()


def test_brokers_that_join_are_new_and_those_that_leave_are_emptied() -> None:
    joined, left = asked(
        {"name": "s", "verb": "scale", "add": {"4": {"rack": "a", "storage_free": 100 * GB}}},
        {"name": "b", "verb": "rebuild", "remove": [1]},
    )
    found = done(joined)
    assert (found.brokers, bool(found.moves), found.error) == (4, True, None)
    found = done(left)
    assert (found.verb, found.bytes, found.moves) == ("rebuild", 59 * GB, 3)
    assert any(one.startswith("placement.broker-left-out: 1 broker (1)") for one in found.notices)


def test_why_there_is_no_plan() -> None:
    [scale] = asked({"name": "s", "verb": "scale"})
    found = done(scale)
    assert found.refused[0].startswith("placement.no-new-broker: ")
    assert (found.brokers, found.moves, found.range_after, found.error) == (3, None, None, None)


def test_what_only_a_word_lifts_stands_apart() -> None:
    [what_if] = asked({"name": "r", "verb": "rebalance", "topics": ["t", "nothing.*"]})
    found = done(what_if)
    assert [one.partition(":")[0] for one in found.refusing] == ["placement.topic-unmatched"]
    assert not any("topic-unmatched" in one for one in found.notices)


def one_bad(at: int, **other: Any) -> list[dict[str, Any]]:
    return [row | (other if place == at else {}) for place, row in enumerate(PARTITIONS)]


@pytest.mark.parametrize(
    ("partitions", "brokers", "said"),
    [
        (one_bad(1, size=-1), BROKERS, 'partitions[1] (topic "t", partition 1).size: seen -1; needed: whole'),
        (one_bad(1, size="9"), BROKERS, '.size: seen "9"'),
        (one_bad(1, partition=0), BROKERS, "c: partitions[1] (topic t, partition 0): seen a second time"),
        (one_bad(1, colour=1), BROKERS, "colour: unknown key"),
        (PARTITIONS, [], "c: brokers: seen {}"),
        ([], BROKERS, "c: partitions: seen []"),
        (PARTITIONS, [*BROKERS, BROKERS[1]], "c: brokers.2: seen a second time; needed: each broker once"),
        (PARTITIONS, [{"rack": "a"}], "c: brokers: seen {"),
        (PARTITIONS, [{"broker": -1, "storage_free": 1}], 'c: brokers: seen the id "-1"'),
    ],
)
def test_a_bad_cluster_is_an_error_of_its_row(partitions: list[Any], brokers: list[Any], said: str) -> None:
    found = done(partitions=partitions, brokers=brokers)
    assert found.error is not None
    assert said in found.error
    assert (found.cluster, found.brokers, found.moves) == ("c", None, None)


@pytest.mark.parametrize("line", ["{", "[1]", '{"topic": NaN}', '{"topic": "a", "topic": "b"}'])
def test_a_bad_line_is_an_error_of_its_row(line: str) -> None:
    assert tried("c", [line], lines(*BROKERS), BY_DEFAULT[0]).error
    assert tried("c", lines(*PARTITIONS), [line], BY_DEFAULT[0]).error


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ({"verb": "scale", "add": {"2": {"storage_free": 1}}}, "add: seen broker 2, which is registered"),
        ({"verb": "rebuild", "remove": [9]}, "remove: seen broker 9; needed: a registered broker"),
        (
            {"verb": "rebuild", "remove": [1, 2, 3]},
            "remove: seen all of the brokers; needed: some that remain",
        ),
    ],
)
def test_a_what_if_that_does_not_fit_a_cluster_is_an_error_of_its_row(more: Any, said: str) -> None:
    [what_if] = asked({"name": "x", **more})
    found = done(what_if)
    assert found.error is not None
    assert said in found.error


def test_a_plan_that_breaks_a_rule_is_an_error_of_its_row(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "broken", lambda *_: ["t-0 loses a rack"])
    found = done()
    assert found.error == "the finished plan breaks a rule: t-0 loses a rack. Next: report this defect"
    assert found.moves is None


def test_other_errors_are_defects_and_not_hidden(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*_: object) -> None:
        raise UsageError("expected")

    monkeypatch.setattr(module, "planned", fails)
    assert done().error == "expected"
    monkeypatch.setattr(module, "planned", lambda *_: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        done()
