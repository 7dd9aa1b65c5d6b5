"""The proofs over disks of a few transactions: which zxid counts, and which sessions live on dest."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from tests.memory_files import BytesDirectory
from tests.unit.zkdata_fixtures import close_payload, create_payload, log_from, snapshot_of
from zkmigrate.zookeeper.data.chroot import Chroot
from zkmigrate.zookeeper.data.histories import Histories
from zkmigrate.zookeeper.data.proofs import (
    Reach,
    Side,
    delta_proof,
    reach_by,
    reach_of,
    tail_proof,
    unread_reach,
)
from zkmigrate.zookeeper.data.sums import Sums

OLD, NEW = 1 << 32, 2 << 32
OWNER, OTHER = 0x11, 0x22
AT = Sums(
    Chroot("/kafka"), OLD + 4, 2, OLD + 3, "/kafka/e", (), {OWNER: ("/kafka/e",)}, {OWNER: 18000}, "", {}, 2
)


def side(name: str, log: Sequence[bytes] = (), **snapshots: bytes) -> Side:
    """A disk with one log and these snapshots, ``s1f`` for ``snapshot.1f``."""
    files = {f"snapshot.{key[1:]}": data for key, data in snapshots.items()}
    if log:
        files[f"log.{int.from_bytes(log[0][12:20], 'big'):x}"] = log_from(log) + bytes(4096)
    return Side(name, BytesDirectory(files), BytesDirectory(files))


SHARED = [create_payload(OLD + n, f"/other/{n}", cversion=n) for n in range(1, 5)]


def apart(own: int, common: int | None = OLD + 4) -> Histories:
    """Logs that hold the same up to ``common``; dest goes on by itself from ``own``."""
    return Histories(common, 4, None, False, own)


# --- how far a disk goes with source -----------------------------------------------------------------------


def test_dests_own_transactions_of_a_later_epoch_are_of_a_cut_over() -> None:
    found = reach_by(apart(NEW + 1), NEW + 1, OLD + 9, side("d"), after_cut=True)
    assert (found.newest, found.zxid, found.unproved) == (NEW + 1, OLD + 4, "")


def test_dests_own_transactions_of_the_same_epoch_are_of_no_cut_over() -> None:
    """Epochs are equal where one log holds transactions that the other lacks in the middle."""
    found = reach_by(apart(OLD + 5), OLD + 12, OLD + 9, side("d"), after_cut=True)
    assert found.zxid == 0
    assert found.unproved.endswith("no cut-over")


def test_without_a_word_of_a_cut_over_dests_own_transactions_prove_nothing() -> None:
    found = reach_by(apart(NEW + 1), NEW + 1, OLD + 9, side("d"), after_cut=False)
    assert found.zxid == 0
    assert found.unproved.endswith("pass --after-cut")


WHOLE = snapshot_of({"/kafka": b""})


@pytest.mark.parametrize(
    ("snapshots", "zxid"),
    [
        ({"s100000003": WHOLE, "s200000001": WHOLE}, OLD + 3),
        ({"s100000003": WHOLE, "s100000007": WHOLE}, OLD + 7),
        ({"s100000003": WHOLE, "s100000007": WHOLE[:-20] + bytes(20)}, OLD + 3),
        ({"s200000001": WHOLE}, 0),
        ({"s100000003": WHOLE[:-20] + bytes(20)}, 0),
    ],
    ids=[
        "of a later epoch",
        "the newest",
        "the newest is damaged",
        "none of that epoch",
        "none that is whole",
    ],
)
def test_where_no_transaction_is_shared_the_newest_whole_snapshot_from_before_the_cut_counts(
    snapshots: dict[str, bytes], zxid: int
) -> None:
    dest = side("d", [create_payload(NEW + 1, "/kafka/new")], **snapshots)
    found = reach_by(apart(NEW + 1, None), NEW + 1, OLD + 9, dest, after_cut=True)
    assert (found.zxid, bool(found.unproved)) == (zxid, not zxid)


def test_logs_that_part_and_agree_again_prove_nothing() -> None:
    source = side("s", SHARED)
    dest = side("d", [SHARED[0], create_payload(OLD + 2, "/kafka/own"), *SHARED[2:]])
    found = reach_of(source, OLD + 4, dest, after_cut=True)
    assert found.zxid == 0
    assert "differ and then agree again" in found.unproved


def test_a_disk_that_cannot_be_read_reaches_nothing() -> None:
    assert unread_reach("no log") == Reach(0, 0, Histories(None, 0, None, False, None), "no log")


# --- tail --------------------------------------------------------------------------------------------------


def reached(zxid: int, own: int | None = None, unproved: str = "") -> Reach:
    return Reach(own or zxid, zxid, Histories(zxid, 4, None, False, own), unproved)


@pytest.mark.parametrize(
    ("first", "second", "held"),
    [
        (reached(OLD + 3), reached(OLD + 4), True),
        (reached(OLD + 2), reached(OLD + 4), False),
        (reached(OLD + 4), reached(OLD + 4, unproved="unread"), None),
        (reached(OLD + 2), reached(OLD + 4, unproved="unread"), False),
    ],
    ids=["all hold it", "one is behind", "one is not known", "one is behind, one not known"],
)
def test_every_disk_must_hold_the_newest_mark_in_the_tree(
    first: Reach, second: Reach, held: bool | None
) -> None:
    assert tail_proof(AT, {"d1": first, "d2": second}).held is held


# --- delta -------------------------------------------------------------------------------------------------

EXPIRY = [*SHARED, close_payload(OLD + 5, OWNER, ["/kafka/e"])]
"""Source, on which the owner's session ended after the cut."""


