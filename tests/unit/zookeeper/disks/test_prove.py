"""`zkmigrate prove`: dest's disks beside source's, as directories that a server would have left."""

from __future__ import annotations

import json
import struct
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from tests.unit.sshd import Sshd
from tests.unit.zkdata_fixtures import (
    VERSIONS,
    acl_payload,
    close_payload,
    create_payload,
    log_from,
    payload,
    recorded_files,
    set_payload,
    snapshot_of,
)  # fmt: skip
from zkmigrate.cli.main import cli
from zkmigrate.zookeeper.data.chroot import KAFKA_NAMES
from zkmigrate.zookeeper.data.sums import BUCKETS
from zkmigrate.zookeeper.data.tree import Znode, differences
from zkmigrate.zookeeper.disks.subtree_differences import find_differences

OLD, NEW = 1 << 32, 2 << 32
BROKER, STRAY, OTHER = 0x11, 0x22, 0x33
TREE = {"/kafka": b"", "/other": b""}


def history() -> list[bytes]:
    """Ten transactions of source; the ninth is another tenant's, the tenth opens a session."""
    made = [create_payload(OLD + 1, "/kafka/ids", session=BROKER)]
    made.append(create_payload(OLD + 2, "/kafka/ids/1", ephemeral=True, session=BROKER))
    made += [create_payload(OLD + n, f"/kafka/n{n}", session=BROKER, cversion=n) for n in range(3, 9)]
    made.append(create_payload(OLD + 9, "/other/a", session=OTHER))
    made.append(payload(OLD + 10, -10, struct.pack(">i", 18_000), OTHER))
    return made


def disk(folder: Path, log: Sequence[bytes], *, snapshot: bytes = b"", at: int = OLD) -> Path:
    """A dataDir: a snapshot at the epoch's beginning, and a log behind it."""
    inside = folder / "version-2"
    inside.mkdir(parents=True)
    (inside / f"snapshot.{at:x}").write_bytes(snapshot or snapshot_of(TREE))
    if log:
        first = int.from_bytes(log[0][12:20], "big")
        (inside / f"log.{first:x}").write_bytes(log_from(log) + bytes(4096))
    return folder


def run(what: str, source: Path | str, *dests: Path | str, more: Sequence[str] = ()) -> Result:
    words = ["prove", what, "--source-dir", str(source), "--chroot", "/kafka"]
    for dest in dests:
        words += ["--dest-dir", str(dest)]
    return CliRunner().invoke(cli, [*words, *more])


def proved(what: str, source: Path, *dests: Path, more: Sequence[str] = ()) -> tuple[int, dict[str, Any]]:
    result = run(what, source, *dests, more=(*more, "--json"))
    found: dict[str, Any] = json.loads(result.stdout)
    return result.exit_code, found


def test_a_dest_that_holds_everything_is_proved_three_times(tmp_path: Path) -> None:
    source, dest = disk(tmp_path / "s", history()), disk(tmp_path / "d", history())
    code, found = proved("all", source, dest)
    assert code == 0
    assert found["held"] is True
    assert found["tail"]["needed"] == hex(OLD + 8)
    assert found["tail"]["path"] in ("/kafka/n8", "/kafka")
    assert found["tail"]["dests"] == {
        str(dest): {"newest": hex(OLD + 10), "with_source": hex(OLD + 10), "compared": 10, "unproved": ""}
    }
    assert (found["delta"]["held"], found["delta"]["missing"]) == (True, [])
    (digest,) = found["digest"]["dests"].values()
    assert (digest["held"], digest["zxid"], digest["znodes"]) == (True, hex(OLD + 10), 9)
    assert found["digest"]["differences"] == []
    lines = run("all", source, dest).stdout.splitlines()
    assert [line.split(":")[0] for line in lines if not line.startswith(" ")] == [
        "tail    held", "delta   held", "digest  held"
    ]  # fmt: skip


