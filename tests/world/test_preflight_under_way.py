"""``preflight`` while a run is under way: judged as before its next gate, never as if nothing was begun."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.world.desk import Desk
from tests.world.site import INVENTORY
from tests.world.test_screen import PATIENT


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    made = Desk(tmp_path, WORLD_SPEED="20")
    made.file.write_text(INVENTORY + PATIENT)
    return made


def looked(desk: Desk) -> dict[str, Any]:
    body: dict[str, Any] = json.loads(desk.call("preflight", "--json").stdout)
    return body


def blocks(body: dict[str, Any]) -> list[str]:
    return sorted({f["id"] for f in body["findings"] if f["severity"] == "block" and f["held"] != "yes"})


def test_nobody_is_told_to_empty_a_dest_that_has_joined(desk: Desk) -> None:
    assert (looked(desk)["gate"], looked(desk)["code"]) == ("preflight", 0)
    assert desk.call("run", "--yes", "--until", "install").exit_code == 0
    assert looked(desk)["gate"] == "preflight", "dest is still as it was found"
    assert desk.call("resume", "--yes", "--until", "join").exit_code == 0
    after = looked(desk)
    assert (after["gate"], after["code"], blocks(after)) == ("roll", 0, [])
    told = desk.call("preflight").stdout
    assert told.startswith("run world-1 has joined dest: judged as before its stage roll\n")
    assert "empty version-2" not in told
    assert told.splitlines()[-1].endswith(f"zkmigrate resume -i {desk.file} --run-id world-1")


def test_a_dest_that_stopped_after_the_join_is_a_finding_of_the_roll(desk: Desk) -> None:
    assert desk.call("run", "--yes", "--until", "join").exit_code == 0
    desk.world.hosts["dest2"].stop()
    after = looked(desk)
    assert after["code"] == 3
    assert "dest.observing" in blocks(after)


def test_the_gate_follows_the_run_forward_and_back_and_ends_with_it(desk: Desk) -> None:
    assert desk.call("run", "--yes", "--until", "join").exit_code == 0
    assert desk.call("resume", "--yes", "--until", "roll").exit_code == 0
    after = looked(desk)
    assert (after["gate"], after["code"], blocks(after)) == ("cutover", 0, [])
    assert desk.call("rollback", "--yes", "--to", "roll").exit_code == 0
    assert looked(desk)["gate"] == "roll"
    assert "zkmigrate run -i" in desk.call("preflight").stdout.splitlines()[-1]
    assert desk.call("rollback", "--yes").exit_code == 0
    assert (looked(desk)["gate"], looked(desk)["code"]) == ("preflight", 0)


def test_past_the_last_gate_it_says_so(desk: Desk) -> None:
    desk.environ["WORLD_SPEED"] = "2"
    assert desk.call("run", "--yes", "--skip", "rehearse", "--until", "cutover").exit_code == 0
    done = desk.call("preflight")
    assert done.exit_code == 2
    assert "has passed every gate" in done.output
    assert "status, resume, or preflight --stage after" in done.output


def test_after_a_way_back_run_names_the_command_that_goes_forward(desk: Desk) -> None:
    assert desk.call("run", "--yes", "--until", "join").exit_code == 0
    assert desk.call("rollback", "--yes", "--to", "join").exit_code == 0
    done = desk.call("run", "--yes")
    assert done.exit_code == 2
    assert "run --run-id world-1, which goes forward again after a way back" in done.output
    assert desk.call("run", "--run-id", "world-1", "--yes", "--until", "join").exit_code == 0


def test_each_finding_about_a_broker_that_stopped_says_to_start_it(desk: Desk) -> None:
    desk.world.hosts["broker1"].stop()
    found = {
        f["id"]: f["moves"][0]
        for f in looked(desk)["findings"]
        if f["target"] == "broker1" and f["held"] != "yes" and not f["seen"].startswith("later: ")
    }
    assert found == dict.fromkeys(
        (
            "host.unit", "kafka.addresses", "kafka.started-with", "kafka.pending-config", "kafka.version",
            "kafka.cluster-guard", "kafka.known-bugs",
        ),
        "start the broker",
    )  # fmt: skip
