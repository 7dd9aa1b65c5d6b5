"""`zkmigrate collect`: what comes of files that grow, tear, are purged, taken back or damaged, from here and
from a host."""

from __future__ import annotations

import gzip
import hashlib
import json
import os
import random
import resource
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from tests.unit import sshd as daemon
from tests.unit.sshd import Sshd
from tests.unit.zkdata_fixtures import (
    VERSIONS,
    build_log,
    create_payload,
    log_from,
    recorded_files,
    snapshot_of,
)
from zkmigrate.cli.main import cli
from zkmigrate.inventory.discovery.draft import SshDraft
from zkmigrate.inventory.discovery.init_request import transport_ssh
from zkmigrate.runbook.engine.clock import Interrupt, RealClock
from zkmigrate.zookeeper.data.logdir import walk
from zkmigrate.zookeeper.data.reader import FileDirectory
from zkmigrate.zookeeper.data.txnlog import MAX_RECORD
from zkmigrate.zookeeper.disks.collect import collect
from zkmigrate.zookeeper.disks.collect_outcome import Request, Server
from zkmigrate.zookeeper.disks.location import Place, open_disks
from zkmigrate.zookeeper.disks.manifest import locked_manifest

PADDING = bytes(70_000)
TREE = snapshot_of({"/kafka": b"x"})


class Side:
    """A dataDir at the source, and the folder that is filled from it."""

    def __init__(self, folder: Path) -> None:
        self.data = folder / "data"
        self.out = folder / "out"
        self.place = str(self.data)
        self.reach: tuple[str, ...] = ()
        (self.data / "version-2").mkdir(parents=True)

    def put(self, name: str, content: bytes) -> None:
        (self.data / "version-2" / name).write_bytes(content)

    def drop(self, name: str) -> None:
        (self.data / "version-2" / name).unlink()

    def here(self, name: str) -> bytes:
        return (self.out / "zk1" / "version-2" / name).read_bytes()

    def names(self) -> list[str]:
        return sorted(path.name for path in (self.out / "zk1" / "version-2").iterdir())

    def run(self, *words: str, code: int = 0) -> dict[str, Any]:
        result = run(f"zk1={self.place}", "--out", str(self.out), "--json", *self.reach, *words)
        assert result.exit_code == code, result.output
        body: dict[str, Any] = json.loads(result.stdout)
        return body

    def state(self, name: str) -> str:
        files = json.loads((self.out / "manifest.json").read_text())["files"]
        return str({one["name"]: one["state"] for one in files}[name])

    def verify(self) -> tuple[int, str]:
        result = run("--verify", str(self.out))
        return result.exit_code, result.output


@pytest.fixture
def side(tmp_path: Path) -> Side:
    return Side(tmp_path)


def run(*words: str) -> Result:
    return CliRunner().invoke(cli, ["collect", *words])


def came(body: dict[str, Any]) -> list[str]:
    return [one["name"] for one in body["taken"]]


def noted(body: dict[str, Any]) -> dict[str, str]:
    return {one["name"]: one["what"] for one in body["notes"]}


@pytest.mark.parametrize("version", VERSIONS)
def test_what_a_server_left_comes_whole_and_without_padding_from_here_and_from_a_host(
    tmp_path: Path, sshd: Sshd, version: str
) -> None:
    data = tmp_path / "données" / "version-2"
    data.mkdir(parents=True)
    for name, content in recorded_files(version, "standalone").items():
        (data / name).write_bytes(content)
    for out, place, more in (
        (tmp_path / "near", f"zk1={data}", ()),
        (tmp_path / "far", f"zk1=127.0.0.1:{data.parent}", sshd.options),
    ):
        result = run(place, "--out", str(out), "--newest-snapshots", "9", "--json", *more)
        assert result.exit_code == 0, result.output
        kept = out / "zk1" / "version-2"
        taken, whole = list(walk(FileDirectory(kept))), list(walk(FileDirectory(data)))
        assert taken == whole
        last: dict[str, int] = {record.file: record.end for record in whole}
        for one in json.loads((out / "manifest.json").read_text())["files"]:
            content = (kept / one["name"]).read_bytes()
            source = (data / one["name"]).read_bytes()
            assert source.startswith(content)
            assert len(content) == one["bytes"] == last.get(one["name"], len(source))
            assert hashlib.sha256(content).hexdigest() == one["sha256"]
            newest = one["name"] == whole[-1].file
            assert one["growing"] is newest
            assert one["cut"] is None or one["cut"]["offset"] == len(content)
            if newest:
                assert one["cut"]["zxid"] == f"0x{whole[-1].zxid:x}"
        assert run("--verify", str(out)).exit_code == 0
        again = json.loads(run(place, "--out", str(out), "--json", *more).stdout)
        assert came(again) == []


