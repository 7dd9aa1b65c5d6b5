"""Dest's own transactions as requests: what is done again, what is passed over, what is refused."""

from __future__ import annotations

import struct
from collections.abc import Sequence

import pytest

from tests.memory_files import BytesDirectory
from tests.unit.zkdata_fixtures import (
    OPEN_ACL,
    acl_payload,
    close_payload,
    create_payload,
    delete_payload,
    log_from,
    multi_payload,
    payload,
    set_payload,
    text,
)  # fmt: skip
from zkmigrate.zookeeper.data.chroot import Chroot
from zkmigrate.zookeeper.data.errors import CorruptError
from zkmigrate.zookeeper.data.replay import (
    Again,
    Count,
    Create,
    Delete,
    Replay,
    ReplayError,
    SetAcl,
    SetData,
    Tally,
    needed_paths,
)
from zkmigrate.zookeeper.data.tree import Tree, Znode
from zkmigrate.zookeeper.data.txn import Acl, decode_txn

CUT, OWN = 1 << 32 | 5, 2 << 32
ACL = (Acl(31, "world", "anyone"),)
BROKER, ADMIN = 0x11, 0x22


def node(version: int = 0, aversion: int = 0, owner: int = 0) -> Znode:
    return Znode(b"\0" * 32, 0, ACL, 1, 1, 1, 1, 1, version, 0, aversion, owner)


def replay(
    *own: bytes,
    at_cut: dict[str, Znode] | None = None,
    owners: dict[int, Sequence[str]] | None = None,
    chroot: str = "/kafka",
) -> Replay:
    """Of a dest that shared one transaction with source before it went on by itself."""
    log = BytesDirectory({f"log.{CUT:x}": log_from([create_payload(CUT, "/kafka"), *own]) + bytes(64)})
    return Replay(log, chroot=Chroot(chroot), after=CUT, at_cut=at_cut or {}, owners=owners or {})


def requests(found: Replay) -> list[object]:
    return [request for again in found for request in again.requests]


def test_what_stays_is_done_again_in_order_and_bound_to_the_versions_it_finds() -> None:
    found = replay(
        create_payload(OWN + 1, "/kafka/topics", b"t", session=ADMIN),
        set_payload(OWN + 2, "/kafka/topics", b"u", version=1),
        set_payload(OWN + 3, "/kafka/old", b"v", version=8),
        acl_payload(OWN + 4, "/kafka/old", 3),
        delete_payload(OWN + 5, "/kafka/topics"),
        create_payload(OWN + 6, "/other", session=ADMIN),
        at_cut={"/kafka/old": node(7, 2)},
    )
    assert list(found) == [
        Again(OWN + 1, 1000, ADMIN, (Create("/kafka/topics", b"t", ACL),)),
        Again(OWN + 2, 1000, 0x77, (SetData("/kafka/topics", b"u", 0),)),
        Again(OWN + 3, 1000, 0x77, (SetData("/kafka/old", b"v", 7),)),
        Again(OWN + 4, 1000, 0x77, (SetAcl("/kafka/old", ACL, 2),)),
        Again(OWN + 5, 1000, 0x77, (Delete("/kafka/topics", 1),)),
    ]
    assert (found.under, found.passed, found.upto) == (5, 0, OWN + 6)


def test_of_an_ephemeral_only_its_parents_counter_is_done_again() -> None:
    found = replay(
        create_payload(OWN + 1, "/kafka/controller", ephemeral=True, session=BROKER),
        set_payload(OWN + 2, "/kafka/controller", b"x", version=1),
        close_payload(OWN + 3, BROKER),
        delete_payload(OWN + 4, "/kafka/lock"),
        create_payload(OWN + 5, "/kafka/controller", b"stays"),
        create_payload(OWN + 6, "/kafka/lock", b"stays"),
        at_cut={"/kafka/lock": node(owner=ADMIN)},
        owners={ADMIN: ["/kafka/lock"]},
    )
    assert requests(found) == [
        Count("/kafka/controller", ACL),
        Create("/kafka/controller", b"stays", ACL),
        Create("/kafka/lock", b"stays", ACL),
    ]
    assert (found.under, found.passed) == (6, 3)


def test_a_session_of_before_the_cut_takes_its_ephemerals_along() -> None:
    for paths in ((), ("/kafka/lock",)):  # as 3.5 logs it, and as 3.6 does
        found = replay(
            close_payload(OWN + 1, ADMIN, paths or None),
            create_payload(OWN + 2, "/kafka/lock", b"stays"),
            at_cut={"/kafka/lock": node(owner=ADMIN)},
            owners={ADMIN: ["/kafka/lock"]},
        )
        assert requests(found) == [Create("/kafka/lock", b"stays", ACL)]