def test_a_dest_that_was_away_and_was_sent_a_snapshot_is_proved_from_that_snapshot(tmp_path: Path) -> None:
    made = [create_payload(OLD + n, f"/other/n{n}", session=OTHER) for n in range(1, 5)]
    made.append(create_payload(OLD + 5, "/kafka/n5", session=BROKER, cversion=1))
    source, dest = disk(tmp_path / "s", made), disk(tmp_path / "d", [made[0], made[1], made[4]])
    (dest / "version-2" / f"snapshot.{OLD + 4:x}").write_bytes(snapshot_of(TREE))
    code, found = proved("all", source, dest)
    assert (code, found["held"]) == (0, True)
    (digest,) = found["digest"]["dests"].values()
    assert (digest["held"], digest["zxid"], digest["znodes"]) == (True, hex(OLD + 5), 2)


def test_another_tenants_transactions_may_be_missing(tmp_path: Path) -> None:
    source, dest = disk(tmp_path / "s", history()), disk(tmp_path / "d", history()[:8])
    code, found = proved("all", source, dest)
    assert (code, found["held"]) == (0, True)
    assert found["delta"]["records"] == 2


def test_a_dest_one_transaction_behind_is_refused_and_the_transaction_named(tmp_path: Path) -> None:
    source = disk(tmp_path / "s", history())
    good, behind = disk(tmp_path / "d1", history()), disk(tmp_path / "d2", history()[:7])
    code, found = proved("all", source, good, behind)
    assert code == 10
    assert {name: found[name]["held"] for name in ("tail", "delta")} == {"tail": False, "delta": False}
    assert found["tail"]["dests"][str(behind)]["newest"] == hex(OLD + 7)
    assert [(m["zxid"], m["type"], m["path"], m["session"]) for m in found["delta"]["missing"]] == [
        (hex(OLD + 8), "create", "/kafka/n8", "0x11")
    ]
    said = run("all", source, good, behind).stdout
    assert f"missing on dest: {OLD + 8:#x} create /kafka/n8 by 0x11" in said


def test_a_change_of_an_access_list_alone_is_seen_by_delta_and_digest_not_by_the_tail(tmp_path: Path) -> None:
    changed = [*history(), acl_payload(OLD + 11, "/kafka/n3", session=STRAY)]
    source, dest = disk(tmp_path / "s", changed), disk(tmp_path / "d", history())
    code, found = proved("all", source, dest)
    assert code == 10
    assert (found["tail"]["held"], found["delta"]["held"]) == (True, False)
    assert [(m["type"], m["path"], m["session"]) for m in found["delta"]["missing"]] == [
        ("setACL", "/kafka/n3", "0x22")
    ]
    # At one zxid both hold the trees are equal: what is missing came later, and delta has named it.
    assert found["digest"]["held"] is True


def test_a_stray_writer_on_source_behind_the_cut_is_named_with_path_and_session(tmp_path: Path) -> None:
    stray = create_payload(OLD + 11, "/kafka/stray", session=STRAY)
    source = disk(tmp_path / "s", [*history(), stray])
    dest = disk(tmp_path / "d", [*history(), set_payload(NEW + 1, "/kafka/n3", b"own")])
    code, found = proved("all", source, dest)
    assert (code, found["delta"]["held"], found["tail"]["held"]) == (10, None, None)
    assert [(d["path"], d["kind"]) for d in found["digest"]["differences"]] == [
        ("/kafka/stray", "only on source")
    ]
    assert f"dest is at {NEW + 1:#x}" in found["delta"]["unproved"]
    assert found["tail"]["dests"][str(dest)]["unproved"].endswith("if dest was cut over, pass --after-cut")

    code, found = proved("all", source, dest, more=["--after-cut"])
    assert code == 10
    assert [(m["zxid"], m["path"], m["session"]) for m in found["delta"]["missing"]] == [
        (hex(OLD + 11), "/kafka/stray", "0x22")
    ]
    assert found["tail"]["dests"][str(dest)]["with_source"] == hex(OLD + 10)
    assert found["tail"]["held"] is False
    assert found["digest"]["held"] is True