def test_a_second_run_takes_new_files_and_the_new_bytes_of_the_log_that_grew(side: Side) -> None:
    side.put("snapshot.0", TREE)
    side.put("log.1", build_log(1, 20_000) + PADDING)
    first = side.run()
    assert came(first) == ["snapshot.0", "log.1"]
    assert side.state("log.1") == "growing"
    side.put("log.1", build_log(1, 20_010) + PADDING)
    side.put("log.4e2b", build_log(0x4E2B, 3) + PADDING)
    second = side.run()
    assert came(second) == ["log.1", "log.4e2b"]
    assert side.here("log.1") == build_log(1, 20_010)
    assert second["bytes_read"] < first["bytes_read"] / 3
    assert (side.state("log.1"), side.state("log.4e2b")) == ("whole", "growing")
    assert second["servers"]["zk1"]["newest"] == "0x4e2d"
    assert side.verify()[0] == 0


def test_a_finished_file_is_not_read_again(side: Side) -> None:
    side.put("log.1", build_log(1, 50))
    side.put("log.33", build_log(0x33, 5))
    side.run()
    side.put("log.1", bytes(len(build_log(1, 50))))  # nobody sees that it is another one now
    body = side.run()
    assert (noted(body), came(body)) == ({}, [])
    assert side.here("log.1") == build_log(1, 50)


@pytest.mark.parametrize("cut", [1, 13, 40])
def test_a_record_that_is_not_whole_yet_comes_when_it_is(side: Side, cut: int) -> None:
    side.put("log.1", build_log(1, 5)[:-cut])
    assert side.run()["servers"]["zk1"]["newest"] == "0x4"
    assert side.here("log.1") == build_log(1, 4)
    side.put("log.1", build_log(1, 5) + PADDING)
    assert noted(side.run()) == {}
    assert side.here("log.1") == build_log(1, 5)


def test_a_torn_end_of_an_older_log_is_left_out_and_said(side: Side) -> None:
    side.put("log.1", build_log(1, 5)[:-3])
    side.put("log.5", build_log(5, 2))
    assert noted(side.run()) == {"log.1": "torn"}
    assert side.here("log.1") == build_log(1, 4)
    assert came(side.run()) == []


def test_damage_keeps_what_stands_before_it_and_fails(side: Side) -> None:
    log = bytearray(build_log(1, 50))
    whole = len(build_log(1, 20))
    log[whole + 20] ^= 1
    side.put("log.1", bytes(log))
    side.put("log.33", build_log(0x33, 2))
    assert noted(side.run(code=8)) == {"log.1": "damaged"}
    assert side.here("log.1") == build_log(1, 20)
    assert side.state("log.1") == "damaged"
    assert side.here("log.33") == build_log(0x33, 2)
    assert noted(side.run(code=8)) == {"log.1": "damaged"}
    side.put("log.1", build_log(1, 50))
    assert noted(side.run()) == {}
    assert side.here("log.1") == build_log(1, 50)


def test_files_without_a_record_are_not_taken(side: Side) -> None:
    side.put("log.1", build_log(1, 5))
    side.put("log.6", b"")
    assert noted(side.run()) == {"log.6": "left"}
    assert side.names() == ["log.1"]
    side.put("log.6", build_log(6, 0) + PADDING)
    assert noted(side.run()) == {"log.6": "left"}
    side.put("log.6", b"PK\x03\x04 something else, longer than a header")
    assert noted(side.run(code=8)) == {"log.6": "damaged"}
    assert side.names() == ["log.1"]


