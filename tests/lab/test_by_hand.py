"""The exported runbook, followed by a script on real hosts: the same end as the tool's, and the ways back.

The script has nothing of zkmigrate: the page's own blocks, bash and ssh, from the operator's place. Each call
is a terminal of its own, as if the one before had been lost. The tests are chained.

The hosts are of the less usual kind. A script starts, stops and shows ZooKeeper on dest, and Kafka.
Source may reconfigure itself, and so may dest from START on: ZooKeeper rewrites zoo.cfg on both sides.
A loaded lab of such hosts is moved by `python -m zkmigrate.lab.demo --service commands`.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest

from tests.lab.tool import asked
from zkmigrate.inventory import inventory as inventories
from zkmigrate.kafka.rules.connect import connect_to_dest, with_connect
from zkmigrate.lab import service
from zkmigrate.lab.baseline import baseline
from zkmigrate.lab.failure import LabError
from zkmigrate.lab.inventory import write_inventory
from zkmigrate.lab.lab import Lab
from zkmigrate.lab.readiness import four_letter_word, server_mode
from zkmigrate.lab.render import SERVER_PROPERTIES, ZOO_CFG
from zkmigrate.lab.source_state import source_state
from zkmigrate.lab.spec import LONG_SESSIONS, Role
from zkmigrate.lab.wait import wait_until

pytestmark = pytest.mark.lab

TOOL, RUN = "tool", "hand"
WINDOW = ("fence", "drain", "cut", "stop", "prove", "seal", "go", "serve")
BACK = ("go", "seal", "stop", "cut", "fence", "arm")
DEST = ("dest1", "dest2", "dest3")
BROKERS = ("broker1", "broker2", "broker3")
KAFKA_TOPICS = "java -cp '/opt/kafka/lib/*' kafka.admin.TopicCommand"
PROCESS = 'pid=$(cat /run/{0}.pid) && ps -o user:32=,ppid=,sid= -p "$pid" && pgrep -c java'


@dataclass
class Hand:
    """A lab without units on dest and brokers, the page exported for it, and what was there before."""

    lab: Lab
    directory: Path
    source: dict[str, str]
    properties: dict[str, bytes]
    first: dict[str, list[str]] = field(default_factory=dict)
    sessions: dict[str, Any] = field(default_factory=dict)

    def asked(self, *words: str) -> subprocess.CompletedProcess[str]:
        """One verb of the tool, from the operator's place, to its end."""
        return asked(self.lab, self.directory / "migration.yml", *words, timeout_s=800)

    def zkmigrate(self, *words: str) -> int:
        """The exit code of one verb."""
        return self.asked(*words).returncode

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
            timeout=800,
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

    def files(self) -> dict[str, list[str]]:
        """ZooKeeper's files of each dest host, and those of a run."""
        find = ["find", "/etc/zookeeper/conf", "/var/lib/zookeeper", "/var/lib/zkmigrate", "-type", "f"]
        return {name: self.lab.exec(name, find, check=False).stdout.split() for name in DEST}

    def config(self, host: str) -> dict[str, str]:
        """Every file of a host that has zoo.cfg's name, by what follows that."""
        folder = (self.lab.host(host).root / ZOO_CFG.lstrip("/")).parent
        return {path.name.removeprefix("zoo.cfg"): path.read_text() for path in folder.glob("zoo.cfg*")}

    def configs(self) -> dict[str, str]:
        """zoo.cfg of each dest host."""
        return {name: self.config(name)[""] for name in DEST}

    def modes(self, *wanted: str) -> str | None:
        """The modes of the dest hosts, as long as they are others."""
        with self.lab.operator():
            seen = [server_mode(four_letter_word(self.lab.host(name).address, "srvr")) for name in DEST]
        return None if sorted(map(str, seen)) == sorted(wanted) else str(seen)

    def phases(self, wanted: str) -> str | None:
        """The phases of the dest hosts, as long as one is in another."""
        found = {}
        for name in DEST:
            path = self.lab.host(name).root / f"var/lib/zkmigrate/{RUN}/phase"
            found[name] = path.read_text().split()[0] if path.exists() else "none"
        return None if set(found.values()) == {wanted} else str(found)

    def server(self, host: str) -> tuple[str, ...]:
        """Account, parent and session of the host's one server; no other JVM runs beside it."""
        name = "kafka" if host in BROKERS else "zookeeper"
        *seen, count = self.lab.exec(host, ["sh", "-c", PROCESS.format(name)]).stdout.split()
        assert count == "1"
        return tuple(seen)

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

        wait_until("the sessions of before on dest", missing, 180)


@pytest.fixture(scope="module")
def hand(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Hand]:
    directory = tmp_path_factory.mktemp("hand")
    with Lab.up(replace(LONG_SESSIONS, service="commands", reconfig_enabled=True), print) as lab:
        write_inventory(lab, directory / "migration.yml")
        made = Hand(lab, directory, source_state(lab), {})
        made.properties = {name: made.file(name, SERVER_PROPERTIES) for name in BROKERS}
        made.first = made.files()
        yield made


def test_the_tool_rehearses_with_a_script_and_goes_all_the_way_back(hand: Hand) -> None:
    for host in (*DEST, *BROKERS):
        assert hand.lab.exec(host, ["systemctl", "cat", "zookeeper", "kafka"], check=False).returncode != 0
    config = hand.config("source1")[""]
    assert "dynamicConfigFile=" in config, "it has taken the server lines out of the config by itself"
    assert "server." not in config
    assert hand.zkmigrate("run", "--run-id", TOOL, "--yes", "--until", "rehearse") == 0
    for host in DEST:
        account, parent, session = hand.server(host)
        assert account == "zookeeper"
        assert session == parent, "it runs in the session that its script made"
    wait_until("dest observes again", lambda: hand.modes(*["observer"] * 3), 180)
    assert {"", ".bak"} <= set(hand.config("dest1")), "dest had reconfigEnabled in the rehearsal"
    assert hand.zkmigrate("rollback", "--run-id", TOOL, "--yes") == 0
    assert hand.files() == hand.first


