"""The exported runbook, followed by a script on real hosts: the same end as the tool's, and the ways back.

The script has nothing of zkmigrate: the page's own blocks, bash and ssh, from the operator's place. Each call
is a terminal of its own, as if the one before had been lost. The tests are chained.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from zkmigrate import inventory as inventories
from zkmigrate.dependents.kafka import connect_string, with_connect
from zkmigrate.lab.baseline import baseline
from zkmigrate.lab.failure import LabError
from zkmigrate.lab.inventory import write_inventory
from zkmigrate.lab.lab import Lab
from zkmigrate.lab.render import SERVER_PROPERTIES, ZOO_CFG
from zkmigrate.lab.source_state import source_state
from zkmigrate.lab.spec import LabSpec, Role
from zkmigrate.lab.waiting import wait_until
from zkmigrate.rules.reform import reformed_config

pytestmark = pytest.mark.lab

RUN = "hand"
WINDOW = ("fence", "drain", "cut", "stop", "prove", "seal", "go", "serve")
BACK = ("go", "seal", "stop", "cut", "fence", "arm")
KAFKA_TOPICS = "java -cp '/opt/kafka/lib/*' kafka.admin.TopicCommand"


@dataclass
class Hand:
    """A lab, the page that was exported for it, and what was there before."""

    lab: Lab
    directory: Path
    source: dict[str, str]
    properties: dict[str, bytes]
    sessions: dict[str, Any] = field(default_factory=dict)

    def zkmigrate(self, *words: str) -> int:
        argv = [sys.executable, "-m", "zkmigrate", *words, "-i", str(self.directory / "migration.yml")]
        environment = {**os.environ, "ZKMIGRATE_RUNS": str(self.directory / "runs")}
        done = subprocess.run(self.lab.operator_command(argv), env=environment, timeout=300, check=False)
        return done.returncode

    def follow(self, *commands: str) -> str:
        """Paste the page's first boxes and type these commands; what was said. All must end well."""
        page = (self.directory / "runbook.md").read_text()
        boxes = re.findall(
            r"^```sh host=operator step=prepare\.\w+ way=forward\n(.*?)^```$", page, re.M | re.S
        )
        assert len(boxes) == 3
        script = "".join(boxes) + " &&\n".join(commands) + "\n"
        home = {"HAND": str(self.directory / "h"), "KAFKA_TOPICS": KAFKA_TOPICS, "PATH": os.environ["PATH"]}
        done = subprocess.run(
            self.lab.operator_command(["bash", "-c", script]),
            cwd=self.directory,
            env=home,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=240,
            check=False,
        )
        print(done.stdout[done.stdout.find("OK site") :])
        assert done.returncode == 0, done.stdout[-2000:]
        return done.stdout

    def steps(self, stage: str, *steps: str) -> str:
        return self.follow(*(f"step {stage}.{step}" for step in steps))

    def back(self, stage: str, *steps: str) -> str:
        return self.follow(*(f"back {stage}.{step}" for step in steps))

    def file(self, host: str, path: str) -> bytes:
        return (self.lab.host(host).root / path.lstrip("/")).read_bytes()

    def configs(self) -> dict[str, bytes]:
        return {h.name: self.file(h.name, ZOO_CFG) for h in self.lab.role(Role.DEST)}

    def phases(self, wanted: str) -> str | None:
        found = {}
        for host in self.lab.role(Role.DEST):
            path = host.root / f"var/lib/zkmigrate/{RUN}/phase"
            found[host.name] = path.read_text().split()[0] if path.exists() else "none"
        return None if set(found.values()) == {wanted} else str(found)

    def same_sessions(self) -> None:
        """The brokers' sessions of before own what they owned, and dest serves them."""

        def missing() -> str | None:
            try:
                now = baseline(self.lab)
            except LabError as error:
                return str(error)
            if now["ephemerals"] != self.sessions["ephemerals"]:
                return f"ephemerals differ: {now['ephemerals']}"
            if now["controller_epoch"] != self.sessions["controller_epoch"]:
                return f"controller epoch {now['controller_epoch']}"
            away = set(self.sessions["sessions"]) - set(now["sessions"])
            return f"sessions {sorted(away)}" if away else None

        wait_until("the sessions of before on dest", missing, 30)


@pytest.fixture(scope="module")
def hand(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Hand]:
    directory = tmp_path_factory.mktemp("hand")
    with Lab.up(LabSpec(session_timeout_ms=30_000), print) as lab:
        write_inventory(lab, directory / "migration.yml")
        brokers = [h.name for h in lab.role(Role.BROKER)]
        made = Hand(lab, directory, source_state(lab), {})
        made.properties = {name: made.file(name, SERVER_PROPERTIES) for name in brokers}
        yield made


def test_the_page_is_exported_and_dest_joins(hand: Hand) -> None:
    assert hand.zkmigrate("runbook", "--run-id", RUN, "--out", str(hand.directory / "runbook.md")) == 0
    hand.follow("step preflight.preflight", "step install.install", "step hold.lock", "step join.join")
    assert "OK N is 2" in hand.follow("step hold.steal")


def test_rehearsed_to_the_check_and_all_the_way_back(hand: Hand) -> None:
    observing = hand.configs()
    hand.steps("rehearse", "arm", "survey", *WINDOW, "check")
    assert hand.configs() != observing
    hand.back("rehearse", *BACK)
    assert hand.configs() == observing
    assert hand.phases("idle") is None


def test_the_roll_writes_what_the_tool_writes(hand: Hand) -> None:
    hand.steps("roll", "roll")
    inventory = inventories.load(hand.directory / "migration.yml")
    wanted = connect_string(inventory)
    for name, before in hand.properties.items():
        assert hand.file(name, SERVER_PROPERTIES) == with_connect(before, wanted)
    hand.sessions = baseline(hand.lab)


def test_a_hand_that_falls_still_after_the_cut_costs_no_session(hand: Hand) -> None:
    said = hand.steps("cutover", "arm", "survey", "fence", "drain", "cut")
    assert "T = 30000 ms" in said
    wait_until("dest has gone back by itself", lambda: hand.phases("armed"), 60)
    hand.same_sessions()


def test_the_cutover_ends_as_the_tools(hand: Hand) -> None:
    hand.steps("cutover", "survey", *WINDOW, "check", "open")
    hand.lab.wait_for_quorum(Role.DEST)
    hand.same_sessions()
    inventory = inventories.load(hand.directory / "migration.yml")
    assert set(hand.configs().values()) == {reformed_config(inventory)}
    assert hand.phases("open") is None
    hand.follow("step verify.verify", "step hold.release")
    assert source_state(hand.lab) == hand.source


def test_the_tool_takes_over_verifies_and_finalizes(hand: Hand) -> None:
    assert hand.zkmigrate("resume", "--run-id", RUN, "--journal-lost", "forward", "--yes") == 0
    hand.same_sessions()
    assert hand.phases("none") is None
