"""A cluster from sets, racks and log directories, as Kafka 2.8 (with ``df``) and 3.9 tell them."""

from __future__ import annotations

import pytest

from zkmigrate.cluster.placement.cluster import Assigned, Broker, Cluster, LogDir, Partition
from zkmigrate.cluster.placement.live import Directory, cluster, needs_host
from zkmigrate.cluster.placement.plan import Refused

SETS = {("t", 0): (1, 2), ("t", 1): (2, 9), ("u", 0): (9,)}
CLUSTER = Assigned({1: "a", 2: "b", 3: ""}, SETS, {1: "h1", 2: "h2", 3: "h3"})
ONE = {
    "/a": Directory({("t", 0): 70}, 10, 100, "/mnt/a"),
    "/b": Directory({}, 20, 200, "/mnt/b"),
}
TWO = {"/a": Directory({("t", 0): 80, ("t", 1): 5}, 30, 300)}
THREE = {"/a": Directory({("gone", 0): 4}, 40, 400)}


def made(dirs: dict[int, dict[str, Directory]], unseen: dict[int, str] | None = None) -> Cluster:
    found = cluster(CLUSTER, dirs, unseen or {})
    assert isinstance(found, Cluster), found
    return found


def why(dirs: dict[int, dict[str, Directory]], unseen: dict[int, str] | None = None) -> str:
    found = cluster(CLUSTER, dirs, unseen or {})
    assert isinstance(found, Refused), found
    (reason,) = found.reasons
    assert reason.id == "placement.disk-unseen"
    return reason.text


def test_the_largest_replica_counts_and_each_has_its_directory() -> None:
    assert made({1: ONE, 2: TWO, 3: THREE}) == Cluster.of(
        [
            Broker(1, "a", 30, dirs=(LogDir("/a", 10, 100), LogDir("/b", 20, 200)), host="h1"),
            Broker(2, "b", 30, dirs=(LogDir("/a", 30, 300),), host="h2"),
            Broker(3, "", 40, new=True, dirs=(LogDir("/a", 40, 400),), host="h3"),
        ],
        [
            Partition("t", 0, (1, 2), 80, dirs=("/a", "/a")),
            Partition("t", 1, (2, 9), 5),
            Partition("u", 0, (9,), None),
        ],
    )


def test_directories_on_one_volume_count_its_free_bytes_once() -> None:
    shared = {path: Directory({}, 10, 100, "/mnt/a") for path in ("/a", "/b")}
    broker = made({1: shared, 2: TWO, 3: THREE}).brokers[1]
    assert (broker.free, broker.dirs) == (10, ())


@pytest.mark.parametrize(
    ("dirs", "needed"),
    [
        ({"/a": Directory({}, 5, 100)}, False),
        ({"/a": Directory({}, 5, 100), "/b": Directory({}, 5, 200)}, False),
        ({"/a": Directory({}, 5, 100), "/b": Directory({}, 7, 100)}, True),
        ({"/a": Directory({})}, True),
        ({"/a": Directory({}, 5, None)}, True),
        ({"/a": Directory({}, None, 100)}, True),
    ],
)
def test_the_host_is_asked_where_the_broker_leaves_a_doubt(dirs: dict[str, Directory], needed: bool) -> None:
    assert needs_host(dirs) == needed


def test_what_is_not_seen_is_named_and_never_guessed() -> None:
    blind = {"/b": Directory({}), "/a": Directory({}), "/c": Directory({}, 1, 2)}
    text = why({1: ONE, 2: blind}, {1: "b1: no answer"})
    assert text.startswith("too little is known of 3 brokers: broker 1: b1: no answer; broker 2: ")
    assert "broker 2: the free bytes of /a, /b are not known; " in text
    assert "broker 3: its log directories are not known. Needed: " in text
    assert "its log directories are not known" in why({1: ONE, 2: TWO, 3: {}})


def test_a_long_list_is_cut() -> None:
    many = Assigned(dict.fromkeys(range(12), ""), SETS, {})
    found = cluster(many, {}, {})
    assert isinstance(found, Refused)
    assert "broker 9: " in found.reasons[0].text
    assert "broker 10: " not in found.reasons[0].text
    assert "; and 2 more. Needed" in found.reasons[0].text


def test_an_unseen_broker_that_is_not_registered_refuses_nothing() -> None:
    assert made({1: ONE, 2: TWO, 3: THREE}, {9: "b9: no answer"}).brokers.keys() == {1, 2, 3}
