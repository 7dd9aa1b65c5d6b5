"""`zkmigrate replay list`: what a way back would lose, from directories that servers would have left."""

from __future__ import annotations

import json
import struct
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from tests.unit.zkdata_fixtures import (
    acl_payload,
    close_payload,
    create_payload,
    log_from,
    payload,
    set_payload,
    snapshot_of,
    text,
)  # fmt: skip
from tests.unit.zookeeper.disks.test_prove import BROKER, NEW, OLD, OTHER, STRAY, disk, history
from zkmigrate.cli.main import cli
from zkmigrate.move.facts.replay import ReplayDisks, ReplayScope
from zkmigrate.move.facts.replay_disks import Reader
from zkmigrate.zookeeper.data.chroot import Chroot
from zkmigrate.zookeeper.data.replay import Mark
from zkmigrate.zookeeper.data.zxid import format_zxid
from zkmigrate.zookeeper.disks.location import Disks, Place, open_side

CUT = OLD + 10
EXPIRED = close_payload(OLD + 11, BROKER, ["/kafka/ids/1"])
"""On source the broker's session ends, since its client is with dest."""

OWN = (
    create_payload(NEW + 1, "/kafka/new", session=STRAY),
    set_payload(NEW + 2, "/kafka/n3", b"changed", version=1),
    close_payload(NEW + 3, BROKER, ["/kafka/ids/1"]),
    create_payload(NEW + 4, "/other/b", session=OTHER),
)


def run(verb: str, source: Path | str, *dests: Path | str, more: Sequence[str] = ()) -> Result:
    words = ["replay", verb, "--source-dir", str(source), "--chroot", "/kafka"]
    for dest in dests:
        words += ["--dest-dir", str(dest)]
    return CliRunner().invoke(cli, [*words, *more])


def listed(source: Path, *dests: Path, more: Sequence[str] = ()) -> tuple[int, dict[str, Any]]:
    result = run("list", source, *dests, more=(*more, "--json"))
    found: dict[str, Any] = json.loads(result.stdout)
    return result.exit_code, found


def failing(found: dict[str, Any]) -> list[str]:
    return [c["id"] for c in found["conditions"] if c["held"] is not True]


def left(found: ReplayScope) -> list[str]:
    """What does not hold, beside dest at rest."""
    return [c.id for c in found.conditions if not c.held and c.id != "dest.at-rest"]


@pytest.fixture
def source(tmp_path: Path) -> Path:
    return disk(tmp_path / "source", [*history(), EXPIRED])


def test_what_dest_did_is_listed_and_what_leaves_nothing_is_counted(source: Path, tmp_path: Path) -> None:
    dests = [disk(tmp_path / f"dest{n}", [*history(), *OWN]) for n in (1, 2)]
    code, found = listed(source, *dests)
    assert (code, found["possible"], failing(found)) == (0, True, [])
    assert (found["cut"], found["upto"]) == (format_zxid(CUT), format_zxid(NEW + 4))
    assert (found["under"], found["passed"]) == (3, 1)
    assert found["replay"] == {
        "transactions": 2, "znodes": 2, "create": 1, "setData": 1, "delete": 0, "setACL": 0, "count": 0
    }  # fmt: skip
    assert [(t["zxid"], t["requests"][0]["path"]) for t in found["transactions"]] == [
        (format_zxid(NEW + 1), "/kafka/new"),
        (format_zxid(NEW + 2), "/kafka/n3"),
    ]
    said = run("list", source, *dests).stdout
    assert "to replay: 2 transactions, on 2 znodes: 1 create, 1 setData" in said
    assert f"{format_zxid(NEW + 1)} by {STRAY:#x} Create /kafka/new" in said
    assert said.endswith("2 transactions can be replayed. Nothing was written.\n")


def test_more_transactions_than_lines_are_counted(source: Path, tmp_path: Path) -> None:
    dest = disk(tmp_path / "dest", [*history(), *OWN])
    said = run("list", source, dest, more=("--lines", "1")).stdout
    assert "/kafka/new" in said
    assert "and 1 transactions more" in said


@pytest.mark.parametrize(
    ("since", "own", "ids"),
    [
        ([create_payload(OLD + 12, "/kafka/stray", session=STRAY)], [], ["source.untouched"]),
        ([acl_payload(OLD + 12, "/kafka")], [], ["source.untouched"]),
        (None, [], ["source.at-rest"]),
        ([], [create_payload(NEW + 5, "/kafka/e", ephemeral=True, session=STRAY)], ["dest.at-rest"]),
        ([], [set_payload(NEW + 5, "/kafka/n4", b"", version=4)], ["replay.possible"]),
    ],
    ids=["stray", "acl", "alive", "brokers-up", "does-not-fit"],
)
def test_what_stands_against_it_is_named(
    since: list[bytes] | None, own: list[bytes], ids: list[str], tmp_path: Path
) -> None:
    source = disk(tmp_path / "source", history() if since is None else [*history(), EXPIRED, *since])
    code, found = listed(source, disk(tmp_path / "dest", [*history(), *OWN, *own]))
    assert (code, found["possible"], failing(found)) == (10, False, ids)
    said = run("list", source, tmp_path / "dest").stdout
    assert "The transactions cannot be replayed now. Nothing was written." in said
    assert f"{ids[0]:18} DOES NOT HOLD" in said