def test_a_log_that_was_cut_by_its_server_is_taken_again_and_what_came_after_it_set_aside(side: Side) -> None:
    side.put("log.1", build_log(1, 40))
    side.put("log.29", build_log(0x29, 7))
    side.run()
    side.put("log.1", build_log(1, 30))  # as TRUNC does: shorter, and later logs gone
    side.drop("log.29")
    side.put("log.100000001", build_log((1 << 32) | 1, 4))
    body = side.run()
    assert noted(body) == {"log.1": "again", "log.29": "aside"}
    assert side.here("log.1") == build_log(1, 30)
    assert side.names() == ["log.1", "log.100000001", "log.29.truncated"]
    assert [r.zxid for r in walk(FileDirectory(side.out / "zk1/version-2"))][29:31] == [30, (1 << 32) | 1]
    assert side.verify()[0] == 0
    assert came(side.run()) == []


def test_a_prefix_that_is_another_one_now_is_taken_again(side: Side) -> None:
    side.put("log.1", build_log(1, 10))
    side.run()
    other = log_from(create_payload(zxid, f"/other{zxid}") for zxid in range(1, 30))
    side.put("log.1", other)
    assert noted(side.run()) == {"log.1": "again"}
    assert side.here("log.1") == other


def test_a_copy_that_was_changed_here_is_found_and_taken_again(side: Side) -> None:
    side.put("log.1", build_log(1, 10))
    side.put("snapshot.0", TREE)
    side.run()
    assert side.verify() == (
        0,
        f"2 files, {len(build_log(1, 10) + TREE):,} bytes in the manifest: the folder matches\n",
    )
    kept = side.out / "zk1" / "version-2" / "log.1"
    flipped = bytearray(kept.read_bytes())
    flipped[100] ^= 0x10
    kept.write_bytes(flipped)
    code, said = side.verify()
    assert code == 10
    assert "zk1 log.1: its SHA-256 differs from the manifest" in said
    side.put("log.1", build_log(1, 12))
    assert noted(side.run()) == {"log.1": "again"}
    assert side.here("log.1") == build_log(1, 12)
    kept.write_bytes(build_log(1, 3))
    (side.out / "zk1/version-2/snapshot.0").unlink()
    (side.out / "zk1/version-2/log.77").write_bytes(b"")
    code, said = side.verify()
    assert code == 10
    assert [line.split(": ")[0] for line in said.splitlines()[:3]] == [
        "zk1 log.1",
        "zk1 snapshot.0",
        "zk1 log.77",
    ]
    assert noted(side.run()) == {"log.1": "again", "snapshot.0": "again"}
    assert (side.here("log.1"), side.here("snapshot.0")) == (build_log(1, 12), TREE)


def test_a_purge_removes_nothing_here_and_a_log_whose_end_is_lost_is_said(side: Side) -> None:
    side.put("log.1", build_log(1, 5))
    side.put("log.6", build_log(6, 5))
    side.run()
    side.drop("log.1")
    assert noted(side.run()) == {}
    side.drop("log.6")
    side.put("log.f", build_log(15, 2))
    assert noted(side.run()) == {"log.6": "purged"}
    assert side.names() == ["log.1", "log.6", "log.f"]
    assert side.state("log.6") == "cut"
    assert noted(side.run()) == {}
    assert side.verify()[0] == 0


def test_a_purge_that_is_under_way_is_not_taken_for_transactions_taken_back(side: Side) -> None:
    for first in (1, 6, 11):
        side.put(f"log.{first:x}", build_log(first, 5) + PADDING)
    side.run()
    side.drop("log.6")
    side.drop("log.b")
    side.put("log.10", build_log(16, 2))
    assert noted(side.run()) == {"log.b": "purged"}
    assert side.names() == ["log.1", "log.10", "log.6", "log.b"]