def test_the_page_is_exported_and_dest_joins(hand: Hand) -> None:
    assert hand.zkmigrate("runbook", "--run-id", RUN, "--out", str(hand.directory / "runbook.md")) == 0
    hand.follow("step preflight.preflight", "step install.install", "step hold.lock", "step join.join")
    assert "OK N is 2" in hand.follow("step hold.steal")
    for text in hand.configs().values():
        assert "version=100000000\n" in text
        assert "reconfigEnabled=false\n" in text


def test_rehearsed_to_the_check_and_all_the_way_back(hand: Hand) -> None:
    observing = hand.configs()
    hand.steps("rehearse", "arm", "survey", *WINDOW, "check")
    assert hand.configs() != observing
    hand.back("rehearse", *BACK)
    assert hand.configs() == observing
    assert hand.phases("idle") is None


def test_the_roll_writes_what_the_tool_writes_and_restarts_each_broker_once(hand: Hand) -> None:
    hand.steps("roll", "roll")
    inventory = inventories.load(hand.directory / "migration.yml")
    wanted = connect_to_dest(inventory)
    for name, before in hand.properties.items():
        assert hand.file(name, SERVER_PROPERTIES) == with_connect(before, wanted)
        assert hand.server(name)[0] == "kafka"
        said = hand.lab.exec(name, ["cat", "/var/log/kafka.log"]).stdout
        assert said.count("KafkaServer: starting") == 2, "once by the lab, once by the roll"
        assert said.count("Controlled shutdown succeeded") == 1
    hand.sessions = baseline(hand.lab)


def test_a_hand_that_falls_still_costs_no_session(hand: Hand) -> None:
    """Stopped hosts start their observer by its own command, once the lease has ended."""
    observing = hand.configs()
    said = hand.steps("cutover", "arm", "survey", "fence", "drain", "cut", "stop")
    assert "T = 60000 ms" in said
    wait_until("dest has gone back by itself", lambda: hand.phases("armed"), 120)
    hand.same_sessions()
    assert hand.configs() == observing
    wait_until("dest observes again", lambda: hand.modes(*["observer"] * 3), 180)


def test_the_cutover_ends_as_the_tools(hand: Hand) -> None:
    hand.steps("cutover", "survey", *WINDOW, "check", "open")
    hand.lab.wait_for_quorum(Role.DEST)
    hand.same_sessions()
    for name in DEST:
        there = hand.config(name)
        dynamic = [text for suffix, text in there.items() if re.fullmatch(r"\.dynamic\.[0-9a-f]+", suffix)]
        assert "dynamicConfigFile=" in there[""]
        assert "server." not in there[""]
        (members,) = [sorted(re.findall(r"^server\.(\d+)=", text, re.M)) for text in dynamic]
        assert members == ["11", "12", "13"]
    assert hand.phases("open") is None
    hand.follow("still_owned", "step hold.release")
    assert source_state(hand.lab) == hand.source


def test_the_tool_takes_over_verifies_and_leaves_nothing(hand: Hand) -> None:
    assert hand.zkmigrate("resume", "--run-id", RUN, "--journal-lost", "forward", "--yes") == 0
    hand.same_sessions()
    assert hand.phases("none") is None
    for host in (*DEST, *BROKERS):
        hand.server(host)
        left = ["ls", "/usr/local/sbin", "/var/lib/zkmigrate", "/etc/sudoers.d", "/etc/systemd/system"]
        assert "zkm" not in hand.lab.exec(host, left, check=False).stdout


def watched(hand: Hand) -> tuple[int, dict[str, str]]:
    """One look after the move: its exit code, and each claim that does not hold with what was seen."""
    done = hand.asked("preflight", "--stage", "after", "--json")
    body = json.loads(done.stdout)
    return done.returncode, {
        f["id"] if f["id"] == "watch.writes" else f"{f['id']} {f['target']}".strip(): f["seen"]
        for f in body["findings"]
        if f["held"] != "yes"
    }


def test_nothing_is_found_until_a_broker_is_put_back_on_source(hand: Hand) -> None:
    """After finalize, with zkm-host gone from every host; then an old file comes back with a restart."""
    assert watched(hand) == (0, {})
    lab, chroot = hand.lab, hand.lab.spec.chroot
    connect = ",".join(f"{h.address}:2181" for h in lab.role(Role.SOURCE)) + chroot
    edit = f"s|^zookeeper.connect=.*|zookeeper.connect={connect}|"
    lab.exec("broker2", ["sed", "-i", edit, "/etc/kafka/server.properties"])
    assert set(watched(hand)[1]) == {"watch.config broker2"}, "told before the broker restarts"
    for action in ("stop", "start"):
        lab.exec("broker2", service.control_command(lab.spec, Role.BROKER, action))
    wanted = {f"watch.{id} broker2" for id in ("config", "left-source", "registered")}
    wanted |= {"watch.strays", "watch.writes"}
    last: dict[str, str] = {}

    def missing() -> str | None:
        nonlocal last
        code, last = watched(hand)
        return None if code == 3 and wanted <= set(last) else f"exit code {code}, {sorted(last)}"

    wait_until("the look names the broker on source", missing, 180)
    assert set(last) == wanted
    assert f"{chroot}/brokers/ids/2" in last["watch.strays"]
    assert lab.host("broker2").address in last["watch.strays"]