def test_a_multi_is_one_transaction_and_a_failed_one_is_none() -> None:
    parts = (
        create_payload(0, "/kafka/controller", ephemeral=True),
        set_payload(0, "/kafka/controller_epoch", b"7", version=4),
        create_payload(0, "/elsewhere"),
    )
    failed = (create_payload(0, "/kafka/x"), payload(0, -1, struct.pack(">i", -101)))
    found = replay(
        multi_payload(OWN + 1, *parts, session=ADMIN),
        multi_payload(OWN + 2, *failed, session=ADMIN),
        at_cut={"/kafka/controller_epoch": node(3)},
    )
    made = list(found)
    assert [again.requests for again in made] == [
        (Count("/kafka/controller", ACL), SetData("/kafka/controller_epoch", b"7", 3))
    ]
    assert found.under == 1


def test_null_data_stays_null() -> None:
    body = text("/kafka/null") + struct.pack(">i", -1) + OPEN_ACL + struct.pack(">?i", False, 1)
    assert requests(replay(payload(OWN + 1, 1, body))) == [Create("/kafka/null", None, ACL)]


@pytest.mark.parametrize(
    ("own", "why"),
    [
        (
            payload(OWN + 1, 19, text("/kafka/c") + text("") + OPEN_ACL + struct.pack(">i", 1)),
            "as a container",
        ),
        (
            payload(OWN + 1, 21, text("/kafka/t") + text("") + OPEN_ACL + struct.pack(">iq", 1, 500)),
            "as a TTL znode",
        ),
        (delete_payload(OWN + 1, "/kafka/unheard"), "/kafka/unheard was deleted, but it does not exist"),
        (set_payload(OWN + 1, "/kafka/unheard", b""), "/kafka/unheard was written to, but it does not exist"),
        (
            set_payload(OWN + 1, "/kafka/old", b"", version=9),
            "/kafka/old got version 9, but the next one is 8",
        ),
        (acl_payload(OWN + 1, "/kafka/old", 1), "/kafka/old got aversion 1, but the next one is 3"),
        (create_payload(OWN + 1, "/kafka/old"), "/kafka/old was created, but it already existed"),
    ],
    ids=["container", "ttl", "delete", "set", "version", "aversion", "create"],
)
def test_what_does_not_fit_the_tree_at_the_cut_is_refused_with_its_place(own: bytes, why: str) -> None:
    with pytest.raises(ReplayError, match=why) as caught:
        list(replay(own, at_cut={"/kafka/old": node(7, 2)}))
    assert caught.value.file == f"log.{CUT:x}"
    assert caught.value.offset is not None
    assert f"{OWN + 1:#x}" in str(caught.value)


def test_the_deletion_of_what_is_above_the_subtree_is_refused() -> None:
    with pytest.raises(ReplayError, match="/a, which is above /a/kafka, was deleted"):
        list(replay(delete_payload(OWN + 1, "/a"), chroot="/a/kafka"))


def test_a_hole_in_the_log_is_refused() -> None:
    with pytest.raises(CorruptError, match="follows"):
        list(replay(create_payload(OWN + 1, "/kafka/a"), create_payload(OWN + 4, "/kafka/b")))


def test_the_fingerprint_stands_for_every_request_and_the_cut() -> None:
    def of(*own: bytes) -> str:
        found = replay(*own)
        list(found)
        return found.fingerprint

    one, other = create_payload(OWN + 1, "/kafka/a"), create_payload(OWN + 1, "/kafka/b")
    assert of(one) == of(one)
    assert len({of(), of(one), of(other), of(one, create_payload(OWN + 2, "/kafka/b"))}) == 4


def test_what_a_tree_needs_is_named_and_no_more() -> None:
    own = [
        create_payload(OWN + 1, "/kafka/a/b"),
        delete_payload(OWN + 2, "/kafka/c"),
        delete_payload(OWN + 3, "/other"),
    ]
    log = BytesDirectory({f"log.{CUT:x}": log_from([create_payload(CUT, "/kafka/shared"), *own])})
    assert needed_paths(log, chroot=Chroot("/kafka"), after=CUT) == {"/kafka/a/b", "/kafka/c"}


def test_requests_are_counted_by_kind() -> None:
    tally = Tally()
    for again in replay(
        create_payload(OWN + 1, "/kafka/a"),
        create_payload(OWN + 2, "/kafka/a/e", ephemeral=True),
        set_payload(OWN + 3, "/kafka/a", b""),
        acl_payload(OWN + 4, "/kafka/a", 1),
        delete_payload(OWN + 5, "/kafka/a"),
    ):
        tally.take(again)
    kinds = ("Create", "Count", "SetData", "SetAcl", "Delete")
    counted = (*(tally.kinds[kind] for kind in kinds), tally.transactions)
    assert counted == (1, 1, 1, 1, 1, 5)
    assert tally.paths == {"/kafka/a", "/kafka/a/e"}


def test_the_counter_of_a_parent_counts_creates_and_no_deletes() -> None:
    """What `Count` rests on, by the rules of `tree`, which real servers hold to account."""
    tree = Tree(Chroot("/kafka"))
    for at in (
        create_payload(1, "/kafka"),
        create_payload(2, "/kafka/e", ephemeral=True, cversion=-1),
        delete_payload(3, "/kafka/e"),
        create_payload(4, "/kafka/f", cversion=-1),
    ):
        tree.apply(decode_txn(at))
    assert tree.nodes["/kafka"].cversion == 2
