"""The runbook's shell functions read servers' answers as the tool's parsers do, in every recorded version."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from tests.unit.zkdata_fixtures import RECORDED, VERSIONS
from zkmigrate.move import by_hand
from zkmigrate.runbook.byhand import page
from zkmigrate.zookeeper.data.four_letter_words import parse_cons, parse_dump, parse_mntr, parse_srvr

FUNCTIONS = (Path(page.__file__).parent / "hand.sh").read_text() + by_hand.FUNCTIONS
ROLES = ("leader", "follower", "observer")
CHROOT = "/kafka"


def bash(folder: Path, script: str, stdin: str = "") -> tuple[int, str]:
    """What the functions and then a script say, and the exit code."""
    argv = ["bash", "-c", f"{FUNCTIONS}\n{script}"]
    done = subprocess.run(argv, cwd=folder, input=stdin, capture_output=True, text=True)
    assert done.stderr == ""
    return done.returncode, done.stdout


def answer(version: str, role: str, word: str) -> str:
    return (RECORDED / version / "words" / f"{role}.{word}").read_text()


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("role", ROLES)
def test_owners_are_those_of_the_dump(version: str, role: str, tmp_path: Path) -> None:
    text = answer(version, role, "dump")
    owned = parse_dump(text).ephemerals
    wanted = sorted(f"{s:#x} {p}" for s, paths in owned.items() for p in paths if p.startswith(f"{CHROOT}/"))
    assert wanted
    assert bash(tmp_path, f"CHROOT={CHROOT}; owners", text) == (0, "".join(f"{line}\n" for line in wanted))
    assert bash(tmp_path, "CHROOT=/kafk; owners", text) == (0, "")


@pytest.mark.parametrize("version", VERSIONS)
def test_the_zxid_is_that_of_srvr_and_the_learners_those_of_mntr(version: str, tmp_path: Path) -> None:
    text = answer(version, "leader", "srvr")
    assert int(bash(tmp_path, "zxid_of", text)[1], 16) == parse_srvr(text).zxid
    mntr = tmp_path / "mntr"
    mntr.write_text(answer(version, "leader", "mntr"))
    script = "word() { cat mntr; }; LEADER_AT=x SOURCE_PORT=1; learners"
    assert int(bash(tmp_path, script)[1]) == parse_mntr(mntr.read_text()).learners


@pytest.mark.parametrize("version", VERSIONS)
def test_survey_finds_each_owner_at_home_or_not(version: str, tmp_path: Path) -> None:
    """T is the timeout of the sessions that own something; one that dest does not serve stops the hand."""
    (tmp_path / "dump").write_text(answer(version, "leader", "dump"))
    (tmp_path / "mntr").write_text(answer(version, "leader", "mntr"))
    script = f"""
    source_leader() {{ echo source1=10.0.0.1; }}
    word() {{ cat "$3"; }}
    lists() {{ :; }}
    DEST_COUNT=1 CHROOT={CHROOT} SOURCE_PORT=1 WAY_BACK_S=3 FIND_DOOR_S=3 LEAST_HAND_S=10
    survey
    """
    owners = set(parse_dump((tmp_path / "dump").read_text()).ephemerals)
    timeouts: dict[int, int | None] = {}
    for role in ROLES:
        timeouts |= {c.session: c.timeout_ms for c in parse_cons(answer(version, role, "cons")) if c.session}
    here = {f"{s:#x}": t for s, t in timeouts.items() if s in owners}

    (tmp_path / "cons.source").write_text("")
    (tmp_path / "cons.dest").write_text("".join(_line(s, 40_000) for s in map(hex, owners)))
    rc, said = bash(tmp_path, script)
    assert (rc, said.splitlines()[-1].startswith("OK survey")) == (0, True), said
    kept = (tmp_path / "kept").read_text()
    assert "T_MS=40000\n" in kept
    assert "HAND_S=20\n" in kept
    assert "FENCE_MS=23000\n" in kept

    (tmp_path / "cons.dest").write_text("".join(_line(s, 18_000) for s in map(hex, owners)))
    rc, said = bash(tmp_path, script)
    assert (rc, "STOP: less than 10 s is too little for a hand" in said) == (1, True)

    (tmp_path / "cons.source").write_text(_line(hex(next(iter(owners))), 40_000))
    rc, said = bash(tmp_path, script)
    assert (rc, "STOP: not clients of dest alone:" in said) == (1, True)

    # The lines that this version prints itself are read in the same way.
    for session, timeout in here.items():
        role = next(r for r in ROLES if f"sid={session}," in answer(version, r, "cons"))
        (tmp_path / "cons.dest").write_text(answer(version, role, "cons"))
        sed = f'sed -n "s/.*[(,]sid={session},.*,to=\\([0-9]*\\),.*/\\1/p" cons.dest | head -n 1'
        assert bash(tmp_path, sed)[1].strip() == str(timeout)


def _line(session: str, timeout_ms: int) -> str:
    return (
        f" /10.0.0.21:5[1](queued=0,recved=1,sent=1,sid={session},lop=PING,est=1,to={timeout_ms},lcxid=0x1)\n"
    )


def looked(folder: Path, script: str, *status: str) -> tuple[int, str]:
    """What a script says of dest hosts that stand so."""
    for number, text in enumerate(status, 1):
        (folder / f"dest{number}.status").write_text(text)
    names = " ".join(f"dest{number}" for number in range(1, len(status) + 1))
    site = f"look() {{ :; }}; ALL='{names}' DEST='{names}' DEST_COUNT={len(status)} OPEN_MS=20000 MORE_S=3"
    return bash(folder, f"{site}; {script}")


STARTED, SEALED, SILENT = "phase=started\nserved_s=3.2\n", "phase=sealed\n", "ssh: connect: timed out\n"


@pytest.mark.parametrize(
    ("script", "third", "said"),
    [
        ("none_open", SEALED, "OK none is open: dest1 dest2 dest3"),
        ("none_open", "phase=open\n", "STOP: dest3 is open"),
        ("none_open", SILENT, "STOP: dest3 does not answer; if GO was never sent: without dest3"),
        ("none_open", "phase=checked\nserved_s=15.9\n", "STOP: dest3 opens by itself now"),
        ("none_open", "phase=go\n", "OK none is open: dest1 dest2 dest3"),
        ("without dest3; none_open", SILENT, "STOP: dest1 has its GO: nobody may be left out now"),
        ("without dest3; step cutover.go", SILENT, "STOP: left out: dest3; forward is for everybody"),
        ("without dest3; everybody; none_open", SEALED, "OK none is open: dest1 dest2 dest3"),
    ],
)
def test_nobody_walks_back_while_a_host_may_be_open(
    script: str, third: str, said: str, tmp_path: Path
) -> None:
    rc, text = looked(tmp_path, script, STARTED, SEALED, third)
    assert text.splitlines()[-1] == said
    assert rc == (0 if said.startswith("OK") else 1)


def test_before_go_a_silent_minority_may_be_left_out(tmp_path: Path) -> None:
    one = looked(tmp_path, "without dest3; none_open", SEALED, SEALED, SILENT)
    assert (one[0], one[1].splitlines()[-1]) == (0, "OK none is open: dest1 dest2")
    two = looked(tmp_path, "without dest2; without dest3; none_open", SEALED, SILENT, SILENT)
    assert (two[0], two[1].splitlines()[-1]) == (1, "STOP: only 1 of 3 answer")
    # Nothing is sent to a host that is left out, and nothing is asked of it; after a lost terminal neither.
    script = "ssh() { echo sent; }; at dest3 halt; at dest1 halt; say sent dest1 dest3"
    assert looked(tmp_path, f". ./kept; {script}", SEALED) == (
        0,
        "dest1: sent\ndest1: exit=0\nOK dest1 dest3\n",
    )


@pytest.mark.parametrize(
    ("left", "said"),
    [(("22", "21", "20"), "17000"), (("22", "-", "22"), "-3000"), (("22", "permanent", "22"), "-3000")],
)
def test_the_cut_gets_what_the_hosts_say_is_left(left: tuple[str, ...], said: str, tmp_path: Path) -> None:
    """The shortest lease of all counts, less what the door needs to open after the cut has ended."""
    status = tuple(f"phase=fenced\nfence_timeout_s={seconds}\n" for seconds in left)
    assert looked(tmp_path, "left_ms", *status) == (0, f"{said}\n")
    assert looked(tmp_path, "in_time 5", *status)[0] == (0 if said == "17000" else 1)


def test_z_is_seen_on_a_follower_of_the_first_hour_or_the_hand_stops(tmp_path: Path) -> None:
    def reformed(*servers: str) -> tuple[int, str]:
        for number, text in enumerate(servers, 1):
            mode, zxid = text.split()
            (tmp_path / f"dest{number}.said").write_text(f"Zxid: {zxid}\nMode: {mode}\n")
        script = """
        zkm() { case $4 in srvr) cat "$1.said" ;; mntr) echo zk_synced_followers 2 ;; dump) cat dump; esac; }
        CHROOT=/kafka DEST='dest1 dest2 dest3' DEST_COUNT=3 DEST_PORT=1 Z=0x1000000b0; reformed
        """
        rc, said = bash(tmp_path, script)
        return rc, said.splitlines()[-1]

    assert bash(tmp_path, "reformed")[1].startswith("STOP: Z and the owners of before are not known")
    (tmp_path / "dump").write_text("0x1:\n\t/kafka/brokers/ids/1\n")
    (tmp_path / "owners.before").write_text("0x1 /kafka/brokers/ids/1\n")
    late, first, leader = "follower 0x200000000", "follower 0x1000000b0", "leader 0x200000000"
    assert reformed(late, first, leader)[0] == 0
    assert reformed(late, late, leader) == (
        1,
        "STOP: all followers show dest's own epoch: whether the disks held Z 0x1000000b0 cannot be seen",
    )
    assert reformed(first, "follower 0x1000000af", leader) == (
        1,
        "STOP: dest2 came up with 0x1000000af, below Z 0x1000000b0",
    )
    assert reformed(first, first, first)[1].startswith("STOP: no ensemble of one leader")
    assert reformed(first, leader, leader)[1].startswith("STOP: no ensemble of one leader")
    (tmp_path / "owners.before").write_text("0x2 /kafka/brokers/ids/1\n")
    assert reformed(first, first, leader)[1].startswith("STOP: ephemerals or their owners differ")


def test_a_log_that_begins_in_the_window_is_counted_and_is_no_alarm_by_itself(tmp_path: Path) -> None:
    """ZooKeeper begins a log at any moment, more often with a busy other tenant."""
    logs = tmp_path / "version-2"
    logs.mkdir()

    def written(name: str, content: bytes, at: int) -> None:
        (logs / name).write_bytes(content)
        os.utime(logs / name, (at, at))

    def same(noted: str) -> tuple[int, str]:
        script = f"""
        ask() {{ bash -c "$2"; }}
        source_leader() {{ echo source1=10.0.0.1; }}; source_zxid() {{ echo 0x1000000b5; }}
        LEADER=source1 LEADER_AT=10.0.0.1 Z=0x1000000b0 CHROOT=/kafka SOURCE_LOGS={tmp_path} RECORDS='{noted}'
        {"same_source" if noted else "records"}
        """
        return bash(tmp_path, script)

    written("log.100000001", b"\0/kafka/a\0", 1)
    written("log.10000000a", b"\0/kafka/a\0/kafka\0/kafkaesque\0", 2)
    written("log.1000000a0", b"\0/other\0/kafka/b\0", 3)
    rc, noted = same("")
    assert (rc, noted) == (0, "log.10000000a 3\n"), "of the newest two"
    assert same(noted.strip())[0] == 0
    written("log.1000000b1", b"\0/other/c\0", 4)
    assert same(noted.strip()) == (
        0,
        "OK source has written nothing that names /kafka since DRAIN (log.10000000a 3)\n",
    )
    written("log.1000000b1", b"\0/other/c\0/kafka/d\0", 4)
    rc, said = same(noted.strip())
    assert (rc, said.split(": '")[0]) == (1, "STOP: source's log names the chroot again")
    written("log.1000000b1", b"\0/other/c\0", 4)
    (logs / "log.10000000a").unlink()
    assert same(noted.strip())[0] == 1, "what is gone cannot be counted"


def test_a_broker_that_names_dest_already_is_told_from_a_file_that_changed_too_much(tmp_path: Path) -> None:
    (tmp_path / "broker1.old").write_text("a=1\nzookeeper.connect=dest\n")
    (tmp_path / "broker1.new").write_text("a=1\nzookeeper.connect=dest\n")
    assert bash(tmp_path, "one_line broker1")[1].startswith("STOP: broker1: its file names dest already.")
    (tmp_path / "broker1.old").write_text("a=1\nzookeeper.connect=source\n")
    assert bash(tmp_path, "one_line broker1")[0] == 0
    (tmp_path / "broker1.old").write_text("a=2\nzookeeper.connect=source\n")
    assert bash(tmp_path, "one_line broker1")[1].endswith("look at broker1.old\n")


def test_a_tool_of_kafka_that_cannot_run_is_told(tmp_path: Path) -> None:
    """Under-replicated partitions and a wrong path look alike otherwise."""
    script = """
    ask() { shift; bash -c "$1"; }; KAFKA_TOPICS=/nowhere/kafka-topics.sh
    until_in_sync 0 broker1 10.0.0.31:9092
    """
    rc, said = bash(tmp_path, script)
    assert rc == 1
    assert "/nowhere/kafka-topics.sh" in said


def test_kept_values_survive_the_terminal(tmp_path: Path) -> None:
    assert bash(tmp_path, "keep 'A=a b'; keep A=\"c 'd'\"; echo \"$A\"") == (0, "c 'd'\n")
    assert bash(tmp_path, '. ./kept; echo "$A"') == (0, "c 'd'\n")


def test_a_step_runs_its_boxes_up_to_the_first_stop(tmp_path: Path) -> None:
    (tmp_path / "page.md").write_text(
        "```sh host=dest1,dest2 step=a.b way=forward\necho one\n```\ntext\n"
        "```sh host=dest1 step=a.bb way=forward\necho other\n```\n"
        "```sh host=dest1,dest2 step=a.b way=back\necho undone\n```\n"
        "```sh host=dest12 step=a.b way=forward\nstop two\n```\n"
        "```sh host=dest1 step=a.b way=forward\necho three\n```\n"
    )
    rc, said = bash(tmp_path, "RUNBOOK=page.md; step a.b")
    assert rc == 1
    assert [line for line in said.splitlines() if not line.startswith("--")] == [
        "echo one", "one", "stop two", "STOP: two", "STOPPED in a.b forward, block 2",
    ]  # fmt: skip
    assert "undone" in bash(tmp_path, "RUNBOOK=page.md; back a.b")[1]
    rc, said = bash(tmp_path, "RUNBOOK=page.md; step a.b dest2")
    assert (rc, "three" in said, "two" in said) == (0, False, False)
    assert bash(tmp_path, "RUNBOOK=page.md; step a.c")[0] == 1
