"""``plan`` as a verb: what it ends with when hosts do not answer, and what a rehearsal adds to it."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from tests.world.desk import Desk
from tests.world.site import INVENTORY
from zkmigrate.inventory.inventory import load


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    return Desk(tmp_path, WORLD_SPEED="20")


def test_a_plan_that_is_not_whole_ends_with_8_and_says_what_is_missing(desk: Desk) -> None:
    assert desk.call("plan").exit_code == 0
    done = desk.call("plan", unreachable=frozenset({"broker2"}))
    assert done.exit_code == 8
    last = done.stdout[done.stdout.index("the plan is incomplete: the changes of 2 of ") :].splitlines()
    assert last[1].startswith("  install.install: broker2: ")
    assert last[2].startswith("  roll.roll: broker2: /etc/kafka/server.properties cannot be read")
    assert last[-1] == "next: fix the findings of zkmigrate preflight, then plan again"
    done = desk.call("plan", "--json", unreachable=frozenset({"broker2"}))
    assert (done.exit_code, list(json.loads(done.stdout)["unknown"])) == (8, ["install.install", "roll.roll"])
    assert json.loads(desk.call("plan", "--json").stdout)["unknown"] == {}


def test_a_plan_with_no_host_reached_is_not_taken_for_one(desk: Desk) -> None:
    inventory = load(desk.file)
    hosts = (*inventory.source_names, *inventory.dest_names, *inventory.broker_names)
    done = desk.call("plan", unreachable=frozenset(hosts))
    assert done.exit_code == 8
    for step in ("install.install", "join.join", "rehearse.arm", "roll.roll", "cutover.arm"):
        assert f"\n  {step}: " in done.stdout[done.stdout.index("the plan is incomplete") :]


def test_the_plan_of_a_rehearsed_run_tells_its_window(desk: Desk) -> None:
    assert "length: not known before the rehearsal" in desk.call("plan").stdout
    assert desk.call("plan", "--run-id", "nobody").exit_code == 2
    assert desk.call("run", "--yes", "--until", "rehearse").exit_code == 0
    done = desk.call("plan", "--run-id", "world-1")
    assert done.exit_code == 0, done.output
    assert "  length: as rehearsed: " in done.stdout
    assert "not known before the rehearsal" not in done.stdout
    assert "(way back: as rehearsed, or the policy's if longer)" in done.stdout
    assert "length: not known before the rehearsal" in desk.call("plan").stdout, (
        "only of the run that is named"
    )
    desk.file.write_text(INVENTORY.replace("/kafka", "/kafka2"))
    assert desk.call("plan", "--run-id", "world-1").exit_code == 4


def test_a_plan_names_the_runs_whose_journals_cannot_be_read(desk: Desk) -> None:
    """It ended with 0 and without a word, and ``run`` then refused. The plan holds, so it still ends with
    0."""
    assert desk.call("run", "--yes", "--until", "preflight").exit_code == 0
    assert "cannot be read" not in desk.call("plan").output
    (desk.runs / "world-1" / "journal.jsonl").write_bytes(b"")
    said = "warning: run world-1 may have changed hosts, and its journal cannot be read: journal line 1 is "
    done = desk.call("plan")
    assert (done.exit_code, said in done.stdout) == (0, True)
    assert said not in desk.call("plan", "--run-id", "world-1").stdout, "it refuses"
    done = desk.call("plan", "--json")
    assert said in done.stderr
    assert json.loads(done.stdout)["unknown"] == {}
    assert desk.call("run", "--yes").exit_code == 8


def test_the_plan_of_the_move_is_applied_as_it_was_written_and_names_what_has_changed(desk: Desk) -> None:
    file = desk.file.with_name("move.plan")
    partly = desk.call("plan", "--out", str(file), unreachable=frozenset({"broker2"}))
    assert (partly.exit_code, file.exists()) == (8, True)
    refused = desk.call("run", "--yes", "--plan", str(file))
    assert refused.exit_code == 4
    assert (
        "the changes of install.install were unknown when it was planned and are known now; "
        in refused.output
    )
    assert desk.call("plan", "--out", str(file), "--force").exit_code == 0
    properties = desk.world.hosts["broker1"].files["/etc/kafka/server.properties"]
    edited = replace(properties, content=properties.content + b"num.io.threads=8\n")
    desk.world.hosts["broker1"].files["/etc/kafka/server.properties"] = edited
    refused = desk.call("run", "--yes", "--plan", str(file))
    assert refused.exit_code == 4
    assert "roll.roll on broker1: the changes differ from the plan: " in refused.output
    assert "broker1 /etc/kafka/server.properties has changed; needed" in refused.output
    desk.world.hosts["broker1"].files["/etc/kafka/server.properties"] = properties
    done = desk.call("run", "--yes", "--plan", str(file), "--until", "install")
    assert done.exit_code == 0, done.output