@pytest.mark.parametrize("had", [0, 100])
def test_what_was_begun_of_a_log_that_is_purged_stays(side: Side, had: int) -> None:
    side.put("log.1", build_log(1, had))
    side.run()
    (side.out / "zk1" / "version-2" / "log.1.part").write_bytes(build_log(1, 200)[:-9])
    (side.out / "zk1" / "version-2" / "snapshot.0.part").write_bytes(TREE[:50])
    side.drop("log.1")
    side.put("log.12d", build_log(301, 2))
    assert noted(side.run()) == {"log.1": "purged"}
    assert side.here("log.1") == build_log(1, 199)
    assert (side.state("log.1"), side.names()) == ("cut", ["log.1", "log.12d"])
    assert side.verify()[0] == 0


@pytest.mark.parametrize("host", ["", "127.0.0.1"])
def test_a_file_that_is_purged_between_the_listing_and_the_reading_is_said(
    side: Side, sshd: Sshd, host: str
) -> None:
    side.put("log.1", build_log(1, 5))
    side.put("log.6", build_log(6, 5))
    listed: list[str] = []

    def stop() -> bool:
        """Asked before each read: the purge comes with the first."""
        if not listed:
            listed.append("now")
            side.drop("log.1")
        return False

    request = Request(side.out, (Server("zk1", Place(host, str(side.data))),), 1, 0, MAX_RECORD)
    given = SshDraft("", sshd.port, str(sshd.folder / "user_key"), str(sshd.folder / "known_hosts"), "", "")
    with open_disks(transport_ssh(given)) as disks:
        outcome = collect(disks, request, RealClock(Interrupt()), stop, lambda _line: None)
    assert outcome.code == 0
    assert [(note.name, note.what) for note in outcome.notes] == [("log.1", "purged")]
    assert side.names() == ["log.6"]


def test_only_the_newest_whole_snapshots_come_and_one_that_is_being_written_waits(side: Side) -> None:
    side.put("log.1", build_log(1, 5))
    large = snapshot_of({f"/kafka{n}": random.Random(n).randbytes(900) for n in range(600)})
    for name in ("snapshot.1", "snapshot.2", "snapshot.3"):
        side.put(name, TREE)
    side.put("snapshot.4", large[:-5])
    body = side.run("--newest-snapshots", "2")
    assert noted(body) == {"snapshot.4": "left"}
    assert came(body) == ["snapshot.3", "snapshot.2", "log.1"]
    side.put("snapshot.4", large)
    body = side.run("--newest-snapshots", "2")
    assert (came(body), noted(body)) == (["snapshot.4"], {})
    assert side.here("snapshot.4") == large
    body = side.run("--newest-snapshots", "2")
    assert (came(body), noted(body)) == ([], {})


def test_a_compressed_snapshot_that_is_cut_is_proved_by_its_seal(side: Side) -> None:
    packed = gzip.compress(snapshot_of({f"/n{n}": random.Random(n).randbytes(500) for n in range(900)}))
    side.put("snapshot.5.gz", packed[:300_000])
    side.put("log.1", build_log(1, 5))
    assert noted(side.run()) == {"snapshot.5.gz": "left"}
    assert side.names() == ["log.1", "snapshot.5.gz.part"]
    again = side.run()
    assert (noted(again), again["bytes_read"] < 100_000) == ({"snapshot.5.gz": "left"}, True)
    side.put("snapshot.5.gz", packed)
    body = side.run()
    assert (came(body), body["bytes_read"] < 280_000) == (["snapshot.5.gz"], True)
    assert side.here("snapshot.5.gz") == packed
    other = gzip.compress(TREE)
    side.put("snapshot.6.gz", packed[:1000])
    side.run()
    side.put("snapshot.6.gz", other)
    assert came(side.run()) == ["snapshot.6.gz"]
    assert side.here("snapshot.6.gz") == other


def begin(side: Side, *words: str) -> subprocess.Popen[bytes]:
    argv = [sys.executable, "-m", "zkmigrate", "collect", f"zk1={side.place}", "--out", str(side.out)]
    argv += [*side.reach, *words]
    return subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE)


