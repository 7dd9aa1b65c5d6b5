"""The verb ``placement``: options as values, files, report, exit codes."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import click
import pytest
from click.testing import CliRunner, Result

from tests.unit.tree_server import DataServer, running
from zkmigrate.cli.main import cli
from zkmigrate.cluster import placed
from zkmigrate.cluster.placement.check import sets_of
from zkmigrate.cluster.placement.cluster import Cluster
from zkmigrate.cluster.placement.cluster_file import parse
from zkmigrate.cluster.placement.plan import Notice, Plan, Reassignment, Refused
from zkmigrate.cluster.placement.request import Balance, By, Choice, Optimize, Rebalance, Rebuild, Rollout
from zkmigrate.cluster.placing import live, verb
from zkmigrate.errors import HostError
from zkmigrate.inventory.inventory import Inventory

GB = 10**9
CLUSTER: dict[str, Any] = {
    "brokers": {
        "1": {"rack": "a", "storage_free": 10 * GB},
        "2": {"rack": "b", "storage_free": 90 * GB},
        "3": {"rack": "a", "storage_free": 95 * GB},
    },
    "partitions": [
        {"topic": "t", "partition": 0, "replicas": [1, 2], "size": 20 * GB},
        {"topic": "t", "partition": 1, "replicas": [1, 2], "size": 9 * GB},
        {"topic": "u", "partition": 0, "replicas": [1, 2], "size": 30 * GB},
    ],
}
MOVE = Reassignment("t", 0, (1, 2), (3, 2), 20 * GB)


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "cluster.json").write_text(json.dumps(CLUSTER))
    return tmp_path


def call(*words: str) -> Result:
    return CliRunner().invoke(cli, ["placement", words[0], "--cluster", "cluster.json", *words[1:]])


def plans(monkeypatch: pytest.MonkeyPatch, plan: Any) -> None:
    """Let the planner answer with this. plan: a plan, or a function of the cluster."""

    def planner(cluster: Cluster, request: Any) -> Plan | Refused:
        made: Plan | Refused = plan(cluster) if callable(plan) else plan
        return made

    monkeypatch.setattr(verb.place, "__defaults__", (planner,))


def names(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()} - {"cluster.json"}


def asked(monkeypatch: pytest.MonkeyPatch, *words: str) -> verb.Asked:
    """What the verb is called with."""
    seen: list[verb.Asked] = []

    def place(asked: verb.Asked, echo: Any) -> int:
        seen.append(asked)
        return 0

    monkeypatch.setattr(verb, "place", place)
    done = call(*words)
    assert done.exit_code == 0, done.output
    return seen[0]


def test_the_defaults_are_those_of_the_request(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert asked(monkeypatch, "rebalance").request == Rebalance()
    assert asked(monkeypatch, "scale").request == Rebalance(scale=True)
    assert asked(monkeypatch, "rebuild").request == Rebuild()


ROLLOUT = [
    "--optimize-leadership",
    "--phased-reassignment",
    "--leader-evac-brokers",
    "1,2",
    "--leader-evac-topics",
    "t,u.*",
    "--chunk-step-size",
    "4",
    "--effort",
    "0",
]
CHOICE = ["--topics", "t,u", "--topics", "v.*", "--topics-exclude", "u", "--brokers", "3,1"]
CHOSEN = Choice(("t", "u", "v.*"), ("u",), (3, 1))
CUT = Rollout(True, True, (1, 2), ("t", "u.*"), 4)


def test_every_option_of_rebalance_and_scale_has_its_peers_name(
    here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    moving = [
        "--tolerance",
        "0.3",
        "--partition-limit",
        "7",
        "--partition-size-threshold",
        "0",
        "--locality-scoped",
        "--balance",
        "both",
    ]
    thresholds = ["--storage-threshold", "0.4", "--storage-threshold-gb", "100"]
    expected: dict[str, Any] = {
        "choice": CHOSEN, "rollout": CUT, "tolerance": 0.3, "partition_limit": 7,
        "partition_size_threshold": 0, "locality_scoped": True, "balance": Balance.BOTH, "effort": 0,
    }  # fmt: skip
    done = asked(monkeypatch, "rebalance", *thresholds, *moving, *CHOICE, *ROLLOUT)
    assert done.request == Rebalance(**expected, storage_threshold=0.4, storage_threshold_gb=100)
    done = asked(monkeypatch, "scale", *moving, *CHOICE, *ROLLOUT)
    assert done.request == Rebalance(**expected, scale=True)
    assert call("scale", *thresholds).exit_code == 2
    done = asked(monkeypatch, "rebalance", "--any-broker", *moving, *CHOICE, *ROLLOUT)
    assert done.request == Rebalance(**expected, any_broker=True)
    assert call("scale", "--any-broker").exit_code == 2


@pytest.mark.parametrize("threshold", ["--storage-threshold", "--storage-threshold-gb"])
def test_thresholds_choose_no_source_where_any_broker_gives(here: Path, threshold: str) -> None:
    done = call("rebalance", "--any-broker", threshold, "1")
    assert done.exit_code == 2
    assert f"{threshold} has no effect with --any-broker" in done.stderr


def test_every_option_of_rebuild_has_its_peers_name(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    words = [
        "--placement",
        "storage",
        "--use-meta=false",
        "--force-rebuild",
        "--replication",
        "2",
        "--sub-affinity",
        "--min-rack-ids",
        "2",
        "--optimize",
        "storage",
        "--partition-size-factor",
        "1.5",
    ]
    assert asked(monkeypatch, "rebuild", *words, *CHOICE, *ROLLOUT).request == Rebuild(
        CHOSEN, CUT, By.STORAGE, False, True, 2, True, 2, Optimize.STORAGE, 1.5, 0
    )


@pytest.mark.parametrize("brokers", ["-1", "-2", "-1,7"])
def test_r2_brokers_takes_numbers_below_0(here: Path, monkeypatch: pytest.MonkeyPatch, brokers: str) -> None:
    ids = tuple(int(id_) for id_ in brokers.split(","))
    assert asked(monkeypatch, "rebalance", "--brokers", brokers).request.choice.brokers == ids


def map_of(*names: tuple[str, int]) -> str:
    """A literal map with the cluster's own sets."""
    return json.dumps({"version": 1, "partitions": [
        {key: one[key] for key in ("topic", "partition", "replicas")} for one in CLUSTER["partitions"]
        if (one["topic"], one["partition"]) in names
    ]})  # fmt: skip