def test_two_sides_that_went_on_under_the_same_numbers_part_where_they_differ(tmp_path: Path) -> None:
    """Source has elected a leader too since the cut-over, so both have transactions of the new epoch."""
    source = disk(tmp_path / "s", [*history(), create_payload(NEW + 1, "/other/b", session=OTHER)])
    dest = disk(
        tmp_path / "d", [*history(), create_payload(NEW + 1, "/kafka/own", session=BROKER, cversion=30)]
    )
    code, found = proved("all", source, dest)
    assert code == 10
    (digest,) = found["digest"]["dests"].values()
    assert (digest["held"], digest["zxid"]) == (False, hex(NEW + 1))
    assert [(d["path"], d["kind"]) for d in found["digest"]["differences"]] == [
        ("/kafka", "pzxid"), ("/kafka/own", "only on dest")
    ]  # fmt: skip
    assert (
        "0x200000001 is create /other/b on source and create /kafka/own on dest"
        in (found["delta"]["unproved"])
    )
    assert proved("all", source, dest, more=["--after-cut"])[0] == 0


def test_a_dest_that_was_not_emptied_and_joined_again_looks_healthy_and_is_caught(tmp_path: Path) -> None:
    """The silent divergence: the same numbers to the end, other transactions in the middle."""
    own = [create_payload(NEW + 1, "/kafka/own", session=BROKER)]
    theirs = [create_payload(NEW + 1, "/kafka/theirs", session=BROKER)]
    since = [create_payload(NEW + 2, "/kafka/since", session=BROKER, cversion=30)]
    source = disk(tmp_path / "s", [*history(), *theirs, *since])
    dest = disk(tmp_path / "d", [*history(), *own, *since])
    for more in ([], ["--after-cut"]):
        code, found = proved("all", source, dest, more=more)
        assert code == 10
        assert found["digest"]["held"] is False
        assert {d["path"]: d["kind"] for d in found["digest"]["differences"]} == {
            "/kafka/own": "only on dest", "/kafka/theirs": "only on source"
        }  # fmt: skip
        assert (found["tail"]["held"], found["delta"]["held"]) == (None, None)
        assert "agree again at 0x200000002" in found["tail"]["dests"][str(dest)]["unproved"]


def test_a_newest_zxid_that_is_only_in_a_snapshots_name_is_read_right(tmp_path: Path) -> None:
    source = disk(tmp_path / "s", history())
    tree = {**TREE, "/kafka/x": b"1"}
    log = [create_payload(OLD + 11, "/kafka/y", session=BROKER)]
    old = disk(tmp_path / "s2", log, snapshot=snapshot_of(tree), at=OLD + 10)
    sent = disk(tmp_path / "d", [], snapshot=snapshot_of(tree), at=OLD + 10)
    code, found = proved("tail", source, sent)
    assert (code, found["tail"]["dests"][str(sent)]["newest"]) == (0, hex(OLD + 10))
    code, found = proved("all", old, sent)
    assert code == 10
    assert [m["path"] for m in found["delta"]["missing"]] == ["/kafka/y"]
    assert found["digest"]["held"] is True


@pytest.mark.parametrize("how", ["open on dest since", "said to be there", "closed on dest too", "nowhere"])
def test_only_a_session_that_lives_on_dest_may_expire_on_source(tmp_path: Path, how: str) -> None:
    expiry = close_payload(OLD + 11, BROKER, ["/kafka/ids/1"])
    source = disk(tmp_path / "s", [*history(), expiry])
    own = [set_payload(NEW + 1, "/kafka/n3", b"own")]
    if how == "closed on dest too":
        own.append(close_payload(NEW + 2, BROKER, ["/kafka/ids/1"]))
    cut = how in ("open on dest since", "closed on dest too")
    dest = disk(tmp_path / "d", [*history(), *(own if cut else [])])
    more = ["--after-cut"] if cut else ["--on-dest", hex(BROKER)] if how == "said to be there" else []
    code, found = proved("delta", source, dest, more=more)
    lives = how in ("open on dest since", "said to be there")
    assert code == (0 if lives else 10)
    assert [m["path"] for m in found["delta"]["allowed" if lives else "missing"]] == ["/kafka/ids/1"]


