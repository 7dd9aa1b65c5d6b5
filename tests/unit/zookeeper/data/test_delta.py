"""The delta proof over built logs: what is missing, what is allowed, what cannot be proved."""

from __future__ import annotations

import struct

import pytest

from tests.memory_files import BytesDirectory
from tests.unit.zkdata_fixtures import (
    VERSIONS,
    acl_payload,
    build_log,
    close_payload,
    create_payload,
    delete_payload,
    log_from,
    multi_payload,
    payload,
    recorded,
    text,
)  # fmt: skip
from zkmigrate.zookeeper.data.chroot import Chroot
from zkmigrate.zookeeper.data.delta import DeltaResult, delta, required_zxid

OWNER, OTHER = 0x77, 0x99


def open_payload(zxid: int, session: int) -> bytes:
    return payload(zxid, -10, struct.pack(">i", 6000), session, 0)


def judge(payloads: list[bytes], *, after: int, upto: int | None = None, **more: object) -> DeltaResult:
    first = int.from_bytes(payloads[0][12:20], "big")
    directory = BytesDirectory({f"log.{first:x}": log_from(payloads) + b"\0" * 100})
    owners = more.pop("owners", {})
    return delta(directory, chroot=Chroot("/kafka"), after=after, upto=upto, owners=owners, **more)  # type: ignore[arg-type]


def found(result: DeltaResult) -> list[tuple[int, str, str]]:
    return [(f.zxid, f.type, f.path) for f in result.missing]


def test_foreign_changes_are_none_of_ours() -> None:
    payloads = [
        create_payload(5, "/other"),
        create_payload(6, "/kafka2/x"),
        create_payload(7, "/"),
        payload(8, -1, struct.pack(">i", -101)),
    ]
    result = judge(payloads, after=4, upto=8)
    assert result.held is True
    assert (result.records, result.last, result.unproved) == (4, 8, "")


def test_every_change_under_the_chroot_is_named() -> None:
    payloads = [
        create_payload(5, "/kafka/new", session=OTHER),
        acl_payload(6, "/kafka"),
        delete_payload(7, "/kafka/old"),
        payload(8, 5, text("/kafka/x") + struct.pack(">ii", -1, 3)),
    ]
    result = judge(payloads, after=4, upto=8)
    assert result.held is False
    assert found(result) == [
        (5, "create", "/kafka/new"),
        (6, "setACL", "/kafka"),
        (7, "delete", "/kafka/old"),
        (8, "setData", "/kafka/x"),
    ]
    assert result.missing[0].session == OTHER
    assert result.missing[0].time_ms == 1000
    assert not any(change.expiry for change in result.missing)
    assert (result.after, result.upto) == (4, 8)
    assert found(judge(payloads, after=6, upto=8)) == found(result)[2:]


def test_the_deletion_of_the_root_of_the_subtree_or_above_counts() -> None:
    result = delta(
        BytesDirectory(
            {"log.5": log_from([delete_payload(5, "/a/b"), delete_payload(6, "/a"), create_payload(7, "/a")])}
        ),
        chroot=Chroot("/a/b"),
        after=4,
        upto=7,
        owners={},
    )
    assert found(result) == [(5, "delete", "/a/b"), (6, "delete", "/a")]


def test_multis_count_when_they_succeeded_only() -> None:
    creating, check = create_payload(0, "/kafka/m"), payload(0, 13, text("/kafka/c") + struct.pack(">i", 1))
    good = multi_payload(5, creating, delete_payload(0, "/other"), check)
    failed = multi_payload(6, creating, payload(0, -1, struct.pack(">i", -101)))
    result = judge([good, failed], after=4, upto=6)
    assert found(result) == [(5, "create", "/kafka/m")]


def test_an_ephemeral_that_one_multi_creates_and_deletes_is_not_owned() -> None:
    creating = create_payload(0, "/kafka/e", ephemeral=True)
    both = multi_payload(5, creating, delete_payload(0, "/kafka/e"))
    result = judge([both, close_payload(6, OWNER)], after=4, upto=6)
    assert found(result) == [(5, "create", "/kafka/e"), (5, "delete", "/kafka/e")]