def grown(process: subprocess.Popen[bytes], path: Path, size: int) -> None:
    """Wait until a file has so many bytes."""
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline and process.poll() is None:
        if path.exists() and path.stat().st_size >= size:
            return
        time.sleep(0.02)
    raise AssertionError(f"{path.name} did not come: {process.communicate()}")


@pytest.mark.parametrize(
    ("how", "name"),
    [
        (signal.SIGKILL, "log.1"),
        (signal.SIGKILL, "snapshot.4"),
        (signal.SIGINT, "log.1"),
        (signal.SIGTERM, "snapshot.4"),
    ],
)
def test_a_run_that_is_ended_in_the_middle_is_gone_on_with(
    side: Side, sshd: Sshd, how: signal.Signals, name: str
) -> None:
    side.place, side.reach = f"127.0.0.1:{side.data}", sshd.options
    log = build_log(1, 30_000)
    side.put("log.1", build_log(1, 4_000) + PADDING)
    side.run()
    tree = snapshot_of({f"/n{n}": random.Random(n).randbytes(900) for n in range(2_000)})
    side.put("log.1", log + PADDING)
    if name == "snapshot.4":
        side.put(name, tree)
    part = side.out / "zk1" / "version-2" / f"{name}.part"
    process = begin(side, "--rate", "600k")
    grown(process, part, 1_000_000)
    process.send_signal(how)
    out, err = process.communicate(timeout=60)
    assert process.returncode == (-9 if how is signal.SIGKILL else 130), err
    if how is not signal.SIGKILL:
        assert b"Next: run the same command again to continue" in out
    assert side.here("log.1") == build_log(1, 4_000)
    assert side.names() == ["log.1", f"{name}.part"]
    code, said = side.verify()
    assert (code, f"zk1 {name}.part: not complete" in said) == (0, True)
    had = part.stat().st_size
    body = side.run()
    assert side.here("log.1") == log
    everything = len(log) - len(build_log(1, 4_000)) + (len(tree) if name == "snapshot.4" else 0)
    assert body["bytes_read"] < everything - had + 600_000 + len(build_log(1, 4_000))
    if name == "snapshot.4":
        assert side.here(name) == tree
    assert not [one for one in side.names() if one.endswith(".part")]
    assert side.verify()[0] == 0


def test_a_part_that_a_crash_of_the_machine_left_with_garbage_counts_as_far_as_it_is_whole(
    side: Side,
) -> None:
    side.put("log.1", build_log(1, 300))
    folder = side.out / "zk1" / "version-2"
    side.run()
    (folder / "log.1").unlink()
    for left in (build_log(1, 200)[:-7], build_log(1, 200) + bytes(5000), build_log(1, 200) + b"x" * 99, b""):
        (folder / "log.1.part").write_bytes(left)
        (folder / "log.1").unlink(missing_ok=True)
        side.run()
        assert side.here("log.1") == build_log(1, 300)


def test_a_crash_between_the_manifest_and_the_name_is_finished_by_the_next_run(side: Side) -> None:
    side.put("log.1", build_log(1, 300))
    side.put("log.12d", build_log(301, 3))
    side.run()
    folder = side.out / "zk1" / "version-2"
    (folder / "log.1").rename(folder / "log.1.part")
    (folder / "log.1").write_bytes(build_log(1, 200))
    code, said = side.verify()
    assert (code, "Next: run collect again" in said) == (10, True)
    assert (came(side.run()), noted(side.run())) == ([], {})
    assert side.here("log.1") == build_log(1, 300)
    assert side.verify()[0] == 0