KAFKA = {
    "/kafka/brokers": b"",
    "/kafka/brokers/ids": b"",
    "/kafka/brokers/topics": b"",
    "/kafka/brokers/topics/t": b'{"partitions": {"0": [1, 2]}}',
    "/kafka/brokers/topics/t/partitions": b"",
    "/kafka/brokers/topics/t/partitions/0": b"",
    "/kafka/brokers/topics/t/partitions/0/state": b'{"isr": [1, 2]}',
}


def short(zxid: int, version: int, time_ms: int) -> bytes:
    """Replica 2 leaves the ISR."""
    path, data = "/kafka/brokers/topics/t/partitions/0/state", b'{"isr": [1]}'
    body = text(path) + struct.pack(">i", len(data)) + data + struct.pack(">i", version)
    return payload(zxid, 5, body, time_ms=time_ms)


@pytest.mark.parametrize(
    ("left_s", "held", "why"),
    [
        (0, False, "1 of 1 partitions lack a replica: t-0; 1 brokers up"),
        (299, True, "1 partitions; the first replica fell out of sync 299.0 s before the first broker left"),
        (301, False, "1 partitions; the first replica fell out of sync 301.0 s before the first broker left"),
    ],
    ids=["brokers-up", "stopped", "behind-before"],
)
def test_replicas_that_were_out_of_sync_before_the_brokers_stopped_are_named(
    left_s: int, held: bool, why: str, tmp_path: Path
) -> None:
    tree = snapshot_of({"/kafka": b"", **KAFKA, "/other": b""})
    registered = create_payload(OLD + 2, "/kafka/brokers/ids/1", ephemeral=True, session=BROKER)
    before = [create_payload(OLD + 1, "/kafka/x"), registered]
    source = disk(
        tmp_path / "source",
        [*before, close_payload(OLD + 3, BROKER, ["/kafka/brokers/ids/1"])],
        snapshot=tree,
    )
    own = [create_payload(NEW + 1, "/kafka/new"), short(NEW + 2, 1, 1_000_000)]
    if left_s:
        gone = struct.pack(">i", 1) + text("/kafka/brokers/ids/1")
        own.append(payload(NEW + 3, -11, gone, BROKER, time_ms=1_000_000 + left_s * 1000))
    code, found = listed(source, disk(tmp_path / "dest", [*before, *own], snapshot=tree))
    told = {c["id"]: (c["held"], c["seen"]) for c in found["conditions"]}
    assert told["dest.replicated"] == (held, why)
    assert code == (0 if held else 10)
    assert ("dest.at-rest" in failing(found)) is not bool(left_s)


def test_a_subtree_that_is_not_kafkas_is_not_asked_for_replicas(source: Path, tmp_path: Path) -> None:
    _, found = listed(source, disk(tmp_path / "dest", [*history(), *OWN]))
    assert "dest.replicated" not in {c["id"] for c in found["conditions"]}


def test_a_subtree_that_was_not_the_same_at_the_cut_is_named(tmp_path: Path) -> None:
    unlike = snapshot_of({"/kafka": b"other data", "/other": b""})
    source = disk(tmp_path / "source", [*history(), EXPIRED], snapshot=unlike)
    code, found = listed(source, disk(tmp_path / "dest", [*history(), *OWN]))
    assert (code, failing(found)) == (10, ["cut.same"])


def test_disks_of_dest_that_parted_are_named_and_the_newest_is_read(source: Path, tmp_path: Path) -> None:
    newest = disk(tmp_path / "dest1", [*history(), *OWN])
    other = disk(tmp_path / "dest2", [*history(), create_payload(NEW + 1, "/kafka/unlike")])
    code, found = listed(source, other, newest)
    assert (code, found["dest"], failing(found)) == (10, str(newest), ["dest.one-history"])


def test_a_hole_in_sources_log_is_named(tmp_path: Path) -> None:
    holed = [*history(), EXPIRED, create_payload(OLD + 14, "/other/c")]
    result = run("list", disk(tmp_path / "source", holed), disk(tmp_path / "dest", [*history(), *OWN]))
    assert result.exit_code == 8
    assert f"{format_zxid(OLD + 14)} follows {format_zxid(OLD + 11)}" in result.output


def test_a_dest_that_was_not_cut_over_is_refused(source: Path, tmp_path: Path) -> None:
    result = run("list", source, disk(tmp_path / "dest", history()))
    assert result.exit_code == 2
    assert "Needed: disks of a dest that was cut over" in result.output


