"""What `zkmigrate prove` has to find, on the disks of real servers: one that is behind, a client that nobody
knew of, a setACL, a quota, and a dest that joined again with a history of its own and looks healthy."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from kazoo.client import KazooClient
from kazoo.security import make_acl

from tests.servers.ensembles import Member, client, serving
from tests.servers.process import ADDRESS, START_SECONDS
from zkmigrate.lab.readiness import four_letter_word
from zkmigrate.lab.wait import wait_until
from zkmigrate.zookeeper.data.errors import ZkDataError
from zkmigrate.zookeeper.data.reader import FileDirectory
from zkmigrate.zookeeper.data.session import format_session
from zkmigrate.zookeeper.data.tail import newest

VERSION = "3.5.8"


def asked(*words: str) -> tuple[int, dict[str, Any]]:
    argv = [sys.executable, "-m", "zkmigrate", *words, "--json"]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=120, check=False)
    assert done.stdout, done.stderr
    return done.returncode, json.loads(done.stdout)


def proved(what: str, source: Member, dest: Member, *more: str) -> tuple[int, dict[str, Any]]:
    words = ["--source-dir", str(source.data), "--dest-dir", str(dest.data), "--chroot", "/kafka"]
    return asked("prove", what, *words, *more)


def zxid(member: Member) -> int:
    """As the server says it."""
    lines = (four_letter_word(ADDRESS, "srvr", member.port) or "").splitlines()
    return int(next((line for line in lines if line.startswith("Zxid: ")), "Zxid: 0x0")[6:], 16)


def caught_up(dest: Member, source: Member) -> None:
    """Wait until dest shows and holds what source shows: an observer shows what is not on its disk yet."""

    def missing() -> str | None:
        seen, wanted = zxid(dest), zxid(source)
        try:
            held = newest(FileDirectory(dest.data / "version-2")).zxid
        except ZkDataError as error:
            return str(error)
        return None if seen == held == wanted else f"{seen:#x}, on disk {held:#x}, of {wanted:#x}"

    wait_until("dest holds source's newest transaction", missing, START_SECONDS)


def session_of(zk: KazooClient) -> str:
    session: int = zk.client_id[0]
    return format_session(session)


def lacks(found: dict[str, Any]) -> list[tuple[str, str, str]]:
    """What delta names: type, path, session."""
    return [(one["type"], one["path"], one["session"]) for one in found["delta"]["missing"]]


def test_each_way_in_which_dest_lacks_something_is_found(tmp_path: Path) -> None:
    source, dest = Member(1, tmp_path / "source"), Member(2, tmp_path / "dest")
    with serving(VERSION, source, options=["-Dzookeeper.forceSnapshotSync=true"]):
        with client(source) as zk:
            for path in ("/kafka/a", "/kafka/b", "/kafka/c"):
                zk.create(path, b"", makepath=True)
        with serving(VERSION, dest, observes=source):
            caught_up(dest, source)
            held = newest(FileDirectory(dest.data / "version-2")).zxid
        # A server alone elects itself anew where it was not heard in time, as on a busy machine.
        wait_until("source serves", lambda: None if zxid(source) else "no zxid", START_SECONDS)
        code, tail = asked("zxid", "tail", str(dest.data))
        assert (code, tail["zxid"], tail["source"]) == (0, f"{held:#x}", "snapshot")
        code, found = proved("all", source, dest)
        assert (code, found["held"]) == (0, True), found

    with serving(VERSION, source):
        with serving(VERSION, dest, observes=source), client(source) as zk:
            zk.set("/kafka/b", b"for both logs")
            caught_up(dest, source)
        with client(source) as zk:
            zk.set("/kafka/a", b"one more")
            code, found = proved("all", source, dest)
            assert code == 10
            assert (found["tail"]["held"], found["tail"]["path"]) == (False, "/kafka/a")
            assert lacks(found) == [
                ("createSession", "", session_of(zk)),
                ("setData", "/kafka/a", session_of(zk)),
            ]

        with serving(VERSION, dest, observes=source):
            caught_up(dest, source)
        with serving(VERSION, dest), client(dest) as own:
            for number in range(3):
                own.create(f"/kafka/own{number}", b"")
        with client(source) as stray:
            assert proved("all", source, dest, "--after-cut")[0] == 0
            stray.set_acls("/kafka/c", [make_acl("world", "anyone", read=True, admin=True)])
            code, found = proved("all", source, dest, "--after-cut")
            assert (code, found["tail"]["held"], found["digest"]["held"]) == (10, True, True)
            who = session_of(stray)
            assert lacks(found) == [("createSession", "", who), ("setACL", "/kafka/c", who)]
            stray.create("/kafka/stray", b"")
            code, found = proved("delta", source, dest, "--after-cut")
            assert code == 10
            assert lacks(found)[1:] == [("setACL", "/kafka/c", who), ("create", "/kafka/stray", who)]

    # Source elects, and comes to the same epoch as dest had by itself: by number dest is in source's history.
    with serving(VERSION, source):
        with client(source) as zk:
            for number in range(20):
                zk.create(f"/kafka/theirs{number}", b"")
        with serving(VERSION, dest, observes=source):
            caught_up(dest, source)
        code, found = proved("all", source, dest)
        assert code == 10
        kinds = {(d["path"], d["kind"]) for d in found["digest"]["differences"]}
        assert ("/kafka/own0", "only on dest") in kinds
        assert ("/kafka/theirs0", "only on source") in kinds
        assert found["tail"]["held"] is not True


@pytest.mark.parametrize("newer", ["3.5.8", "3.9.5"])
def test_the_limits_of_a_quota_are_proved_and_what_each_server_counts_is_not(
    tmp_path: Path, newer: str
) -> None:
    source, dest = Member(1, tmp_path / "source"), Member(2, tmp_path / "dest")
    quota = "/zookeeper/quota/kafka"
    limits, stats = f"{quota}/zookeeper_limits", f"{quota}/zookeeper_stats"
    with serving(VERSION, source):
        with client(source) as zk:
            for path in ("/kafka/a", limits, stats):
                zk.create(path, b"count=9,bytes=-1", makepath=True)
        with serving(newer, dest, observes=source), client(source) as zk:
            zk.create("/kafka/ephemeral", b"", ephemeral=True)
            caught_up(dest, source)
    with serving(VERSION, source):
        # A server counts again as it starts, now without the ephemeral, and writes no transaction.
        with client(source) as zk:
            assert zk.get(stats)[0] == b"count=2,bytes=16"
            assert zk.get(stats)[1].version == 0
        with serving(newer, dest, observes=source):
            caught_up(dest, source)
        code, found = proved("all", source, dest)
        assert (code, found["held"]) == (0, True), found
        newest_by = (["--dir", str(source.data), "--chroot", "/kafka"], [f"{ADDRESS}:{source.port}/kafka"])
        here, there = (asked("zxid", "subtree", *words)[1] for words in newest_by)
        assert (here["znodes"], here["zxid"]) == (there["znodes"], there["zxid"])
        assert here["znodes"] == 5
        with client(source) as zk:
            zk.set(limits, b"count=3,bytes=-1")
            code, found = proved("delta", source, dest)
            assert (code, lacks(found)[1:]) == (10, [("setData", limits, session_of(zk))])
