"""The plan of a walk: what is asked, how much of it at once, and what is made of the answers."""

from __future__ import annotations

import random
from collections import deque

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.tree_server import (
    GET_CHILDREN2,
    NO_AUTH,
    SYNC,
    TreeServer,
    Zxids,
    asked,
    children_reply,
    header,
)
from tests.unit.zkdata_fixtures import VERSIONS, recorded
from zkmigrate.zookeeper.data.chroot import Chroot
from zkmigrate.zookeeper.data.errors import MalformedError
from zkmigrate.zookeeper.data.messages import Frames
from zkmigrate.zookeeper.data.subtree import Extent, RefusedError, Walk, extent_of
from zkmigrate.zookeeper.data.tree import load_tree, max_zxid

TREE: dict[str, Zxids] = {
    "/": (0, 0, 9),
    "/zookeeper": (0, 0, 90),
    "/zookeeper/quota": (0, 0, 91),
    "/kafka": (5, 5, 8),
    "/kafka/a": (6, 7, 6),
    "/kafka/b": (8, 20, 30),
    "/kafka/b/c": (30, 30, 30),
    "/kafkaesque": (99, 99, 99),
}


def played(walk: Walk, server: TreeServer, batch: int = 1) -> int:
    """Answer to the end, `batch` replies at a time; the most requests that were under way at once."""
    under_way: deque[bytes] = deque()
    most = 0
    while not walk.done:
        under_way += Frames(1 << 20).feed(walk.requests_to_send())
        most = max(most, len(under_way))
        for _ in range(min(batch, len(under_way))):
            request = under_way.popleft()
            server.requests.append(asked(request)[1:])
            walk.take(server.reply(*asked(request)))
    return most


def summary(extent: Extent) -> tuple[object, ...]:
    kinds = (extent.czxid, extent.mzxid, extent.pzxid)
    return (extent.znodes, *((each.zxid, each.path) for each in kinds))


def test_a_walk_asks_each_znode_once_and_keeps_the_largest_with_its_path() -> None:
    walk, server = Walk(Chroot("/kafka"), 3), TreeServer(TREE)
    played(walk, server)
    assert server.requests[:2] == [(SYNC, "/kafka"), (GET_CHILDREN2, "/kafka")]
    assert sorted(path for kind, path in server.requests if kind == GET_CHILDREN2) == [
        "/kafka", "/kafka/a", "/kafka/b", "/kafka/b/c", "/zookeeper/quota",
    ]  # fmt: skip
    assert summary(walk.extent) == (4, (30, "/kafka/b/c"), (30, "/kafka/b/c"), (30, "/kafka/b"))
    assert (walk.extent.largest.zxid, walk.extent.largest.path) == (30, "/kafka/b/c")
    assert (walk.requests, walk.gone, walk.denied, walk.above) == (6, 0, [], None)
    assert walk.begin == walk.end


def test_everything_is_without_what_each_server_keeps_for_itself() -> None:
    walk = Walk(Chroot("/"), 3)
    played(walk, TreeServer(TREE))
    assert (walk.extent.znodes, walk.extent.largest.zxid) == (6, 99)
    system = Walk(Chroot("/zookeeper"), 3)
    played(system, TreeServer(TREE))
    assert (system.extent.znodes, system.extent.largest.zxid) == (2, 91)


def test_the_quotas_of_the_chroot_are_read_apart() -> None:
    quotas: dict[str, Zxids] = {
        "/zookeeper/quota/kafka": (70, 70, 72),
        "/zookeeper/quota/kafka/zookeeper_limits": (71, 80, 71),
        "/zookeeper/quota/solr/zookeeper_limits": (92, 92, 92),
    }
    walk = Walk(Chroot("/kafka"), 3)
    played(walk, TreeServer(TREE | quotas))
    largest = walk.extent.largest
    assert (walk.extent.znodes, largest.zxid, largest.path) == (
        6,
        80,
        "/zookeeper/quota/kafka/zookeeper_limits",
    )


def test_zxids_of_before_and_after_tell_whether_the_tree_stood_still() -> None:
    walk = Walk(Chroot("/kafka"), 1)
    played(walk, TreeServer(TREE, zxids=(0x50, 0x50, 0x51, 0x52)))
    assert (walk.begin, walk.end) == (0x50, 0x52)


def test_a_znode_that_went_meanwhile_is_counted_and_no_error() -> None:
    walk = Walk(Chroot("/kafka"), 3)
    played(walk, TreeServer(TREE, gone=frozenset({"/kafka/b"})))
    assert (walk.extent.znodes, walk.gone, walk.denied) == (2, 1, [])