def test_a_host_that_is_lost_leaves_what_came_and_the_other_servers_their_turn(
    tmp_path: Path, side: Side, sshd: Sshd
) -> None:
    (tmp_path / "daemon").mkdir()
    log = build_log(1, 30_000)
    side.put("log.1", log)
    other = tmp_path / "other"
    other.mkdir()
    (other / "log.1").write_bytes(build_log(1, 5))
    side.place = f"127.0.0.1:{side.data}"
    part = side.out / "zk1" / "version-2" / "log.1.part"
    with daemon.running(tmp_path / "daemon") as lost:
        lost.pin()
        process = begin(side, "--rate", "60k", f"zk2={other}", *lost.options)
        grown(process, part, 50_000)
        found = subprocess.run(["pgrep", "-P", str(lost.process.pid)], capture_output=True, check=True)
        lost.process.kill()
        for child in found.stdout.split():
            os.kill(int(child), signal.SIGKILL)
        out, err = process.communicate(timeout=60)
    assert process.returncode == 8, err
    assert b"zk1: 127.0.0.1: " in out
    assert (side.out / "zk2/version-2/log.1").read_bytes() == build_log(1, 5)
    had = part.stat().st_size
    side.reach = sshd.options
    assert side.run()["bytes_read"] < len(log) - had + 300_000
    assert side.here("log.1") == log


def test_a_disk_without_room_is_no_loss(side: Side) -> None:
    side.put("log.1", build_log(1, 3_000))
    limit = 100_000

    def narrow() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))

    argv = [sys.executable, "-m", "zkmigrate", "collect", f"zk1={side.data}", "--out", str(side.out)]
    done = subprocess.run(argv, preexec_fn=narrow, capture_output=True, text=True, check=False)
    assert (done.returncode, "Next: fix it" in done.stderr) == (8, True)
    assert side.names() == ["log.1.part"]
    assert side.verify()[0] == 0
    assert side.run()["bytes_read"] < len(build_log(1, 3_000)) - limit + 1_000
    assert side.here("log.1") == build_log(1, 3_000)


def test_a_path_that_is_no_text_is_kept_as_it_is(tmp_path: Path) -> None:
    data = tmp_path / os.fsdecode(b"da\xffta")
    data.mkdir()
    (data / "log.1").write_bytes(build_log(1, 5))
    words = (f"zk1={data}", "--out", str(tmp_path / "out"), "--json")
    assert came(json.loads(run(*words).stdout)) == ["log.1"]
    assert came(json.loads(run(*words).stdout)) == []
    assert run("--verify", str(tmp_path / "out")).exit_code == 0


def test_it_needs_nothing_of_the_data_pipeline() -> None:
    code = (
        "import sys, zkmigrate.zookeeper.disks.collect\n"
        "print({'numpy', 'pyspark', 'pyarrow'} & set(sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "set()\n"


def test_logs_may_lie_in_a_directory_of_their_own(tmp_path: Path) -> None:
    data, log, out = tmp_path / "data", tmp_path / "log", tmp_path / "out"
    for place in (data, log):
        (place / "version-2").mkdir(parents=True)
    (data / "version-2" / "snapshot.0").write_bytes(TREE)
    (log / "version-2" / "log.1").write_bytes(build_log(1, 5))
    result = run(str(data), "--log-dir", str(log), "--out", str(out))
    assert result.exit_code == 0, result.output
    assert sorted(path.name for path in (out / "data/version-2").iterdir()) == ["log.1", "snapshot.0"]
    sources = {one["name"]: one["source"] for one in json.loads((out / "manifest.json").read_text())["files"]}
    assert sources == {"log.1": str(log), "snapshot.0": str(data)}
    hint = run(str(data), "--out", str(tmp_path / "second"))
    assert (hint.exit_code, "name it with --log-dir" in hint.output) == (0, True)


def test_only_logs_of_the_last_hours_or_behind_a_zxid(side: Side) -> None:
    def at(first: int, count: int, hour: int) -> bytes:
        def payload(zxid: int) -> bytes:
            made = bytearray(create_payload(zxid, f"/n{zxid}"))
            made[20:28] = (hour * 3_600_000 + zxid).to_bytes(8, "big")
            return bytes(made)

        return log_from(payload(zxid) for zxid in range(first, first + count))

    for n, name in enumerate(("log.1", "log.b", "log.15", "log.1f")):
        side.put(name, at(1 + 10 * n, 10, 10 * n))
    assert came(side.run("--since", "0x18")) == ["log.15", "log.1f"]
    assert came(side.run("--since", "5")) == []
    assert came(side.run("--since", "11")) == ["log.b"]
    assert came(side.run()) == ["log.1"]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("zk1={data}",), "--out DIR"),
        (("--out", "{out}"), "Needed: "),
        (("zk1={data}", "zk1={data}", "--out", "{out}"), "two servers have the name zk1"),
        (("a b:{data}", "--out", "{out}"), "Needed: NAME="),
        (("zk1={data}", "--log-dir", "zk2={data}", "--out", "{out}"), "not the name of a server"),
        (("zk1={data}", "--out", "{out}", "--rate", "fast"), "--rate fast"),
        (("zk1={data}", "--out", "{out}", "--since", "yesterday"), "--since yesterday"),
        (("zk1={data}", "--out", "{out}", "--since", "-3"), "--since -3"),
        (("zk1={data}", "--out", "{out}", "--since", "0xzz"), "--since 0xzz"),
        (("zk1={data}", "--out", "{data}"), "is not empty and has no manifest.json"),
        (("zk1={data}", "--out", "{data}/version-2/log.1"), "is a file"),
        (("zk1={data}", "--verify", "{data}"), "takes only --json"),
        (("--verify", "{data}"), "has no manifest.json"),
    ],
)
def test_what_was_not_asked_for_rightly_gets_one_line(side: Side, words: tuple[str, ...], said: str) -> None:
    side.put("log.1", build_log(1, 5))
    result = run(*(word.format(data=side.data, out=side.out) for word in words))
    assert result.exit_code == 2, result.output
    (line,) = result.stderr.splitlines()
    assert said in line