def test_every_difference_is_in_the_file_and_the_first_are_shown(tmp_path: Path) -> None:
    source = disk(
        tmp_path / "s", [], snapshot=snapshot_of({**TREE, **{f"/kafka/n{n}": b"1" for n in range(50)}})
    )
    dest = disk(
        tmp_path / "d", [], snapshot=snapshot_of({**TREE, **{f"/kafka/n{n}": b"2" for n in range(49)}})
    )
    out = tmp_path / "differences.jsonl"
    result = run("digest", source, dest, more=["--lines", "3", "--out", str(out)])
    assert result.exit_code == 10
    lines = result.stdout.splitlines()
    assert lines[0] == f"digest  NOT HELD: {dest}: 50 of 51 znodes at {OLD:#x} on source differ"
    assert len(lines) == 5
    assert lines[-1] == f"        and 47 more; all are in {out}"
    every = [json.loads(line) for line in out.read_text().splitlines()]
    assert sorted(one["path"] for one in every) == sorted(f"/kafka/n{n}" for n in range(50))
    assert {one["kind"] for one in every} == {"data_sha256", "only on source"}
    assert {one["disk"] for one in every} == {str(dest)}
    (alone,) = [one for one in every if one["kind"] == "only on source"]
    assert (alone["path"], alone["source"], alone["dest"]) == ("/kafka/n49", "", "")
    assert len({one["source"] for one in every if one is not alone}) == 1

    again = run("digest", source, dest, more=["--out", str(out)])
    assert again.exit_code == 2
    assert "the file exists" in again.stderr
    assert len(out.read_text().splitlines()) == 50


def test_what_fits_in_memory_and_what_does_not_give_the_same_differences() -> None:
    def node(n: int) -> Znode:
        return Znode(bytes([n % 251]) * 32, 1, (), n, n, n, 0, 0, 0, 0, 0, 0)

    left = {f"/n{n}": node(n) for n in range(900)}
    right = {f"/n{n}": node(n if n % 3 else n + 1) for n in range(100, 1000)}
    every = frozenset(range(BUCKETS))
    expected = list(differences(left, right))
    assert len(expected) > 400
    for in_memory in (10_000, 200, 7):
        found = list(find_differences(left.items(), right.items(), every, 1800, in_memory=in_memory))
        assert sorted(found, key=lambda one: one.path) == expected


@pytest.mark.parametrize(
    ("side", "make", "said"),
    [
        ("dest", "damaged", "at offset "),
        ("source", "damaged", "at offset "),
        ("source", "hole", "0x100000004 follows 0x100000002"),
        ("dest", "hole", "0x100000004 follows 0x100000002"),
    ],
)
def test_a_disk_that_cannot_be_read_leaves_a_proof_unmade(
    tmp_path: Path, side: str, make: str, said: str
) -> None:
    good = history()
    sides = {"source": disk(tmp_path / "s", good), "dest": disk(tmp_path / "d", good)}
    log = sides[side] / "version-2" / f"log.{OLD + 1:x}"
    if make == "damaged":
        data = bytearray(log.read_bytes())
        data[100] ^= 0xFF
        log.write_bytes(bytes(data))
    else:
        log.write_bytes(log_from([*good[:2], *good[3:]]))
    result = run("all", sides["source"], sides["dest"], more=["--json"])
    assert result.exit_code == 11
    found = json.loads(result.stdout)
    assert found["held"] is None
    told = [found["delta"]["unproved"], *(d["unproved"] for d in found["digest"]["dests"].values())]
    assert any(said in one for one in told), told


@pytest.mark.parametrize(
    ("more", "said"),
    [
        (["--chroot", "kafka"], "is not the path of a znode"),
        (["--chroot", "/kafka/"], "is not the path of a znode"),
        (["--zxid", "soon"], "not a zxid: 'soon'"),
        (["--on-dest", "broker1"], "not a session id"),
        (["--dest-log-dir", "/tmp", "--dest-log-dir", "/tmp"], "1 --dest-dir and 2 --dest-log-dir"),
    ],
)
def test_what_cannot_be_meant_is_refused_with_2(tmp_path: Path, more: list[str], said: str) -> None:
    source, dest = disk(tmp_path / "s", history()), disk(tmp_path / "d", history())
    result = run("all", source, dest, more=more)
    assert result.exit_code == 2
    assert said in result.stderr
    lost = run("all", source, dest, more=["--out", str(tmp_path / "nowhere" / "file")])
    assert (lost.exit_code, "No such file or directory" in lost.stderr) == (2, True)
    twice = run("all", source, dest, dest)
    assert (twice.exit_code, "given twice" in twice.stderr) == (2, True)