def test_a_znode_that_may_not_be_read_is_named() -> None:
    walk = Walk(Chroot("/kafka"), 3)
    played(walk, TreeServer(TREE, denied=frozenset({"/kafka/b"})))
    assert (walk.extent.znodes, walk.denied) == (2, ["/kafka/b"])


@pytest.mark.parametrize(
    ("root", "above"),
    [("/kafka/no", "/kafka"), ("/kafka/no/nor/this", "/kafka"), ("/no/nor", "/"), ("/no", "/")],
)
def test_of_a_root_that_is_not_there_the_part_that_is_is_found(root: str, above: str) -> None:
    walk = Walk(Chroot(root), 3)
    played(walk, TreeServer(TREE))
    assert (walk.above, walk.extent.znodes, walk.gone) == (above, 0, 0)


def answered(*replies: bytes) -> Walk:
    """A walk whose sync was answered, and then these."""
    walk = Walk(Chroot("/kafka"), 3)
    walk.requests_to_send()
    walk.take(header(1))
    walk.requests_to_send()
    for reply in replies:
        walk.take(reply)
    return walk


@pytest.mark.parametrize(
    ("reply", "said"),
    [
        (header(3), "a reply to request 3 arrived, but request 2 is the next"),
        (header(-1), "a reply to request -1"),
        (children_reply(2, ["a/b"], (1, 1, 1)), "invalid child name 'a/b'"),
        (children_reply(2, [""], (1, 1, 1)), "invalid child name ''"),
        (header(2), "int needs 4 bytes"),
    ],
    ids=["other", "notification", "slash", "empty-name", "no-record"],
)
def test_a_reply_that_is_none_ends_the_walk(reply: bytes, said: str) -> None:
    with pytest.raises(MalformedError, match=said):
        answered(reply)


def test_a_reply_nobody_asked_for_ends_the_walk() -> None:
    walk = answered(children_reply(2, [], (1, 1, 1)))
    walk.requests_to_send()
    walk.take(header(3, -101))
    assert walk.done
    with pytest.raises(MalformedError, match="arrived, but no request is open"):
        walk.take(header(2))


@pytest.mark.parametrize(
    ("code", "name"),
    [(-112, "SessionExpired"), (-124, "SessionClosedRequireSaslAuth"), (-4444, "error -4444")],
)
def test_an_error_of_the_session_ends_the_walk(code: int, name: str) -> None:
    with pytest.raises(RefusedError, match=f"/kafka: {name}"):
        answered(header(2, code))


def test_a_refused_sync_ends_the_walk() -> None:
    walk = Walk(Chroot("/kafka"), 3)
    walk.requests_to_send()
    with pytest.raises(RefusedError, match="NotReadOnly"):
        walk.take(header(1, -119))


def test_a_root_that_may_not_be_read_leaves_nothing() -> None:
    walk = answered(header(2, NO_AUTH))
    assert walk.done
    assert (walk.denied, walk.extent.largest.path) == (["/kafka"], "")


@given(
    seed=st.integers(0, 1 << 30),
    znodes=st.integers(1, 60),
    window=st.integers(1, 20),
    batch=st.integers(1, 20),
)
def test_any_tree_is_walked_whole_with_no_more_under_way_than_allowed(
    seed: int, znodes: int, window: int, batch: int
) -> None:
    rng = random.Random(seed)
    tree: dict[str, Zxids] = {"/": (0, 0, 0), "/r": (1, 1, 1)}
    for n in range(znodes):
        parent = rng.choice([path for path in tree if path != "/"])
        tree[f"{parent}/{n}"] = (rng.randrange(9), rng.randrange(9), rng.randrange(9))
    walk = Walk(Chroot("/r"), window)
    assert played(walk, TreeServer(tree), batch) <= window
    expected = Extent()
    for path, zxids in tree.items():
        if path != "/":
            expected.take(path, *zxids)
    assert summary(walk.extent) == summary(expected)
    assert walk.requests == len(tree) + 1, "the sync, and the quotas, but not /"


@pytest.mark.parametrize("version", VERSIONS)
def test_the_disk_and_the_walk_agree_on_a_recorded_tree(version: str) -> None:
    tree = load_tree(recorded(version, "standalone"))
    nodes = {path: (node.czxid, node.mzxid, node.pzxid) for path, node in tree.nodes.items()}
    walk = Walk(Chroot("/"), 10)
    played(walk, TreeServer(nodes))
    assert summary(walk.extent) == summary(extent_of(tree))
    assert walk.extent.largest.zxid == max_zxid(tree)