@pytest.mark.parametrize(
    "words",
    [
        ("rebalance",),
        ("rebalance", "--optimize-leadership"),
        ("rebuild", "--brokers", "2,3"),
        ("rebuild", "--replication", "1", "--optimize-leadership"),
    ],
)
def test_b1_a_literal_map_gives_plan_and_report_of_a_look_up(here: Path, words: tuple[str, ...]) -> None:
    """The partitions outside the map count, as those of other topics do."""
    told = []
    for folder, given in (("a", ("--topics", "t")), ("b", ("--map-string", map_of(("t", 0), ("t", 1))))):
        (here / folder).mkdir()
        done = call(*words, *given, "--out", f"{folder}/plan.json")
        assert done.exit_code == 0, done.output
        told.append(done.stdout.replace(f"{folder}/", ""))
    assert told[0] == told[1]
    assert (here / "a/plan.json").read_bytes() == (here / "b/plan.json").read_bytes()
    assert sets_of((here / "a/plan.json").read_text())


def test_b1_a_map_of_half_a_topic_plans_that_half(here: Path) -> None:
    words = ("rebuild", "--brokers", "2,3", "--out", "plan.json")
    assert call(*words, "--map-string", map_of(("t", 1), ("u", 0))).exit_code == 0
    assert sets_of((here / "plan.json").read_text()).keys() == {("t", 1), ("u", 0)}
    assert call(*words, "--force", "--topics", "t", "--map-string", map_of(("t", 1), ("u", 0))).exit_code == 0
    assert sets_of((here / "plan.json").read_text()).keys() == {("t", 1)}


def test_b1_the_sets_of_a_map_are_those_before(here: Path) -> None:
    given = map_of(("t", 1)).replace("[1, 2]", "[2, 1]")
    done = call("rebuild", "--brokers", "2,3", "--out", "plan.json", "--map-string", given)
    assert done.exit_code == 0, done.output
    assert sets_of((here / "plan-back.json").read_text()) == {("t", 1): (2, 1)}


def test_b1_a_map_of_a_partition_that_nobody_has_is_refused(here: Path) -> None:
    given = map_of(("t", 0)).replace('"partition": 0', '"partition": 7')
    done = call("rebuild", "--use-meta", "false", "--out", "plan.json", "--map-string", given)
    assert done.exit_code == 3
    assert "placement.map-unknown: --map-string names t-7, which the cluster does not have" in done.stderr
    assert names(here) == set()


def test_files_and_report_of_a_plan(here: Path) -> None:
    done = call("rebalance", "--out", "plan.json", "--page", "plan.html")
    assert done.exit_code == 0, done.output
    assert done.stderr == ""
    assert names(here) == {"plan.json", "plan-back.json", "plan.html"}
    there = sets_of((here / "plan.json").read_text())
    assert sets_of((here / "plan-back.json").read_text()) == dict.fromkeys(there, (1, 2))
    assert "Written: plan-back.json, plan.json, plan.html" in done.stdout
    for word in ("range spread", "standard deviation", "Lower bound", "degree", "leaders", "bytes in"):
        assert word in done.stdout
    page = (here / "plan.html").read_text()
    assert page.count("<svg") == 2
    assert "Free bytes per rack" in page