@pytest.mark.parametrize("paths", [(), ("/kafka/e", "/other/e")])
def test_a_closing_owner_is_missing_unless_it_is_the_expiry_of_one_living_on_dest(
    paths: tuple[str, ...],
) -> None:
    owners = {OWNER: ["/kafka/e"]}
    expiry = [close_payload(5, OWNER, paths or None)]
    result = judge(expiry, after=4, upto=5, owners=owners)
    assert found(result) == [(5, "closeSession", "/kafka/e")]
    assert result.missing[0].expiry
    result = judge(expiry, after=4, upto=5, owners=owners, living=[OWNER])
    assert result.held is True
    assert [(f.zxid, f.path, f.session) for f in result.allowed] == [(5, "/kafka/e", OWNER)]
    by_client = [close_payload(5, OWNER, paths or None, cxid=9)]
    asked = judge(by_client, after=4, upto=5, owners=owners, living=[OWNER])
    assert asked.held is False
    assert not asked.missing[0].expiry


@pytest.mark.parametrize(("highest", "held"), [(4, True), (5, False), (6, False)])
def test_an_expiry_that_one_dest_host_has_applied_is_missing_on_the_others(highest: int, held: bool) -> None:
    log = [close_payload(5, OWNER), create_payload(6, "/o")]
    result = judge(log, after=4, upto=6, owners={OWNER: ["/kafka/e"]}, living=[OWNER], highest=highest)
    assert result.held is held


def test_an_ephemeral_that_was_deleted_is_not_lost_once_more_when_its_session_ends() -> None:
    log = [delete_payload(5, "/kafka/e"), close_payload(6, OWNER)]
    result = judge(log, after=4, upto=6, owners={OWNER: ["/kafka/e", "/kafka/f"]})
    assert found(result) == [(5, "delete", "/kafka/e"), (6, "closeSession", "/kafka/f")]


def test_an_ephemeral_that_was_changed_is_still_its_owners() -> None:
    changed = payload(5, 5, text("/kafka/e") + struct.pack(">ii", -1, 3), OTHER)
    result = judge([changed, close_payload(6, OWNER)], after=4, upto=6, owners={OWNER: ["/kafka/e"]})
    assert found(result) == [(5, "setData", "/kafka/e"), (6, "closeSession", "/kafka/e")]


def test_a_closing_session_loses_what_it_names_itself_though_nobody_knew_that_it_owns_it() -> None:
    result = judge([close_payload(5, OWNER, ["/kafka/e", "/other/e"])], after=4, upto=5, owners={})
    assert found(result) == [(5, "closeSession", "/kafka/e")]


def test_closing_a_session_that_owns_nothing_here_is_fine() -> None:
    assert judge([close_payload(5, OTHER, ["/other/e"])], after=4, upto=5).held is True


def test_sessions_opened_in_the_delta_are_named_when_they_come_to_own_part() -> None:
    payloads = [
        open_payload(5, OTHER),
        open_payload(6, OWNER),
        create_payload(7, "/kafka/e", ephemeral=True, session=OWNER),
        close_payload(8, OWNER),
        close_payload(9, OTHER),
    ]
    result = judge(payloads, after=4, upto=9)
    assert found(result) == [
        (6, "createSession", ""),
        (7, "create", "/kafka/e"),
        (8, "closeSession", "/kafka/e"),
    ]


def test_a_hole_is_unproved_and_named() -> None:
    result = judge([create_payload(5, "/o"), create_payload(7, "/o")], after=5, upto=7)
    assert result.held is None
    assert "0x7 follows 0x5" in result.unproved
    assert result.unproved.startswith("log.5 at offset")
    purged = judge([create_payload(9, "/o")], after=5, upto=9)
    assert purged.held is None
    assert "continuous from 0x5" in purged.unproved


def test_a_find_beside_a_hole_is_still_a_find() -> None:
    result = judge([create_payload(5, "/o"), create_payload(7, "/kafka/x")], after=5, upto=7)
    assert result.held is False
    assert result.unproved


def test_a_log_that_does_not_reach_the_leaders_zxid_is_unproved() -> None:
    result = judge([create_payload(5, "/o"), create_payload(6, "/o")], after=5, upto=8)
    assert result.held is None
    assert result.unproved == "the log ends at 0x6, but the leader is at 0x8"


def test_dest_not_behind_needs_no_log() -> None:
    result = delta(BytesDirectory({}), chroot=Chroot("/kafka"), after=9, upto=9, owners={})
    assert (result.held, result.records) == (True, 0)


def test_a_log_is_not_read_past_dest_which_is_not_behind() -> None:
    read = judge([create_payload(8, "/o"), create_payload(9, "/o")], after=8, upto=9).cursor
    log = [create_payload(9, "/kafka/x"), create_payload(10, "/kafka/y")]
    assert judge(log, after=9, upto=9, cursor=read) == DeltaResult(9, 9, 9, 0, (), (), "", read)


