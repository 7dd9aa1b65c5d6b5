"""The move on hosts whose ZooKeeper and Kafka systemd does not know: a script starts, stops and shows them.

Source may reconfigure itself, and so may dest from START on: ZooKeeper rewrites zoo.cfg on both sides.
Sessions live long, so that a slow machine has time for the way back.
Each test goes on where the one before left the lab. There is no load here; a loaded one is moved by
`python -m zkmigrate.lab.demo --service commands`.
"""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from tests.lab import tool
from zkmigrate.engine import samples
from zkmigrate.lab import canary_topic, service
from zkmigrate.lab.baseline import baseline
from zkmigrate.lab.failure import LabError
from zkmigrate.lab.inventory import write_inventory
from zkmigrate.lab.lab import Lab
from zkmigrate.lab.readiness import four_letter_word, server_mode
from zkmigrate.lab.render import ZOO_CFG
from zkmigrate.lab.source_state import source_state
from zkmigrate.lab.spec import LabSpec, Role
from zkmigrate.lab.waiting import wait_until

pytestmark = pytest.mark.lab

RUN = "commands"
TURNED_BACK = (7, 9)
DEST = ("dest1", "dest2", "dest3")
BROKERS = ("broker1", "broker2", "broker3")
PROCESS = 'pid=$(cat /run/{0}.pid) && ps -o user:32=,ppid=,sid= -p "$pid" && pgrep -c java'


@dataclass
class Site:
    """A lab without units on dest and brokers, and the operator's directory."""

    lab: Lab
    directory: Path
    source: dict[str, str]
    first: dict[str, list[str]] = field(default_factory=dict)
    observing: dict[str, str] = field(default_factory=dict)
    sessions: dict[str, Any] = field(default_factory=dict)

    def start(self, verb: str, *options: str) -> subprocess.Popen[str]:
        return tool.started(self.lab, self.directory, RUN, verb, *options, new_session=True)

    def tool(self, verb: str, *options: str, answer: str = "") -> int:
        """Run one verb to its end and print what it said; its exit code."""
        return tool.ended(self.start(verb, *options), answer, 300)

    def server(self, host: str) -> tuple[str, ...]:
        """Account, parent and session of the host's one server; no other JVM runs beside it."""
        name = "kafka" if host in BROKERS else "zookeeper"
        *seen, count = self.lab.exec(host, ["sh", "-c", PROCESS.format(name)]).stdout.split()
        assert count == "1"
        return tuple(seen)

    def files(self) -> dict[str, list[str]]:
        """ZooKeeper's files of each dest host, and those of a run."""
        find = ["find", "/etc/zookeeper/conf", "/var/lib/zookeeper", "/var/lib/zkmigrate", "-type", "f"]
        return {name: self.lab.exec(name, find, check=False).stdout.split() for name in DEST}

    def configs(self, host: str) -> dict[str, str]:
        """Every file of a host that has zoo.cfg's name, by what follows that."""
        folder = (self.lab.host(host).root / ZOO_CFG.lstrip("/")).parent
        return {path.name.removeprefix("zoo.cfg"): path.read_text() for path in folder.glob("zoo.cfg*")}

    def modes(self, *wanted: str) -> str | None:
        """The modes of the dest hosts, as long as they are others."""
        with self.lab.operator():
            seen = [server_mode(four_letter_word(self.lab.host(name).address, "srvr")) for name in DEST]
        return None if sorted(map(str, seen)) == sorted(wanted) else str(seen)

    def phases(self, wanted: str) -> str | None:
        """The phases of dest hosts that are in another one; None when none is."""
        found = {}
        for name in DEST:
            path = self.lab.host(name).root / f"var/lib/zkmigrate/{RUN}/phase"
            found[name] = path.read_text().split()[0] if path.exists() else "none"
        return None if set(found.values()) == {wanted} else str(found)

    def acknowledged(self) -> dict[str, int]:
        """How many records of the produce canary each broker acknowledged up to now."""
        lines = (self.directory / "runs" / RUN / samples.NAME).read_text().splitlines()
        return canary_topic.acknowledged(json.loads(line) for line in lines if line)

    def clients_are_back(self) -> None:
        """The brokers' sessions of before are served by dest, with all they own."""

        def missing() -> str | None:
            try:
                now = baseline(self.lab)
            except LabError as error:
                return str(error)
            if now["ephemerals"] != self.sessions["ephemerals"]:
                return "ephemerals differ"
            away = set(self.sessions["sessions"]) - set(now["sessions"])
            return f"sessions {sorted(away)}" if away else None

        wait_until("the sessions of before on dest", missing, 30)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    directory = tmp_path_factory.mktemp("commands")
    with Lab.up(LabSpec(service="commands", reconfig_enabled=True, session_timeout_ms=40_000), print) as lab:
        topic = canary_topic.make(lab)
        write_inventory(lab, directory / "migration.yml", canary_topic=topic)
        site = Site(lab, directory, source_state(lab))
        site.first = site.files()
        yield site