def test_the_zxid_zero_is_a_requested_zxid_not_the_newest(tmp_path: Path) -> None:
    source, dest = disk(tmp_path / "s", history()), disk(tmp_path / "d", history())
    code, found = proved("digest", source, dest, more=["--zxid", "0x0"])
    (digest,) = found["digest"]["dests"].values()
    assert (code, digest["held"], digest["zxid"]) == (11, None, "0x0")


def test_a_chroot_that_neither_side_has_is_no_proof(tmp_path: Path) -> None:
    source, dest = disk(tmp_path / "s", history()), disk(tmp_path / "d", history())
    result = run("all", source, dest, more=["--chroot", "/kafak"])
    assert result.exit_code == 2
    assert "has no znode /kafak" in result.stderr


@pytest.mark.parametrize("version", VERSIONS)
def test_directories_of_real_servers_here_and_on_a_host(tmp_path: Path, sshd: Sshd, version: str) -> None:
    folders = []
    for name in ("source", "dest"):
        folder = tmp_path / name / "version-2"
        folder.mkdir(parents=True)
        for file, content in recorded_files(version, "standalone").items():
            (folder / file).write_bytes(content)
        folders.append(folder.parent)
    code, here = proved("all", *folders)
    there = run("all", folders[0], f"127.0.0.1:{folders[1]}", more=[*sshd.options, "--json"])
    assert (code, there.exit_code) == (0, 0), there.output
    distant = json.loads(there.stdout)
    assert distant["digest"]["held"] is True
    (one,), (other,) = here["digest"]["dests"].values(), distant["digest"]["dests"].values()
    assert (one["digest"], one["znodes"]) == (other["digest"], other["znodes"])
    assert one["znodes"] > 3


# --- the chroot /

AT_ROOT = {"/brokers": b"", "/hbase": b"", "/schema": b"", "/zookeeper": b"", "/zookeeper/config": b""}


def shared(writes: Sequence[tuple[str, int]]) -> list[bytes]:
    """Kafka's first transaction at the chroot ``/``, then one for each path, as its session writes them."""
    made = [create_payload(OLD + 1, "/brokers/ids", session=BROKER)]
    return [*made, *(set_payload(OLD + 2 + n, path, b"x") for n, (path, _) in enumerate(writes))]


@pytest.mark.parametrize(
    ("path", "only", "code"),
    [
        ("/hbase", "kafka", 0),
        ("/hbase", "", 10),
        ("/schema", "kafka", 0),
        ("/schema", "kafka,schema", 10),
        ("/brokers", "kafka", 10),
        ("/zookeeper/config", "kafka", 0),
        ("/zookeeper/config", "", 0),
    ],
)
def test_at_the_chroot_slash_only_the_named_znodes_and_never_zookeepers_are_proved(
    tmp_path: Path, path: str, only: str, code: int
) -> None:
    log = shared([(path, OTHER)])
    source = disk(tmp_path / "s", log, snapshot=snapshot_of(AT_ROOT))
    dest = disk(tmp_path / "d", log[:-1], snapshot=snapshot_of(AT_ROOT))
    found, body = proved("delta", source, dest, more=("--chroot", "/", "--only", only))
    assert found == code, body
    assert [one["path"] for one in body["delta"]["missing"]] == ([path] if code else [])
    assert body.get("only", []) == sorted({*KAFKA_NAMES, *only.split(",")} - {"kafka"} if only else [])


def test_at_the_chroot_slash_trees_are_compared_without_other_tenants(tmp_path: Path) -> None:
    log = shared([])
    source = disk(tmp_path / "s", log, snapshot=snapshot_of(AT_ROOT | {"/hbase": b"here"}))
    dest = disk(tmp_path / "d", log, snapshot=snapshot_of(AT_ROOT | {"/hbase": b"there"}))
    assert proved("digest", source, dest, more=("--chroot", "/"))[0] == 10
    code, body = proved("all", source, dest, more=("--chroot", "/", "--only", "kafka"))
    assert (code, body["digest"]["dests"][str(dest)]["znodes"]) == (0, 2)