def test_a_log_without_a_transaction_ends_where_dest_is() -> None:
    result = delta(BytesDirectory({}), chroot=Chroot("/kafka"), after=9, upto=None, owners={})
    assert result == DeltaResult(9, None, 9, 0, (), (), "", result.cursor)


def test_epochs() -> None:
    e1, e2 = 1 << 32, 2 << 32
    log = [create_payload(z, "/o") for z in (e1 + 5, e1 + 6, e2 + 1, e2 + 2)]
    assert judge(log, after=e1 + 6, upto=e2 + 2).held is True
    assert judge(log, after=e1 + 5, upto=e2 + 2).held is True
    assert judge(log, after=e2, upto=e2 + 2).held is True  # elected, nothing proposed: snapshot.<epoch<<32>
    assert judge(log[:2], after=e1 + 6, upto=e2).held is True
    # The old epoch's log is purged: nothing shows what stood between.
    assert judge(log[2:], after=e1 + 5, upto=e2 + 2).held is None
    assert judge(log[2:], after=e2, upto=e2 + 2).held is True
    assert judge([create_payload(e2 + 2, "/o")], after=e2, upto=e2 + 2).held is None


def test_damage_is_unproved_with_its_place() -> None:
    broken = bytearray(build_log(5, 3, "/o"))
    broken[100] ^= 1
    result = delta(
        BytesDirectory({"log.5": bytes(broken)}), chroot=Chroot("/kafka"), after=4, upto=7, owners={}
    )
    assert result.held is None
    assert "log.5 at offset" in result.unproved


def test_a_cursor_reads_only_the_rest() -> None:
    files = {"log.5": build_log(5, 3, "/o") + b"\0" * 90}
    first = delta(BytesDirectory(files), chroot=Chroot("/kafka"), after=4, upto=7, owners={})
    assert first.held is True
    files["log.5"] = build_log(5, 4, "/o")
    files["log.9"] = log_from([create_payload(9, "/kafka/late"), close_payload(10, OWNER)])
    rest = delta(
        BytesDirectory(files),
        chroot=Chroot("/kafka"),
        after=4,
        upto=10,
        owners={OWNER: ["/kafka/e"]},
        cursor=first.cursor,
    )
    assert rest.records == 3
    assert found(rest) == [(9, "create", "/kafka/late"), (10, "closeSession", "/kafka/e")]
    assert rest.unproved == ""
    again = delta(
        BytesDirectory(files), chroot=Chroot("/kafka"), after=4, upto=10, owners={}, cursor=rest.cursor
    )
    assert (again.records, again.held) == (0, True)


@pytest.mark.parametrize("version", VERSIONS)
def test_recorded_logs_show_what_was_done_to_the_chroot(version: str) -> None:
    directory = recorded(version, "standalone")
    everything = delta(directory, chroot=Chroot("/kafka"), after=0, upto=None, owners={})
    assert everything.unproved == ""
    kinds = {finding.type for finding in everything.missing}
    assert {"create", "delete", "setData", "setACL", "createSession", "closeSession"} <= kinds
    paths = {finding.path for finding in everything.missing}
    assert "/kafka/never" not in paths  # a failed multi
    assert "/other/closed" not in paths
    assert "/kafka/brokers/ids/closed" in paths
    closed = {f.path: f.expiry for f in everything.missing if f.type == "closeSession"}
    assert closed["/kafka/brokers/ids/closed"] is False
    assert closed["/kafka/brokers/ids/expired"] is True
    nobody = delta(directory, chroot=Chroot("/nobody"), after=0, upto=everything.last, owners={})
    assert nobody.held is True


def test_no_log_has_to_reach_an_epoch_in_which_nothing_was_proposed() -> None:
    """Of a dest that holds all of the epoch before it, no log of source need hold anything."""
    begun, holds = 2 << 32, 1 << 32 | 9
    assert (required_zxid(begun), required_zxid(begun + 1)) == (None, begun + 1)
    empty = BytesDirectory({})
    assert (
        delta(empty, chroot=Chroot("/kafka"), after=holds, upto=required_zxid(begun), owners={}).held is True
    )
    assert (
        delta(empty, chroot=Chroot("/kafka"), after=holds, upto=required_zxid(begun + 1), owners={}).held
        is None
    )