def test_r17_the_same_call_writes_the_same_bytes_in_another_process(here: Path) -> None:
    """Under other seeds of Python's hashes."""
    for seed in ("1", "2"):
        words = [
            "rebalance",
            "--cluster",
            "cluster.json",
            "--chunk-step-size",
            "1",
            "--phased-reassignment",
            "--out",
        ]
        done = subprocess.run(
            [sys.executable, "-m", "zkmigrate", "placement", *words, f"{seed}.json", "--phased-reassignment"],
            env={"PYTHONHASHSEED": seed, "PYTHONPATH": str(Path(__file__).parents[3])},
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr
    first = sorted(path for path in here.iterdir() if path.name.startswith("1"))
    assert len(first) == 4
    for path in first:
        assert path.read_bytes() == (here / path.name.replace("1", "2", 1)).read_bytes()


def test_json_has_the_whole_report(here: Path) -> None:
    done = call("rebalance", "--json", "--out", "plan.json")
    body = json.loads(done.stdout)
    assert set(body) == {
        "code",
        "moves",
        "phases",
        "limited",
        "notices",
        "statistics",
        "files",
        "removed",
        "log_dirs",
        "offload",
        "schema",
        "time",
    }
    plan = json.loads((here / "plan.json").read_text())
    assert set(plan) == {"version", "partitions"}, "Kafka's own form"
    assert body["files"] == ["plan-back.json", "plan.json"]
    assert body["statistics"]["moved"] == sum(move["bytes"] for move in body["moves"]) > 0
    assert 0 < body["statistics"]["eta"] <= 1


def test_without_out_nothing_is_written(here: Path) -> None:
    assert call("rebalance").exit_code == 0
    assert names(here) == set()


def test_x4_a_dry_plan_is_discarded_and_the_plan_made_again_from_the_later_cluster(here: Path) -> None:
    removal = ("rebuild", "--brokers", "2,3")
    dry = call(*removal)
    assert (dry.exit_code, names(here)) == (0, set())
    late = {"topic": "late", "partition": 0, "replicas": [1, 2], "size": GB}
    (here / "cluster.json").write_text(json.dumps({**CLUSTER, "partitions": [*CLUSTER["partitions"], late]}))
    assert call(*removal, "--out", "plan.json").exit_code == 0
    sets = {
        (one["topic"], one["partition"]): one["replicas"]
        for one in json.loads((here / "plan.json").read_text())["partitions"]
    }
    assert set(sets["late", 0]) == {2, 3}
    assert all(1 not in replicas for replicas in sets.values())
    assert len(sets) == 4


def test_other_files_are_kept_without_force(here: Path) -> None:
    for taken in ("plan.json", "plan-back.json", "plan-phase7.json", "plan.html"):
        (here / taken).write_text("mine")
        done = call("rebalance", "--out", "plan.json", "--page", "plan.html")
        assert done.exit_code == 2, done.output
        assert f"{taken} " in done.stderr
        assert names(here) == {taken}
        assert (here / taken).read_text() == "mine"
        (here / taken).unlink()
    (here / "plan-phase7.json").write_text("of an earlier plan")
    done = call("rebalance", "--out", "plan.json", "--force")
    assert done.exit_code == 0
    assert "Removed files of an earlier plan: plan-phase7.json\n" in done.stdout
    assert names(here) == {"plan.json", "plan-back.json"}
    (here / "plan-phase7.json").write_text("of an earlier plan")
    body = json.loads(call("rebalance", "--out", "plan.json", "--force", "--json").stdout)
    assert body["removed"] == ["plan-phase7.json"]


@pytest.mark.parametrize(
    "page",
    [
        "plan.json", "./plan.json", "plan-back.json", "../{here}/plan-back.json", "plan-phase0.json",
        "link-to-plan", "link-to-back",
    ],
)  # fmt: skip
def test_a_page_takes_no_file_of_the_plan(here: Path, page: str) -> None:
    (here / "link-to-plan").symlink_to("plan.json")
    (here / "link-to-back").symlink_to("plan-back.json")
    done = call("rebalance", "--out", "plan.json", "--page", page.format(here=here.name), "--force")
    assert done.exit_code == 2
    assert "is a file of the plan plan.json" in done.stderr
    assert names(here) == {"link-to-plan", "link-to-back"}


@pytest.mark.parametrize(
    "words",
    [
        ("--page", "cluster.json"),
        ("--out", "cluster.json"),
        ("--out", "link"),
        ("--cluster", "plan-back.json", "--out", "plan.json"),
        ("--cluster", "plan-phase3.json", "--out", "plan.json"),
    ],
)
def test_no_file_that_was_read_is_replaced(here: Path, words: tuple[str, ...]) -> None:
    for name in ("plan-back.json", "plan-phase3.json"):
        (here / name).write_text(json.dumps(CLUSTER))
    (here / "link").symlink_to("cluster.json")
    done = call("rebalance", *words, "--force")
    assert done.exit_code == 2, done.output
    assert "Next: choose another FILE" in done.stderr
    assert all(
        json.loads((here / name).read_text()) == CLUSTER for name in ("plan-back.json", "cluster.json")
    )


@pytest.mark.parametrize("option", ["--out", "--page"])
def test_no_file_is_called_like_standard_output(here: Path, option: str) -> None:
    done = call("rebalance", option, "-")
    assert (done.exit_code, f"{option} -; needed: the name of a file" in done.stderr) == (2, True)
    assert names(here) == set()


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("rebuild", "--force-rebuild", "--sub-affinity"), "placement.force-and-affinity"),
        (("rebuild", "--use-meta", "false", "--placement", "storage"), "placement.storage-without-meta"),
        (("rebuild", "--use-meta", "false", "--min-rack-ids", "2"), "placement.racks-without-meta"),
        (("rebuild", "--replication", "2", "--min-rack-ids", "3"), "placement.racks-above-replicas"),
        (("rebalance", "--topics", "["), "placement.topic-pattern"),
        (("rebalance", "--brokers", "-3"), "placement.broker-id"),
        (("rebalance", "--leader-evac-brokers", "1"), "placement.evacuation-half"),
        (
            ("rebalance", "--leader-evac-brokers", "1", "--leader-evac-topics", "["),
            "placement.evacuation-pattern",
        ),
    ],
)
def test_options_that_contradict_each_other_are_wrong_usage(
    here: Path, words: tuple[str, ...], told: str
) -> None:
    done = call(*words)
    assert done.exit_code == 2, done.output
    assert told in done.stderr


def test_b13_brokers_that_nobody_knows_cannot_be_evacuated(here: Path) -> None:
    words = ("rebalance", "--leader-evac-brokers", "1,77", "--leader-evac-topics", "t", "--out", "plan.json")
    done = call(*words)
    assert done.exit_code == 3
    assert "placement.evacuation-broker: leader-evac-brokers names [77]" in done.stderr
    assert names(here) == set()
    assert call(*words, "--ignore-warnings").exit_code == 0