@pytest.mark.parametrize(
    ("more", "said"),
    [
        (("--chroot", "/kafka", "--only", "kafka"), "--only applies to the chroot /"),
        (("--chroot", "/", "--only", "a,,b"), "is not a list of znodes directly below /"),
        (("--chroot", "/", "--only", "a/b"), "is not a list of znodes directly below /"),
        (("--chroot", "/", "--only", "nobody"), "has no znode /nobody"),
    ],
)
def test_names_that_are_none_are_refused(tmp_path: Path, more: Sequence[str], said: str) -> None:
    source = disk(tmp_path / "s", shared([]), snapshot=snapshot_of(AT_ROOT))
    result = run("all", source, source, more=more)
    assert result.exit_code == 2
    assert said in result.stderr


def test_at_the_chroot_slash_a_znode_that_the_log_creates_directly_below_it_is_compared(
    tmp_path: Path,
) -> None:
    log = [*shared([]), create_payload(OLD + 2, "/admin", session=BROKER), create_payload(OLD + 3, "/tenant")]
    source = disk(tmp_path / "s", log, snapshot=snapshot_of(AT_ROOT))
    dest = disk(tmp_path / "d", log, snapshot=snapshot_of(AT_ROOT))
    code, body = proved("digest", source, dest, more=("--chroot", "/", "--only", "kafka"))
    assert (code, body["digest"]["dests"][str(dest)]["znodes"]) == (0, 3)


# --- quotas

LIMITS, STATS = "/zookeeper/quota/kafka/zookeeper_limits", "/zookeeper/quota/kafka/zookeeper_stats"
QUOTA = {"/zookeeper": b"", "/zookeeper/config": b"", "/zookeeper/quota": b"", "/zookeeper/quota/kafka": b""}
QUOTA |= {LIMITS: b"count=9", STATS: b"count=1"}


@pytest.mark.parametrize(
    ("path", "code"),
    [
        (LIMITS, 10),
        ("/zookeeper/quota/kafka/brokers/zookeeper_limits", 10),
        ("/zookeeper/quota/zookeeper_limits", 10),
        ("/zookeeper/quota/solr/zookeeper_limits", 0),
        ("/zookeeper/quota/kafkaesque/zookeeper_limits", 0),
        ("/zookeeper/config", 0),
    ],
)
@pytest.mark.parametrize("chroot", [["--chroot", "/kafka"], ["--chroot", "/", "--only", "kafka"]])
def test_a_limit_set_on_source_behind_the_cut_is_named(
    tmp_path: Path, path: str, code: int, chroot: Sequence[str]
) -> None:
    name = "kafka" if "--only" not in chroot else "brokers"
    path = path.replace("/kafka/", f"/{name}/")
    tree = {"/kafka": b"", "/brokers": b"", path: b""}
    log = [create_payload(OLD + 1, f"/{name}/ids", session=BROKER), set_payload(OLD + 2, path, b"count=2")]
    source = disk(tmp_path / "s", log, snapshot=snapshot_of(tree))
    dest = disk(tmp_path / "d", log[:1], snapshot=snapshot_of(tree))
    found, body = proved("delta", source, dest, more=chroot)
    assert (found, [one["path"] for one in body["delta"]["missing"]]) == (code, [path] if code else [])


def test_the_limits_of_the_subtree_are_compared_and_what_each_server_counts_is_not(tmp_path: Path) -> None:
    log = [create_payload(OLD + 1, "/kafka/ids", session=BROKER)]
    log.append(set_payload(OLD + 2, STATS, b"count=2"))
    source = disk(tmp_path / "s", log, snapshot=snapshot_of(TREE | QUOTA))
    counted = {STATS: b"count=77", "/zookeeper/config": b"server.1=", "/zookeeper/quota/solr": b""}
    dest = disk(tmp_path / "d", log, snapshot=snapshot_of(TREE | QUOTA | counted))
    code, body = proved("all", source, dest)
    assert (code, body["digest"]["dests"][str(dest)]["znodes"]) == (0, 5)
    other = disk(tmp_path / "o", log, snapshot=snapshot_of(TREE | QUOTA | {LIMITS: b"count=8"}))
    code, body = proved("all", source, other)
    assert (code, body["tail"]["held"], body["delta"]["held"]) == (10, True, True)
    assert [(one["path"], one["kind"]) for one in body["digest"]["differences"]] == [(LIMITS, "data_sha256")]