def test_a_name_stays_with_its_place_and_a_folder_with_one_process(side: Side, tmp_path: Path) -> None:
    side.put("log.1", build_log(1, 5))
    side.run()
    other = Side(tmp_path / "other")
    other.put("log.1", build_log(1, 5))
    moved = run(f"zk1={other.data}", "--out", str(side.out))
    assert (moved.exit_code, f"has copies from {side.data}" in moved.stderr) == (2, True)
    assert run(f"zk1={side.data}/version-2/", "--out", str(side.out)).exit_code == 0
    with locked_manifest(side.out):
        held = run(f"zk1={side.data}", "--out", str(side.out))
    assert (held.exit_code, "another process is copying into" in held.stderr) == (5, True)
    (side.out / "manifest.json").write_text('{"format": 1, "files": [3]}')
    broken = run(f"zk1={side.data}", "--out", str(side.out))
    assert (broken.exit_code, "cannot be read" in broken.stderr) == (8, True)


def test_a_server_that_is_not_there_does_not_keep_the_others(side: Side, sshd: Sshd) -> None:
    side.put("log.1", build_log(1, 5))
    gone = f"zk2=127.0.0.1:{side.data}/none"
    result = run(gone, f"zk1={side.data}", "--out", str(side.out), "--json", *sshd.options)
    assert result.exit_code == 8
    assert side.here("log.1") == build_log(1, 5)
    (note,) = json.loads(result.stdout)["notes"]
    assert (note["server"], note["what"]) == ("zk2", "unreached")
    assert "No such file" in note["why"]


@pytest.mark.parametrize("server", ["..", ".", "", "a/b", "/etc", "a\n", "\x1b[2J"])
@pytest.mark.parametrize("place", ["files", "left", "servers"])
def test_a_manifest_cannot_lead_out_of_its_folder(side: Side, place: str, server: str) -> None:
    side.put("log.1", build_log(1, 5))
    side.run()
    path = side.out / "manifest.json"
    body = json.loads(path.read_text())
    if place == "files":
        body["files"][0]["server"] = server
    elif place == "left":
        body["left"] = [{"server": server, "name": "log.1", "source_size": 1, "why": "x"}]
    else:
        body["servers"][server] = "host:/data"
    path.write_text(json.dumps(body))
    code, said = side.verify()
    assert (code, "is not a server's name" in said) == (8, True), said