def test_a_refusal_is_no_plan_and_leaves_nothing(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plans(monkeypatch, Refused((Notice("placement.full", "broker 1 is full"), Notice("placement.x", "y"))))
    done = call("rebalance", "--out", "plan.json", "--ignore-warnings")
    assert done.exit_code == 3
    assert done.stderr == (
        "zkmigrate: no plan is written\nplacement.full: broker 1 is full\nplacement.x: y\n"
    )
    assert names(here) == set()
    body = json.loads(call("rebalance", "--json").stdout)
    assert body["code"] == 3
    assert "broker 1 is full" in body["error"]


def test_of_thousands_of_reasons_the_first_are_told_by_their_id(
    here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    many = [Notice("placement.few", f"t-{number}") for number in range(3000)]
    plans(monkeypatch, Refused((*many, Notice("placement.full", "broker 1"))))
    done = call("rebalance")
    assert done.stderr.splitlines() == [
        "zkmigrate: no plan is written",
        *(f"placement.few: t-{number}" for number in range(10)),
        "placement.few: and 2990 more",
        "placement.full: broker 1",
    ]


@pytest.mark.parametrize("flag", ["--ignore-warnings", "--ignore-warns"])
def test_a_warning_that_refuses_is_lifted_by_its_flag_only(
    here: Path, monkeypatch: pytest.MonkeyPatch, flag: str
) -> None:
    worse = Notice("placement.worse", "the range grows", refuses=True)
    plans(monkeypatch, lambda cluster: Plan(cluster, (MOVE,), notices=(worse, Notice("placement.n", "by"))))
    done = call("rebalance", "--out", "plan.json", "--page", "plan.html")
    assert done.exit_code == 3
    assert "1 replica list changes" in done.stdout
    assert "placement.worse: the range grows\nNext: change the request" in done.stderr
    assert "placement.n" not in done.stderr
    assert names(here) == set()
    body = json.loads(call("rebalance", "--out", "plan.json", "--json").stdout)
    assert (body["code"], body["files"]) == (3, [])
    assert call("rebalance", "--out", "plan.json", flag).exit_code == 0
    assert names(here) == {"plan.json", "plan-back.json"}


def test_a_plan_that_breaks_a_rule_is_never_written(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The checker reads what would be written: a planner's mistake ends here."""
    twice = Reassignment("t", 0, (1, 2), (2, 2), 20 * GB)
    plans(monkeypatch, lambda cluster: Plan(cluster, (twice,)))
    done = call("rebalance", "--out", "plan.json", "--ignore-warnings")
    assert done.exit_code == 8
    assert "the finished plan breaks a rule, and nothing is written" in done.stderr
    assert names(here) == set()
    plans(monkeypatch, lambda cluster: Plan(cluster, (MOVE,), phases=((twice,), (MOVE,))))
    assert call("rebalance", "--out", "plan.json").exit_code == 8


def test_nothing_to_move_is_a_plan_of_nothing(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """So that no plan of an earlier call is taken for this one's."""
    plans(monkeypatch, lambda cluster: Plan(cluster, ()))
    done = call("rebalance", "--out", "plan.json")
    assert done.exit_code == 0
    assert done.stdout.startswith("Nothing to move.")
    assert sets_of((here / "plan.json").read_text()) == {}


INTERRUPTED = """
import os, signal, threading
from zkmigrate.cli.main import cli
from zkmigrate.cluster.placing import verb
def planner(cluster, request):
    os.kill(os.getpid(), signal.SIGINT)
    threading.Event().wait()
verb.place.__defaults__ = (planner,)
cli(["placement", "rebalance", "--cluster", "cluster.json", "--out", "plan.json"])
"""


def test_an_interrupted_plan_says_so_and_leaves_nothing(here: Path) -> None:
    done = subprocess.run((sys.executable, "-c", INTERRUPTED), capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout) == (130, "")
    assert "zkmigrate: interrupted (exit code 130)\n" in done.stderr
    assert names(here) == set()


def test_a_reader_that_wants_no_more_is_no_error(here: Path) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    words = ("placement", "rebalance", "--cluster", "cluster.json", "--out", "plan.json")
    done = subprocess.run(
        (sys.executable, "-m", "zkmigrate", *words), stdout=writer, stderr=subprocess.PIPE, timeout=60
    )
    os.close(writer)
    assert (done.returncode, done.stderr) == (141, b"")
    assert names(here) == {"plan.json", "plan-back.json"}


SEVERAL: dict[str, Any] = {
    "brokers": {
        "1": {"rack": "a", "log_dirs": {"/d1": {"free": 0}, "/d2": {"free": 60 * GB}}},
        "2": {"rack": "a", "log_dirs": {"/d1": {"free": 30 * GB}, "/d2": {"free": 80 * GB}}, "new": True},
    },
    "partitions": [
        {"topic": "t", "partition": 0, "replicas": [1], "size": 20 * GB, "log_dirs": ["/d1"]},
        {"topic": "t", "partition": 1, "replicas": [1], "size": 25 * GB, "log_dirs": ["/d1"]},
    ],
}


def test_log_directories_are_chosen_told_and_given_back(here: Path) -> None:
    (here / "cluster.json").write_text(json.dumps(SEVERAL))
    done = call("scale", "--out", "plan.json", "--page", "plan.html", "--log-dirs", "balance")
    assert done.exit_code == 0, done.output
    [row] = json.loads((here / "plan.json").read_text())["partitions"][:1]
    assert row == {"topic": "t", "partition": 1, "replicas": [2], "log_dirs": ["/d2"]}
    inside = json.loads((here / "plan.json").read_text())["partitions"][1]
    assert inside == {"topic": "t", "partition": 0, "replicas": [1], "log_dirs": ["/d2"]}
    back = json.loads((here / "plan-back.json").read_text())["partitions"]
    assert [one["log_dirs"] for one in back] == [["/d1"], ["/d1"]]
    assert "Between log directories of a broker: 1 replica, 18.6 GiB." in done.stdout
    lines = [line.split() for line in done.stdout.splitlines()]
    assert ["2", "/d2", "74.5", "GiB", "51.2", "GiB", "1"] in lines
    assert "Log directories" in (here / "plan.html").read_text()
    kafka = json.loads(call("scale", "--log-dirs", "kafka", "--json").stdout)
    assert (len(kafka["moves"]), kafka["log_dirs"]) == (1, [])
    told = json.loads(call("scale", "--json").stdout)["log_dirs"]
    assert told[-1] == {"broker": 2, "path": "/d2", "before": 80 * GB, "after": 55 * GB, "copies": 1}


def test_a_directory_that_is_too_full_is_never_written(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (here / "cluster.json").write_text(json.dumps(SEVERAL))
    move = Reassignment("t", 1, (1,), (2,), 25 * GB)
    plans(monkeypatch, lambda cluster: Plan(cluster, (move,), dirs={(("t", 1), 2): "/d1"}))
    assert call("scale", "--out", "plan.json").exit_code == 0
    plans(monkeypatch, lambda cluster: Plan(cluster, (move,), dirs={(("t", 1), 2): "/none"}))
    done = call("scale", "--out", "none.json")
    assert (done.exit_code, "broker 2 has no log directory /none" in done.stderr) == (8, True)
    assert not (here / "none.json").exists()


def test_names_in_a_report_are_escaped(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    hostile = {**CLUSTER, "brokers": {**CLUSTER["brokers"], "3": {"rack": "<b>\u001b[2J", "storage_free": 1}}}
    (here / "cluster.json").write_text(json.dumps(hostile))
    plans(monkeypatch, lambda cluster: Plan(cluster, ()))
    assert call("rebalance", "--page", "plan.html").exit_code == 0
    page = (here / "plan.html").read_text()
    assert "<b>\\" not in page
    assert "&lt;b&gt;" in page
    assert "\u001b" not in page


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("--brokers", "1,b"), "--brokers '1,b'; needed: ids of brokers, such as 1001,1002"),
        (("--brokers", ""), "--brokers ''; needed: ids of brokers"),
        (("--brokers", "1,2,,3"), "--brokers '1,2,,3'; needed: ids of brokers"),
        (("--brokers", "1,2,1"), "--brokers 1,2,1; needed: each broker once"),
        (("--zk-prefix", "kafka"), "--zk-prefix has no effect without --zk-addr"),
        (("--metrics-age", "60"), "--metrics-age has no effect without --zk-addr"),
        (("--leader-evac-brokers", "x"), "--leader-evac-brokers 'x'; needed: ids of brokers"),
        (("--out", "none/plan.json"), "no directory none"),
        (
            ("--cluster", "nowhere.json"),
            "nowhere.json: No such file or directory. Needed: a cluster as a file",
        ),
        (("--storage-threshold", "2"), "2.0 is not in the range 0<=x<=1"),
        (("--map-string", "{"), "; needed: Kafka's reassignment JSON\n"),
        (("--partition-limit", "0"), "0 is not in the range x>=1"),
    ],
)
def test_bad_input_of_the_command_line(here: Path, words: tuple[str, ...], told: str) -> None:
    done = call("rebalance", *words)
    assert done.exit_code == 2
    assert told in done.stderr
    assert names(here) == set()


def test_a_cluster_comes_from_one_place(here: Path) -> None:
    one = "needed: only one of --cluster FILE, --inventory FILE and --zk-addr HOST:PORT"
    for words in (("--zk-addr", "zk1"), ("--inventory", "migration.yml"), ("-i", "x", "--zk-addr", "zk1")):
        done = call("rebalance", *words)
        assert (done.exit_code, one in done.stderr) == (2, True)
    none = CliRunner().invoke(cli, ["placement", "rebalance"])
    assert (none.exit_code, "needed: one of --cluster FILE" in none.stderr) == (2, True)


def test_an_order_of_storage_needs_placement_by_storage(here: Path) -> None:
    done = call("rebuild", "--optimize", "storage")
    assert done.exit_code == 2
    assert "--optimize has no effect without --placement storage" in done.stderr
    assert call("rebuild", "--placement", "storage", "--optimize", "storage").exit_code == 0


INVENTORY = """\
version: 1
name: live
ssh: {user: ops, key: key, known_hosts: known_hosts}
kafka:
  cluster_id: abcdefghijklmnopqrstuv
  brokers:
    - {name: b1, address: 10.0.0.1, id: 1}
"""


@pytest.mark.parametrize(("answer", "code"), [("known", 0), ("refused", 3), ("silent", 8)])
def test_the_cluster_of_an_inventory_is_read_from_its_brokers(
    here: Path, monkeypatch: pytest.MonkeyPatch, answer: str, code: int
) -> None:
    opened, seen = SimpleNamespace(look=object(), closed=0), list[Any]()
    opened.close = lambda: setattr(opened, "closed", opened.closed + 1)

    def site(inventory: Inventory, run: str) -> Any:
        seen.append((inventory.name, run))
        return opened

    def read(inventory: Inventory, look: object, tell: Any, pause: Any) -> Cluster | Refused:
        assert pause is time.sleep, "a broker that died is waited for"
        assert (inventory.name, look, opened.closed) == ("live", opened.look, 0)
        tell("3 of 4 brokers")
        if answer == "silent":
            raise HostError("no broker answered")
        if answer == "refused":
            return Refused((Notice("placement.disk-unseen", "broker 1"),))
        return parse((here / "cluster.json").read_bytes(), "")

    monkeypatch.setattr(placed, "read", read)
    (here / "migration.yml").write_text(INVENTORY)
    words = ["placement", "rebalance", "-i", "migration.yml", "--out", "plan.json"]
    done = CliRunner().invoke(cli, words, obj=site)
    assert done.exit_code == code, done.output
    assert "3 of 4 brokers" in done.stderr
    assert (here / "plan.json").exists() == (answer == "known")
    assert ("placement.disk-unseen: broker 1" in done.stderr) == (answer == "refused")
    assert (seen, opened.closed) == ([("live", "placement")], 1)


def test_an_inventory_without_what_is_needed_is_told_before_anybody_is_asked(here: Path) -> None:
    (here / "migration.yml").write_text(INVENTORY.replace("kafka:", "kafkas:"))
    done = CliRunner().invoke(cli, ["placement", "rebalance", "-i", "migration.yml"], obj=None)
    assert done.exit_code == 2
    assert "kafka: missing" in done.stderr


@pytest.mark.parametrize("answer", ["old", "known"])
def test_b15_metrics_are_read_with_the_peers_prefixes_and_refused_when_old(
    here: Path, monkeypatch: pytest.MonkeyPatch, answer: str
) -> None:
    seen: list[Any] = []

    def read(*where: Any, sized: bool) -> Any:
        assert sized
        seen.append(where[:-2])
        if answer == "old":
            return Refused((Notice("placement.metrics-old", "61 minutes old"),))
        return parse((here / "cluster.json").read_bytes(), ""), ()

    monkeypatch.setattr(live, "read", read)
    words = ["--zk-addr", "zk1,zk2:2182", "--zk-prefix", "kafka", "--metrics-age", "30"]
    done = CliRunner().invoke(cli, ["placement", "rebalance", *words])
    assert seen == [("zk1,zk2:2182", "kafka", "topicmappr", 30)]
    assert done.exit_code == (3 if answer == "old" else 0)
    assert ("placement.metrics-old: 61 minutes old" in done.stderr) == (answer == "old")


def test_bad_input_in_the_file_is_told_by_place_seen_and_needed(here: Path) -> None:
    (here / "cluster.json").write_text(json.dumps(CLUSTER).replace(f'"size": {9 * GB}', '"size": "9 GB"'))
    done = call("rebalance", "--out", "plan.json")
    assert done.exit_code == 2
    assert 'cluster.json: partitions[1] (topic "t", partition 1).size: seen "9 GB"; needed: ' in done.stderr
    assert names(here) == set()


def edited(here: Path, before: str, after: str) -> None:
    (here / "cluster.json").write_text(json.dumps(CLUSTER).replace(before, after))


@pytest.mark.parametrize("kind", ["rebalance", "scale"])
def test_r11_a_broker_that_is_gone_or_left_out_is_refused(here: Path, kind: str) -> None:
    done = call(kind, "--brokers", "1,3", "--out", "plan.json", "--ignore-warnings")
    assert done.exit_code == 3
    assert "placement.broker-left-out: 1 broker (2)" in done.stderr
    edited(here, "[1, 2]", "[1, 9]")
    done = call(kind, "--out", "plan.json", "--ignore-warnings")
    assert done.exit_code == 3
    assert "placement.broker-gone: 1 broker (9)" in done.stderr
    assert names(here) == set()


@pytest.mark.parametrize("words", [["rebalance"], ["scale"], ["rebuild", "--placement", "storage"]])
def test_bad_input_a_size_that_is_missing(here: Path, words: list[str]) -> None:
    edited(here, f', "size": {9 * GB}', "")
    done = call(*words, "--out", "plan.json", "--ignore-warnings")
    assert done.exit_code == 3
    assert "placement.size-missing: the size of 1 partition" in done.stderr
    assert names(here) == set()


@pytest.mark.parametrize("kind", ["rebalance", "rebuild"])
def test_r12_a_broker_without_a_rack_is_told(here: Path, kind: str) -> None:
    edited(here, '"rack": "b", ', "")
    assert "placement.no-rack: 1 broker (2)" in call(kind).stdout


def test_bad_input_more_replicas_than_brokers(here: Path) -> None:
    done = call("rebuild", "--replication", "4", "--out", "plan.json", "--ignore-warnings")
    assert done.exit_code == 3
    assert names(here) == set()


def test_x13_a_plan_by_count_without_some_sizes_is_written_on_consent(here: Path) -> None:
    edited(here, f', "size": {9 * GB}', "")
    words = ("rebuild", "--brokers", "2,3", "--out", "plan.json")
    told = call(*words)
    assert told.exit_code == 3
    assert "placement.capacity-unknown: The size of 1 of 3 partitions is not known: t-1." in told.output
    assert not (here / "plan.json").exists()
    assert call(*words, "--ignore-warnings").exit_code == 0
    sets = sets_of((here / "plan.json").read_text())
    assert {2, 3}.issuperset(broker for replicas in sets.values() for broker in replicas)


ZNODES = {
    "/brokers/ids/1": {"rack": "a"},
    "/brokers/ids/2": {"rack": "b"},
    "/brokers/ids/3": {"rack": "a"},
    "/brokers/topics/t": {"partitions": {"0": [9, 2], "1": [2, 9]}},
    "/topicmappr/partitionmeta": {"t": {"0": {"Size": 7}, "1": {"Size": 8}}},
    "/topicmappr/brokermetrics": {id_: {"StorageFree": 50} for id_ in "123"},
}


def from_znodes(monkeypatch: pytest.MonkeyPatch, *words: str, age_s: float = 0.0, **lacking: Any) -> Result:
    """Run ``placement`` on a ZooKeeper with these znodes. lacking: what other ones hold; None: not there.
    age_s: since they were written."""
    told = {**ZNODES, **{f"/topicmappr/{name}": body for name, body in lacking.items()}}
    data = {path: json.dumps(body).encode() for path, body in told.items() if body is not None}
    above = {str(parent) for path in data for parent in Path(path).parents}
    znodes = {**dict.fromkeys(above, b""), **data}
    for name in ("ZK_ADDR", "ZK_PREFIX", "ZK_METRICS_PREFIX", "IGNORE_WARNS"):
        monkeypatch.delenv(f"TOPICMAPPR_{name}", raising=False)
    with running(DataServer(dict.fromkeys(znodes, (1, 1, 1)), data=znodes, age_s=age_s)) as server:
        where = ["--zk-addr", f"127.0.0.1:{server.port}"]
        return CliRunner().invoke(cli, ["placement", words[0], *where, *words[1:]])


@pytest.mark.parametrize(
    ("lacking", "why"),
    [
        ({"partitionmeta": None, "brokermetrics": None}, "no znode /topicmappr/partitionmeta"),
        ({"brokermetrics": {"1": {"StorageFree": 1}}}, "no StorageFree of the registered brokers 2, 3"),
        ({"brokermetrics": []}, "brokermetrics: seen []"),
    ],
)
def test_b6_a_rebuild_by_count_needs_no_sizes_in_zookeeper(
    here: Path, monkeypatch: pytest.MonkeyPatch, lacking: dict[str, Any], why: str
) -> None:
    done = from_znodes(monkeypatch, "rebuild", "--out", "plan.json", **lacking)
    assert done.exit_code == 0, done.output
    assert sets_of((here / "plan.json").read_text()) == {("t", 0): (1, 2), ("t", 1): (2, 3)}
    assert "notice placement.metrics-unused: " in done.stdout
    assert why in done.stdout
    assert "notice placement.capacity-unknown: The size of 2 of 2 partitions" in done.stdout
    assert "2 replica lists change, the number of copied bytes is not known." in done.stdout
    assert "lowest free" not in done.stdout
    assert "0 B" not in done.stdout
    for words in (("rebuild", "--placement", "storage"), ("rebalance", "--brokers", "1,2,3")):
        done = from_znodes(monkeypatch, *words, **lacking)
        assert done.exit_code == (3 if "StorageFree" in why else 2), done.output
        assert why in done.stderr


def test_b6_b15_a_rebuild_by_count_says_that_it_does_not_use_old_metrics(
    here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is planned without them, as by topicmappr, which reads none there; by storage it is refused."""
    done = from_znodes(monkeypatch, "rebuild", "--out", "plan.json", age_s=3661.0)
    assert (done.exit_code, names(here)) == (0, {"plan.json", "plan-back.json"}), done.output
    assert "notice placement.metrics-unused: " in done.stdout
    assert "Cause: the metrics in ZooKeeper are 61 minutes old" in done.stdout
    assert "notice placement.capacity-unknown: The size of 2 of 2 partitions" in done.stdout
    known = from_znodes(monkeypatch, "rebuild", "--metrics-age", "62", age_s=3661.0)
    assert "placement.metrics-unused" not in known.stdout
    by_storage = from_znodes(monkeypatch, "rebuild", "--placement", "storage", age_s=3661.0)
    assert (by_storage.exit_code, "placement.metrics-old: " in by_storage.stderr) == (3, True)


def test_b2_a_rebuild_without_meta_and_sizes_is_planned_with_a_notice_as_topicmappr_plans_it(
    here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    words = ("rebuild", "--use-meta", "false", "--out", "plan.json")
    done = from_znodes(monkeypatch, *words, partitionmeta=None, brokermetrics=None)
    assert (done.exit_code, names(here)) == (0, {"plan.json", "plan-back.json"}), done.output
    assert "notice placement.capacity-unknown: " in done.stdout
    assert "Whether their copies fit on brokers is not checked." in done.stdout


def test_b6_a_rebuild_by_count_takes_sizes_that_are_there(
    here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    done = from_znodes(monkeypatch, "rebuild", "--json")
    told = json.loads(done.stdout)
    assert [move["size"] for move in told["moves"]] == [7, 8]
    assert "placement.metrics-unused" not in done.stdout
    full = {id_: {"StorageFree": 1} for id_ in "123"}
    assert "limit is disk" in from_znodes(monkeypatch, "rebuild", brokermetrics=full).stderr


def test_b6_json_says_null_for_sizes_that_are_not_known(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    told = json.loads(from_znodes(monkeypatch, "rebuild", "--json", partitionmeta=None).stdout)
    assert [(move["size"], move["bytes"]) for move in told["moves"]] == [(None, None)] * 2


# The command lines of topicmappr

PEER: dict[str, Any] = {
    "zk-addr": "localhost:2181", "zk-prefix": "", "zk-metrics-prefix": "topicmappr",
    "kafka-addr": "localhost:9092", "ignore-warns": False, "topics": "required", "topics-exclude": "",
    "out-path": "", "out-file": "", "brokers": "required", "metrics-age": 60, "optimize-leadership": False,
}  # fmt: skip
"""The options of all three verbs by ``topicmappr --help`` of 4.2.1, with their defaults."""

PEER_MOVES = {
    **PEER, "tolerance": 0.0, "partition-limit": 30, "partition-size-threshold": 512,
    "locality-scoped": False, "verbose": False,
}  # fmt: skip
PEERS = {
    "scale": PEER_MOVES,
    "rebalance": {**PEER_MOVES, "storage-threshold": 0.2, "storage-threshold-gb": 0.0},
    "rebuild": {
        **PEER, "map-string": "", "use-meta": True, "force-rebuild": False, "replication": 0,
        "sub-affinity": False, "placement": "count", "min-rack-ids": 0, "optimize": "distribution",
        "partition-size-factor": 1.0, "skip-no-ops": False, "phased-reassignment": False,
        "leader-evac-brokers": "", "leader-evac-topics": "", "chunk-step-size": 0,
    },
}  # fmt: skip


def differing(verb: str) -> set[str]:
    """The peer's options that ours lacks, or has with another default or kind."""
    group = cli.get_command(click.Context(cli), "placement")
    assert isinstance(group, click.Group)
    command = group.commands[verb]
    own = {name: one for one in command.params for name in one.opts}
    found = set()
    for name, default in PEERS[verb].items():
        option = own.get(f"--{name}")
        if option is None:
            found.add(name)
            continue
        ours = "" if option.multiple else option.default
        if ours != default or isinstance(default, bool) != isinstance(ours, bool):
            found.add(name)
        if type(default) is float:
            assert isinstance(option.type, click.FloatRange), name
    return found


def test_the_page_lists_the_options_of_topicmappr_that_differ_and_no_others() -> None:
    page = Path(__file__, "../../../../docs/reference/placement.md").resolve().read_text()
    table = page.split("These options differ:")[1].split("Other differences:")[0]
    rows = dict(re.findall(r"^\| `([a-z-]+)` \| ([^|]+) \|", table, re.MULTILINE))
    assert set(rows) == set().union(*map(differing, PEERS))
    every = {name: default for options in PEERS.values() for name, default in options.items()}
    for name, told in rows.items():
        assert told.strip("`").lower() == str(every[name]).lower(), name


@pytest.mark.parametrize(
    ("verb", "name"), [(v, n) for v in PEERS for n, d in PEERS[v].items() if isinstance(d, bool)]
)
def test_every_boolean_of_topicmappr_takes_a_value(here: Path, verb: str, name: str) -> None:
    if name in differing(verb) - {"skip-no-ops"}:
        return
    edited(here, '"replicas": [1, 2]', '"replicas": [2, 3]')
    for word in (f"--{name}", f"--{name}=true", f"--{name}=1", f"--{name}=false"):
        done = call(verb, "--force", word, "--json")
        wrong = (name, word) == ("skip-no-ops", "--skip-no-ops=false")
        assert (done.exit_code == 2) is wrong, done.output


def test_a_boolean_with_a_value_is_what_it_says(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for words, request in (
        (("--force-rebuild",), Rebuild(force_rebuild=True)),
        (("--force-rebuild=true",), Rebuild(force_rebuild=True)),
        (("--force-rebuild=false", "--use-meta"), Rebuild()),
        (("--use-meta=false",), Rebuild(use_meta=False)),
    ):
        assert asked(monkeypatch, "rebuild", *words).request == request
    assert asked(monkeypatch, "rebalance", "--ignore-warns=false").ignore_warnings is False
    assert asked(monkeypatch, "rebalance", "--ignore-warns").ignore_warnings is True


def test_out_file_and_out_path_name_the_plan_as_topicmappr_does(here: Path) -> None:
    (here / "maps").mkdir()
    assert call("rebalance", "--out-path", "maps/", "--out-file", "plan").exit_code == 0
    assert call("rebalance", "--out-file", "whole").exit_code == 0
    assert names(here) == {"maps", "whole.json", "whole-back.json"}
    assert names(here / "maps") == {"plan.json", "plan-back.json"}
    done = call("rebalance", "--out-path", "maps")
    assert (done.exit_code, "--out-path has no effect without --out-file" in done.stderr) == (2, True)
    done = call("rebalance", "--out", "a.json", "--out-file", "a")
    assert (done.exit_code, "--out-file has no effect with --out" in done.stderr) == (2, True)


def test_the_variables_of_topicmappr_stand_for_options(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[Any] = []

    def read(*where: Any, sized: bool) -> Any:
        seen.append((*where[:-2], sized))
        return parse((here / "cluster.json").read_bytes(), ""), ()

    monkeypatch.setattr(live, "read", read)
    for name, value in (
        ("ZK_ADDR", "zk1"),
        ("ZK_PREFIX", "k"),
        ("ZK_METRICS_PREFIX", "m"),
        ("IGNORE_WARNS", "true"),
    ):
        monkeypatch.setenv(f"TOPICMAPPR_{name}", value)
    assert CliRunner().invoke(cli, ["placement", "rebalance"]).exit_code == 0
    assert CliRunner().invoke(cli, ["placement", "rebuild", "--zk-addr", "zk2"]).exit_code == 0
    assert seen == [("zk1", "k", "m", 60, True), ("zk2", "k", "m", 60, False)]
    given = asked(monkeypatch, "rebalance")
    assert given.ignore_warnings is True
    assert [one.name for one in given.read] == ["cluster.json"]
    assert len(seen) == 2
    done = call("rebalance", "--zk-addr", "zk2")
    assert (done.exit_code, "only one of --cluster" in done.stderr) == (2, True)


def test_r3_sources_means_and_limits_are_told(here: Path) -> None:
    told = call("rebalance", "--tolerance", "0.5").stdout
    assert "Sources (free bytes more than 20 % below the harmonic mean): 1." in told
    assert "Free bytes: mean 60.5 GiB, harmonic mean 23.0 GiB." in told
    assert (
        "Tolerance 0.5: a source ends with at most 90.8 GiB free, a receiving broker with at least 30.3 GiB."
        in told
    )
    body = json.loads(call("rebalance", "--json").stdout)["offload"]
    assert (body["sources"], body["mean"]) == ([1], 65 * GB)
    for words, rule in (
        (("--storage-threshold", "0"), "(every old broker): 1, 2."),
        (("--storage-threshold-gb", "84.5"), "(less than 84.5 GiB free): 1, 2."),
        (("--storage-threshold-gb", "0.5"), "(less than 0.5 GiB free): none."),
        (("--any-broker",), "(every chosen broker): 1, 2, 3."),
    ):
        edited(here, '"storage_free": 95000000000}', '"storage_free": 95000000000, "new": true}')
        assert rule in call("rebalance", *words).stdout


SHARED: dict[str, Any] = {
    "brokers": {
        str(id_): {"rack": rack, "storage_free": free * GB}
        for id_, rack, free in ((1, "a", 50), (2, "a", 50), (3, "a", 50), (4, "b", 90), (5, "b", 90))
    },
    "partitions": [
        {"topic": "t", "partition": number, "replicas": [1, 2, 3], "size": GB} for number in range(10)
    ],
}


@pytest.mark.parametrize(
    "words", [("rebalance",), ("rebalance", "--any-broker", "--locality-scoped"), ("rebuild",)]
)
def test_a_plan_that_leaves_sets_in_one_of_two_racks_is_refused_by_name(
    here: Path, words: tuple[str, ...]
) -> None:
    (here / "cluster.json").write_text(json.dumps(SHARED))
    done = call(*words, "--out", "plan.json")
    assert done.exit_code == 3, done.output
    assert (
        "placement.rack-shared: 10 replica lists would span fewer racks than possible: t-0 (1 of 2"
        in done.stderr
    )
    assert names(here) == set()
    assert call(*words, "--out", "plan.json", "--ignore-warns").exit_code == 0


@pytest.mark.parametrize("name", ["rebalance", "rebuild"])
def test_fix_racks_writes_the_repairs_and_the_way_back(here: Path, name: str) -> None:
    (here / "cluster.json").write_text(json.dumps(SHARED))
    done = call(name, "--fix-racks", "--out", "plan.json", "--page", "page.html")
    assert done.exit_code == 0, done.output
    sets = sets_of((here / "plan.json").read_text())
    assert len(sets) == 10
    assert all(set_[0] == 1 and len({4, 5} & set(set_)) == 1 for set_ in sets.values())
    assert "10 replica lists change" in done.stdout
    assert "Placement: racks" in (here / "page.html").read_text()
    assert set(sets_of((here / "plan-back.json").read_text()).values()) == {(1, 2, 3)}


@pytest.mark.parametrize(
    ("words", "option"),
    [
        (("rebalance", "--storage-threshold", "0.3"), "--storage-threshold"),
        (("rebalance", "--any-broker"), "--any-broker"),
        (("rebuild", "--placement", "storage"), "--placement"),
        (("rebuild", "--force-rebuild"), "--force-rebuild"),
    ],
)
def test_options_of_other_moves_have_no_effect_with_fix_racks(
    here: Path, words: tuple[str, ...], option: str
) -> None:
    done = call(*words, "--fix-racks")
    assert (done.exit_code, f"{option} has no effect with --fix-racks" in done.stderr) == (2, True)


def test_max_bytes_limits_what_is_copied(here: Path) -> None:
    bytes_ = [
        json.loads(call("rebalance", "--json", *words).stdout)["statistics"]["moved"]
        for words in ((), ("--max-bytes", str(25 * GB)), ("--max-bytes", "0"))
    ]
    assert bytes_[0] > 25 * GB >= bytes_[1] > bytes_[2] == 0
    assert call("rebalance", "--max-bytes", "-1").exit_code == 2


def test_help_says_what_effort_means() -> None:
    text = " ".join(call("rebalance", "--help").output.split())
    assert "How long to search. 0: take the first plan; 2: search twice as long as 1." in text
