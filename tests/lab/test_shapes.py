"""A lab of another shape: five dest hosts, a chroot two levels deep and one slow link."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.lab import no_trace
from tests.lab.tool import asked
from zkmigrate.inventory.inventory import load
from zkmigrate.lab.inventory import write_inventory
from zkmigrate.lab.lab import Lab
from zkmigrate.lab.readiness import four_letter_word, server_mode
from zkmigrate.lab.spec import LabSpec, Role
from zkmigrate.lab.wait import wait_until
from zkmigrate.zookeeper.data.logdir import walk
from zkmigrate.zookeeper.data.reader import FileDirectory
from zkmigrate.zookeeper.data.txn import CreateSessionTxn

pytestmark = pytest.mark.lab

SPEC = LabSpec(dest_count=5, chroot="/a/kafka", bandwidth_kbit={"dest5": 20_000})
FIVE = ("dest1", "dest2", "dest3", "dest4", "dest5")
CONFIG = "etc/zookeeper/conf/zoo.cfg"


def tool(lab: Lab, inventory: Path, verb: str, *options: str) -> tuple[int, str]:
    """Run one verb to its end; its exit code, and what it said."""
    done = asked(lab, inventory, verb, *options, timeout_s=300)
    return done.returncode, done.stdout + done.stderr


def with_hook(inventory: Path, moment: str, text: str) -> None:
    """A hook of one line of sh, added to an inventory."""
    program = inventory.with_name("hook")
    program.write_text(f"#!/bin/sh\n{text}\n")
    program.chmod(0o755)
    inventory.write_text(f"{inventory.read_text()}hooks:\n  {moment}: [{{run: hook}}]\n")


def modes(lab: Lab) -> list[str | None]:
    with lab.operator():
        return [server_mode(four_letter_word(lab.host(name).address, "srvr")) for name in FIVE]


def files(lab: Lab, host: str) -> list[str]:
    """ZooKeeper's files of a dest host, and those of a run."""
    places = ["/etc/zookeeper/conf", "/var/lib/zookeeper", "/var/lib/zkmigrate"]
    return lab.exec(host, ["find", *places, "-type", "f"], check=False).stdout.split()


@pytest.fixture(scope="module")
def lab() -> Iterator[Lab]:
    with Lab.up(SPEC, print) as made:
        yield made


def sessions_opened(lab: Lab) -> list[str]:
    """The sessions that source's log tells of, in order, as they were opened."""
    folder = FileDirectory(lab.host("source1").root / "var/lib/zookeeper/version-2")
    return [
        f"{t.header.session:#x}"
        for t in (r.txn() for r in walk(folder))
        if isinstance(t.body, CreateSessionTxn)
    ]


def begun(lab: Lab, folder: Path) -> Path:
    """The inventory that `init` makes of this lab when it is told one source server and the dest hosts."""
    folder.mkdir()
    path = folder / "migration.yml"
    dest = ",".join(lab.host(name).address for name in FIVE)
    argv = [sys.executable, "-m", "zkmigrate", "init", "--source", lab.host("source2").address]
    argv += ["--dest", dest, "--ssh-user", lab.user, "--ssh-key", str(lab.private_key)]
    argv += ["--known-hosts", str(lab.known_hosts), "--out", str(path)]
    done = subprocess.run(
        lab.operator_command(argv),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    print(done.stdout, done.stderr, path.read_text() if path.exists() else "", sep="\n")
    assert done.returncode == 0
    return path


def test_looking_leaves_no_trace(lab: Lab, tmp_path: Path) -> None:
    """Neither preflight nor plan changes a file, leaves a process or makes a transaction on source."""
    path = write_inventory(lab, tmp_path / "migration.yml")
    no_trace.wait_for_stillness(lab)
    before = no_trace.trace(lab)
    assert len(set(before.zxids.values())) == 1
    assert tool(lab, path, "preflight")[0] == 0
    assert tool(lab, path, "preflight", "--json")[0] == 0
    assert tool(lab, path, "plan")[0] == 0

    def left() -> str | None:
        new = {h: sorted(set(no_trace.processes(lab, h)) - set(of)) for h, of in before.processes.items()}
        return str(new) if any(new.values()) else None

    wait_until("no process of the look left", left, 120)
    after = no_trace.trace(lab)
    assert after.zxids == before.zxids
    changed = {h: sorted(set(of) ^ set(before.files[h])) for h, of in after.files.items()}
    assert "\n".join(f"{h}: {line}" for h, lines in changed.items() for line in lines) == ""

    with lab.zookeeper() as client:
        assert client.exists(lab.spec.chroot)
    assert min(no_trace.zxids(lab).values()) > max(before.zxids.values()), (
        "a session is seen, if there is one"
    )


def test_all_five_join_and_go_back(lab: Lab, tmp_path: Path) -> None:
    assert "tbf" not in lab.exec("dest4", ["tc", "qdisc", "show"]).stdout
    assert "rate 20Mbit" in lab.exec("dest5", ["tc", "qdisc", "show"]).stdout
    wanted = load(write_inventory(lab, tmp_path / "wanted.yml"))
    seen = len(sessions_opened(lab))
    path = begun(lab, tmp_path / "init")
    assert tool(lab, path, "preflight")[0] == 0
    assert sessions_opened(lab)[seen:] == [], "init and preflight open no session on source"
    found = load(path)
    assert (found.source, found.kafka) == (wanted.source, wanted.kafka)
    assert (found.dest.hosts, found.dest.data_dir) == (wanted.dest.hosts, wanted.dest.data_dir)
    first = {name: files(lab, name) for name in FIVE}

    plan, said = tmp_path / "five.plan", tmp_path / "said"
    with_hook(path, "before_wave", f'echo "$ZKMIGRATE_STEP $ZKMIGRATE_TARGETS" >> {said}')
    assert tool(lab, path, "plan", "--out", str(plan))[0] == 0
    run = ("run", "--run-id", "five", "--yes", "--until", "join", "--plan", str(plan))
    assert tool(lab, path, *run)[0] == 0
    waves = said.read_text().splitlines()
    step, *targets = waves[0].split()
    assert (step, sorted(targets)) == ("install.install", ["broker1", "broker2", "broker3", *FIVE])
    assert waves[1:] == [f"join.join {name}" for name in FIVE], "one at a time"
    assert modes(lab) == ["observer"] * 5
    for name in FIVE:
        lines = (lab.host(name).root / CONFIG).read_text().splitlines()
        sids = [line.partition("=")[0] for line in lines if line.startswith("server.")]
        assert sids == [f"server.{n}" for n in (1, 2, 3, 11, 12, 13, 14, 15)]
    with lab.zookeeper(Role.DEST) as client:
        assert sorted(client.get_children("/a/kafka/brokers/ids")) == ["1", "2", "3"]

    no_trace.wait_for_stillness(lab)
    still = no_trace.zxids(lab)
    assert tool(lab, path, "status", "--run-id", "five", "--offline")[0] == 0
    assert tool(lab, path, "status", "--run-id", "five")[0] == 0
    assert no_trace.zxids(lab) == still

    assert tool(lab, path, "rollback", "--run-id", "five", "--yes")[0] == 0
    assert modes(lab) == [None] * 5
    assert {name: files(lab, name) for name in FIVE} == first
    code, refused = tool(lab, path, "run", "--yes", "--plan", str(plan))
    assert code == 4
    assert "run five has applied the plan" in refused
