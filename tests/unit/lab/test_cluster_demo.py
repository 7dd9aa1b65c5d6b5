"""The demo of playbooks that move partitions: its lab, its own claims, and its options."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from tests.unit.judge_fixtures import Event, closed, event, opened
from zkmigrate.lab import demo, machines, provision, render
from zkmigrate.lab.cluster_demo import (
    BORN,
    REMOVE_SETS,
    REMOVED,
    Moved,
    born_within,
    gone_claim,
    p99_claim,
    planned_claim,
    version_claim,
)
from zkmigrate.lab.cluster_site import POLICY_FILE, SETS, not_as, sets_of, six_brokers, wait_for_records
from zkmigrate.lab.failure import NotReady
from zkmigrate.lab.load.json_lines import Recording
from zkmigrate.lab.load.samples import Partition
from zkmigrate.lab.spec import Role, hosts_of
from zkmigrate.lab.wait import silent
from zkmigrate.runbook.model.finding import Held

MS = 1_000_000


@pytest.mark.parametrize(
    ("version", "first", "controllers"), [("2.8.2", "zk1", 0), ("3.9.1", "zk1", 0), ("4.3.1", "kf1", 3)]
)
def test_six_brokers_in_three_racks(version: str, first: str, controllers: int) -> None:
    hosts = hosts_of(six_brokers(version, small={6: 128}))
    brokers = [plan for plan in hosts if plan.role is Role.BROKER]
    assert hosts[0].name == first
    assert [plan.rack for plan in brokers] == ["a", "b", "c"] * 2
    assert [plan.broker.disks_mb for plan in brokers if plan.broker] == [(2048,)] * 5 + [(128,)]
    assert sum(plan.votes for plan in hosts) == controllers


def test_brokers_that_load_our_policy_get_its_jar_and_the_path_of_its_file(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(provision, "ensure_rootfs", lambda _progress: tmp_path)
    monkeypatch.setattr(provision, "policy_jar", lambda _progress: tmp_path / "own" / "policy.jar")
    for name in ("kafka_classpath", "zookeeper_classpath"):
        monkeypatch.setattr(provision, name, lambda _version, _progress: (tmp_path / "jars" / "one.jar",))
    for policy in (False, True):
        spec = six_brokers("2.8.2", policy=policy)
        broker = next(plan for plan in hosts_of(spec) if plan.role is Role.BROKER)
        bound = machines.fetch(spec, silent).bound[broker.name]
        assert bound.get(render.POLICY_JARS) == (tmp_path / "own" if policy else None)
        told = render.server_properties(spec, broker)
        assert (f"zkmigrate.excluded.brokers.file={POLICY_FILE}\n" in told) is policy
        assert ("create.topic.policy.class.name=zkmigrate.ExcludedBrokersPolicy\n" in told) is policy


def test_the_load_begins_uneven_and_not_on_the_last_broker() -> None:
    on = [broker for sets in SETS.values() for one in sets for broker in one]
    counts = [on.count(broker) for broker in (1, 2, 3, 4, 5)]
    assert max(counts) > 2 * min(counts) > 0
    assert 6 not in on
    assert all(len(set(one)) == len(one) for sets in SETS.values() for one in sets)


def test_what_is_not_as_planned_is_told(tmp_path: Path) -> None:
    file = tmp_path / "plan.json"
    rows = [{"topic": "a-b", "partition": n, "replicas": [2, 1]} for n in range(4)]
    file.write_text(json.dumps({"version": 1, "partitions": rows}))
    there = {
        "a-b-0": Partition((2, 1), (1, 2), 2),
        "a-b-1": Partition((1, 2), (1, 2), 1),
        "a-b-2": Partition((2, 1), (2,), 2),
    }
    assert not_as(there, sets_of(file)) == [
        "a-b-1: [1, 2], in sync [1, 2], not [2, 1]",
        "a-b-2: [2, 1], in sync [2], not [2, 1]",
        "a-b-3: gone, not [2, 1]",
    ]


def test_the_load_is_there_once_enough_records_are_acknowledged(tmp_path: Path) -> None:
    """A busy machine writes fewer in the same time, and a plan that finds the brokers even moves nothing."""
    rows: list[dict[str, object]] = [{"event": "rate", "step": 1}, {"event": "ack"}, {"event": "ack"}]
    lines = (json.dumps({"mono_ns": 1, **row}) for row in rows)
    (tmp_path / "producer.jsonl").write_text("".join(f"{line}\n" for line in lines))
    wait_for_records(tmp_path, 2, 0)
    with pytest.raises(NotReady, match="1 records"):
        wait_for_records(tmp_path, 3, 0)


def moved(name: str, began_ms: int, ended_ms: int, partitions: int = 2, *wrong: str) -> Moved:
    return Moved(name, began_ms * MS, ended_ms * MS, partitions, wrong)


@pytest.mark.parametrize(
    ("runs", "held"),
    [
        ([moved("scale", 0, 1), moved("rebalance", 1, 2)], Held.YES),
        ([moved("scale", 0, 1)], Held.NO),
        ([moved("scale", 0, 1), moved("rebalance", 1, 2, 0)], Held.NO),
        ([moved("scale", 0, 1), moved("rebalance", 1, 2, 2, "a-0: gone")], Held.NO),
    ],
    ids=["all", "one not run", "an empty plan", "a wrong set"],
)
def test_each_plan_was_run_and_came_true(runs: list[Moved], held: Held) -> None:
    assert planned_claim(runs, ("scale", "rebalance")).held is held


def ack(sent_ms: int, took_ms: int) -> Event:
    return event("ack", (sent_ms + took_ms) * MS, sent_mono_ns=sent_ms * MS)


def test_the_p99_within_a_run_and_outside() -> None:
    told = [opened("producer"), ack(5, 1), ack(15, 7), ack(25, 2), closed(99 * MS)]
    claim = p99_claim(Recording("producer", told), [moved("scale", 10, 20)])
    assert (claim.value, claim.held) == ({"scale": 7.0, "outside": 2.0}, Held.YES)
    empty = p99_claim(Recording("producer", told), [moved("scale", 50, 60)])
    assert empty.held is Held.NO, "a run without load shows nothing"


def test_an_option_of_the_move_is_refused_with_another_playbook() -> None:
    done = CliRunner().invoke(demo.main, ["--playbook", "kafka_reassign", "--dest-count", "5"])
    assert done.exit_code == 2
    assert "dest-count: only for kafka_zookeeper_move" in done.output


@pytest.mark.parametrize(
    ("running", "named", "left", "said"),
    [
        ((5,), (), (), "broker 5 runs"),
        ((), ("a-0",), (), "a-0 names one"),
        ((), (), ("kf6: a-0",), "on the disk of kf6: a-0"),
    ],
)
def test_a_removed_broker_must_be_gone_everywhere(
    running: tuple[int, ...], named: tuple[str, ...], left: tuple[str, ...], said: str
) -> None:
    assert gone_claim((), (), ()).held is Held.YES
    claim = gone_claim(running, named, left)
    assert (claim.held, claim.detail) == (Held.NO, said)


def test_the_brokers_tell_the_version_that_was_asked_for() -> None:
    assert version_claim("3.9.1", "3.9.1").held is Held.YES
    assert version_claim("2.8.2, 3.9.1", "3.9.1").held is Held.NO


def test_a_topic_is_born_late_by_when_it_was_asked_for() -> None:
    told = [
        event("op", 9 * MS, op=op, topic=topic, started_mono_ns=began)
        for op, topic, began in (
            ("create_topic", "a", 9), ("create_topic", "b", 10), ("alter_config", "c", 15),
            ("create_topic", "d", 20), ("create_topic", "e", 21),
        )
    ]  # fmt: skip
    span = {"start_mono_ns": 10, "end_mono_ns": 20}
    assert list(born_within(Recording("metadata", told), span)) == ["b-0", "d-0"]


def test_each_explicit_birth_names_a_broker_that_goes() -> None:
    assert all(set(one) & set(REMOVED) for one in BORN)
    held = [broker for sets in REMOVE_SETS.values() for one in sets for broker in one]
    assert all(held.count(broker) > 3 for broker in REMOVED)