def test_a_chroot_that_is_not_there_is_refused(source: Path, tmp_path: Path) -> None:
    dest = disk(tmp_path / "dest", [*history(), *OWN])
    words = ["replay", "list", "--source-dir", str(source), "--dest-dir", str(dest), "--chroot", "/kafak"]
    result = CliRunner().invoke(cli, words)
    assert (result.exit_code, "holds no znode /kafak" in result.output) == (2, True)


def test_a_directory_that_is_named_twice_is_refused(source: Path, tmp_path: Path) -> None:
    dest = disk(tmp_path / "dest", [*history(), *OWN])
    result = run("list", source, dest, dest)
    assert (result.exit_code, "given twice" in result.output) == (2, True)


def looking(source: Path, dest: Path) -> ReplayDisks:
    disks = Disks(None)
    return ReplayDisks(
        lambda: [open_side(disks, Place("", str(folder)), None) for folder in (source, dest)],
        Chroot("/kafka"),
    )


def test_a_log_that_source_has_begun_meanwhile_and_a_dest_that_went_on_are_seen(
    source: Path, tmp_path: Path
) -> None:
    dest = disk(tmp_path / "dest", [*history(), *OWN])
    disks = looking(source, dest)
    found = disks.examine()
    name = found.dest
    marker = create_payload(OLD + 12, "/kafka/zkmigrate-replay")
    assert disks.is_of("/kafka/zkmigrate-replay", OLD + 12) is None
    (source / "version-2" / f"log.{OLD + 12:x}").write_bytes(log_from([marker]) + bytes(64))
    assert disks.is_of("/kafka/zkmigrate-replay", OLD + 12) is True
    assert disks.is_of("/kafka/zkmigrate-replay", OLD + 11) is False
    assert disks.compare(name, NEW + 4, OLD + 13).held is None
    same = disks.compare(name, NEW + 4, OLD + 12)
    assert same.held is False
    assert "3 of " in same.seen
    for unlike in ("/kafka (cversion)", "/kafka/n3 (data_sha256)", "/kafka/new (only right)"):
        assert unlike in same.seen
    (dest / "version-2" / f"log.{NEW + 5:x}").write_bytes(log_from([create_payload(NEW + 5, "/x")]))
    same = disks.compare(name, NEW + 4, OLD + 12)
    assert (same.held, "dest has advanced to" in same.seen) == (False, True)


def many(count: int) -> list[bytes]:
    """So many writes of dest to one znode."""
    return [set_payload(NEW + n, "/kafka/n3", b"%d" % n, version=n) for n in range(1, count + 1)]


def test_a_batch_is_read_alone_and_has_the_fingerprint_of_all_before_it(source: Path, tmp_path: Path) -> None:
    dest = disk(tmp_path / "dest", [*history(), *many(250)])
    disks = looking(source, dest)
    found = disks.examine()
    assert [(batch.upto, batch.count) for batch in found.batches] == [
        (NEW + 100, 100), (NEW + 200, 100), (NEW + 250, 50),
    ]  # fmt: skip
    side = disks.dests[0]
    reader = Reader(Chroot("/kafka"), lambda _host: (side.data, side.logs))
    for batch, done in zip(found.batches, (found.cut, NEW + 100, NEW + 200), strict=True):
        read = reader.read("dest", found.cut, done, batch.upto)
        assert [again.zxid for again, _ in read] == list(range(max(done, NEW) + 1, batch.upto + 1))
        assert read[-1][1] == batch.fingerprint
    began_again = reader.read("dest", found.cut, NEW + 150, NEW + 200)
    assert (len(began_again), began_again[-1][1]) == (50, found.batches[1].fingerprint)


def test_a_replay_that_has_begun_is_gone_on_with_only_where_dest_did_the_same(
    source: Path, tmp_path: Path
) -> None:
    dest = disk(tmp_path / "dest", [*history(), *many(7)])
    side = looking(source, dest).dests[0]
    cut = looking(source, dest).examine().cut
    reader = Reader(Chroot("/kafka"), lambda _host: (side.data, side.logs))
    begun = Mark(cut, reader.begin("dest", cut), "Ada")
    done = reader.read("dest", cut, cut, NEW + 3)[-1]
    ids = {
        (mark.done, mark.fingerprint): left(looking(source, dest).examine(mark))
        for mark in (
            begun,
            replace(begun, done=NEW + 3, fingerprint=done[1]),
            replace(begun, done=NEW + 3),
            replace(begun, done=NEW + 9, fingerprint=done[1]),
        )
    }
    assert list(ids.values()) == [[], [], ["replay.mark"], ["replay.mark"]]
    stray = create_payload(OLD + 12, "/kafka/stray", session=STRAY)
    (source / "version-2" / f"log.{OLD + 12:x}").write_bytes(log_from([stray]) + bytes(64))
    assert left(looking(source, dest).examine()) == ["source.untouched"]
    assert left(looking(source, dest).examine(begun)) == []