def delta(
    dests: Sequence[Side], reach: Sequence[Reach], log: Sequence[bytes] = EXPIRY, on_dest: Sequence[int] = ()
) -> bool | None:
    by_name = {dest.name: where for dest, where in zip(dests, reach, strict=True)}
    upto = int.from_bytes(log[-1][12:20], "big")
    return delta_proof(side("s", log), upto, AT, dests, by_name, on_dest=on_dest).held


REFORMED = [*SHARED, create_payload(NEW + 1, "/kafka/new")]
CLOSED = [*SHARED, close_payload(NEW + 1, OWNER, ["/kafka/e"])]
OWN = reached(OLD + 4, NEW + 1)


def test_an_expiry_on_source_of_a_session_that_lives_on_dest_is_none_of_dests() -> None:
    dests = (side("d1", REFORMED), side("d2", REFORMED))
    assert delta(dests, (OWN, OWN)) is True


def test_a_session_that_dest_has_closed_itself_does_not_live_there() -> None:
    assert delta((side("d1", REFORMED), side("d2", CLOSED)), (OWN, OWN)) is False


def test_where_one_dest_host_still_follows_source_nobody_lives_on_dest() -> None:
    """Dest has not gone its own way then: it observes, or one host was left out of it."""
    dests = (side("d1", REFORMED), side("d2", SHARED))
    assert delta(dests, (OWN, reached(OLD + 4))) is False
    assert delta(dests, (OWN, reached(OLD + 4)), on_dest=[OWNER]) is True, "unless that is known otherwise"


def test_an_expiry_that_one_dest_host_holds_is_missing_on_the_other() -> None:
    dests = (side("d1", EXPIRY), side("d2", SHARED))
    assert delta(dests, (reached(OLD + 5), reached(OLD + 4)), on_dest=[OWNER]) is False
    assert delta(dests, (reached(OLD + 4), reached(OLD + 4)), on_dest=[OWNER]) is True


def test_a_disk_of_which_nothing_is_known_leaves_it_open() -> None:
    dests = (side("d1", SHARED), side("d2", SHARED))
    assert delta(dests, (reached(OLD + 4), reached(0, unproved="unread")), SHARED) is None


def test_a_log_that_stops_before_sources_zxid_leaves_it_open() -> None:
    dests = (side("d1", SHARED),)
    source = side("s", SHARED)
    assert delta_proof(source, OLD + 5, AT, dests, {"d1": reached(OLD + 4)}).held is None
    assert delta_proof(source, NEW, AT, dests, {"d1": reached(OLD + 4)}).held is True, "nothing proposed yet"