def test_dest_joins_and_rehearses_by_its_script(site: Site) -> None:
    for host in (*DEST, *BROKERS):
        assert site.lab.exec(host, ["systemctl", "cat", "zookeeper", "kafka"], check=False).returncode != 0
    config = site.configs("source1")[""]
    assert "dynamicConfigFile=" in config, "it has taken the server lines out of the config by itself"
    assert "server." not in config
    assert site.tool("run", "--until", "rehearse") == 0
    for host in DEST:
        account, parent, session = site.server(host)
        assert account == "zookeeper"
        assert session == parent, "it runs in the session that its script made"
    wait_until("dest observes again", lambda: site.modes(*["observer"] * 3), 60)
    assert {"", ".bak"} <= set(site.configs("dest1")), "dest had reconfigEnabled in the rehearsal"


def test_back_at_the_beginning_every_file_is_as_before(site: Site) -> None:
    assert site.tool("rollback") == 0
    assert site.files() == site.first


def test_each_broker_is_restarted_once(site: Site) -> None:
    assert site.acknowledged() == {}, "nothing is sent before the roll"
    assert site.tool("run", "--until", "roll", "--skip", "rehearse") == 0
    site.observing = {name: site.configs(name)[""] for name in DEST}
    for text in site.observing.values():
        assert "version=100000000\n" in text
        assert "reconfigEnabled=false\n" in text
    assert set(site.acknowledged()) == set(BROKERS)
    for host in BROKERS:
        assert site.server(host)[0] == "kafka"
        said = site.lab.exec(host, ["cat", "/var/log/kafka.log"]).stdout
        assert said.count("KafkaServer: starting") == 2, "once by the lab, once by the roll"
        assert said.count("Controlled shutdown succeeded") == 1
    site.sessions = baseline(site.lab)


def test_halted_participants_observe_again(site: Site) -> None:
    assert site.tool("run", "--until", "cutover", "--hold-at", "check", answer="back\n") == 0
    site.clients_are_back()


def test_without_the_tool_stopped_hosts_start_their_observer(site: Site) -> None:
    process = site.start("run", "--until", "cutover", "--hold-at", "stop")
    wait_until("every dest host is stopped", lambda: site.phases("stopped"), 60, 0.05)
    os.killpg(process.pid, signal.SIGKILL)
    process.communicate()
    wait_until("dest has gone back by itself", lambda: site.phases("armed"), 30)
    site.clients_are_back()
    assert site.tool("resume") in TURNED_BACK
    assert {name: site.configs(name)[""] for name in DEST} == site.observing
    wait_until("dest observes again", lambda: site.modes(*["observer"] * 3), 60)


def test_the_move_completes_and_leaves_nothing(site: Site) -> None:
    assert site.tool("run") == 0
    site.clients_are_back()
    assert site.modes("follower", "follower", "leader") is None
    for name in DEST:
        there = site.configs(name)
        dynamic = [text for suffix, text in there.items() if re.fullmatch(r"\.dynamic\.[0-9a-f]+", suffix)]
        assert "dynamicConfigFile=" in there[""]
        assert "server." not in there[""]
        assert [sorted(re.findall(r"^server\.(\d+)=", text, re.M)) for text in dynamic] == [
            ["11", "12", "13"]
        ]
    assert source_state(site.lab) == site.source
    for host in (*site.lab.role(Role.DEST), *site.lab.role(Role.BROKER)):
        site.server(host.name)
        left = ["ls", "/usr/local/sbin", "/var/lib/zkmigrate", "/etc/sudoers.d", "/etc/systemd/system"]
        assert "zkm" not in site.lab.exec(host.name, left, check=False).stdout


def watched(site: Site) -> tuple[int, dict[str, str]]:
    """One look of `watch`: its exit code, and each claim that does not hold with what was seen."""
    argv = [sys.executable, "-m", "zkmigrate", "watch", "--once", "--json", "--run-id", RUN]
    done = subprocess.run(
        site.lab.operator_command([*argv, "-i", str(site.directory / "migration.yml")]),
        env={**os.environ, "ZKMIGRATE_RUNS": str(site.directory / "runs")},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    print(done.stdout, done.stderr)
    body = json.loads(done.stdout)
    return done.returncode, {
        f"{f['id']} {f['target']}".strip(): f["seen"] for f in body["findings"] if f["held"] != "yes"
    }


def test_watch_finds_nothing_until_a_broker_is_put_back_on_source(site: Site) -> None:
    """After finalize, with zkm-host gone from every host; then an old file comes back with a restart."""
    assert watched(site) == (0, {})
    lab, chroot = site.lab, site.lab.spec.chroot
    connect = ",".join(f"{h.address}:2181" for h in lab.role(Role.SOURCE)) + chroot
    edit = f"s|^zookeeper.connect=.*|zookeeper.connect={connect}|"
    lab.exec("broker2", ["sed", "-i", edit, "/etc/kafka/server.properties"])
    assert set(watched(site)[1]) == {"watch.config broker2"}, "told before the broker restarts"
    for action in ("stop", "start"):
        lab.exec("broker2", service.control(lab.spec, Role.BROKER, action))
    wanted = {f"watch.{id} broker2" for id in ("config", "left-source", "registered")}
    wanted |= {"watch.strays", "watch.writes"}
    last: dict[str, str] = {}

    def missing() -> str | None:
        nonlocal last
        code, last = watched(site)
        return None if code == 10 and wanted <= set(last) else f"exit code {code}, {sorted(last)}"

    wait_until("watch tells of the broker on source", missing, 90)
    assert set(last) == wanted
    assert f"{chroot}/brokers/ids/2" in last["watch.strays"]
    assert lab.host("broker2").address in last["watch.strays"]
