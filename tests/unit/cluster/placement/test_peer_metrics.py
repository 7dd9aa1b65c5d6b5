"""The peer's znodes: plain or packed, their age, and what is wrong with them."""

from __future__ import annotations

import gzip
import json

import pytest

from zkmigrate.cluster.placement import peer_metrics
from zkmigrate.cluster.placement.cluster import Assigned, Broker, Cluster, Partition
from zkmigrate.cluster.placement.cluster_file import ClusterFileError
from zkmigrate.cluster.placement.peer_metrics import Metrics, cluster, parse, too_old
from zkmigrate.cluster.placement.plan import Refused

META = json.dumps({"t": {"0": {"Size": 1500}, "1": {"Size": 0.5}}}).encode()
FREE = json.dumps({"1001": {"StorageFree": 12345678901.75}, "1002": {"StorageFree": 2}}).encode()
READ = Metrics({("t", 0): 1500, ("t", 1): 1}, {1001: 12345678901, 1002: 2})


@pytest.mark.parametrize("meta", [META, gzip.compress(META, mtime=0)], ids=["plain", "packed"])
@pytest.mark.parametrize("free", [FREE, gzip.compress(FREE, mtime=0)], ids=["plain", "packed"])
def test_b15_plain_and_packed_znodes_give_the_same(meta: bytes, free: bytes) -> None:
    """Sizes are rounded up and free bytes down: a plan may not count on the rest."""
    assert parse(meta, free) == READ


HOUR_MS = 3_600_000


@pytest.mark.parametrize(
    ("ages_ms", "refused"),
    [((HOUR_MS, 0), False), ((HOUR_MS + 1, 0), True), ((0, HOUR_MS + 1), True), ((-5, 0), False)],
)
def test_b15_metrics_older_than_an_hour_are_refused_by_the_older_znode(
    ages_ms: tuple[int, ...], refused: bool
) -> None:
    now = 10**12
    found = too_old([now - age for age in ages_ms], now, 60)
    assert (found is not None) == refused
    if found is not None:
        [reason] = found.reasons
        assert reason.id == "placement.metrics-old"
        assert reason.text.startswith("the metrics in ZooKeeper are 60 minutes old; needed: at most 60 min")


def test_b15_the_cluster_of_sets_racks_and_metrics() -> None:
    sets = {("t", 0): (1001, 9), ("t", 2): (1001,)}
    made = cluster(Assigned({1001: "a", 1002: ""}, sets, {1001: "h"}), READ)
    assert made == Cluster.of(
        [Broker(1001, "a", 12345678901, host="h"), Broker(1002, "", 2, new=True)],
        [Partition("t", 0, (1001, 9), 1500), Partition("t", 2, (1001,), None)],
    )


def test_b15_a_registered_broker_without_free_bytes_is_refused() -> None:
    made = cluster(Assigned({1001: "", 7: "", 8: ""}, {}, {}), READ)
    assert isinstance(made, Refused)
    assert "registered brokers 7, 8;" in made.reasons[0].text


@pytest.mark.parametrize(
    ("meta", "free", "told"),
    [
        (b"", FREE, "partitionmeta: line 1, column 1: Expecting value"),
        (b"[]", FREE, "partitionmeta: seen []; needed: an object"),
        (b'{"t": 1}', FREE, "partitionmeta.t: seen 1; needed: an object"),
        (b'{"t": {"x": {"Size": 1}}}', FREE, 'partitionmeta.t.x: seen "x"; needed: a whole number as a key'),
        (b'{"t": {"0": {}}}', FREE, "partitionmeta.t.0.Size: seen nothing; needed: bytes as a number"),
        (b'{"t": {"0": {"Size": "5"}}}', FREE, 'partitionmeta.t.0.Size: seen "5"; needed: bytes as a number'),
        (b'{"t": {"0": {"Size": -5}}}', FREE, "partitionmeta.t.0.Size: seen -5; needed: bytes as a number"),
        (b'{"t": {"0": {"Size": 1e999}}}', FREE, "partitionmeta: seen 1e999; needed: numbers below 1e308"),
        (b'{"t": {"0": {"Size": true}}}', FREE, "partitionmeta.t.0.Size: seen true; needed: bytes as a num"),
        (META, b'{"1": {"StorageFree": null}}', "brokermetrics.1.StorageFree: seen nothing; needed: bytes"),
        (META, b'{"-1": {"StorageFree": 1}}', 'brokermetrics.-1: seen "-1"; needed: a whole number as a key'),
        (b"\x1f\x8bdamaged", FREE, "partitionmeta: seen damaged gzip ("),
        (META, gzip.compress(FREE, mtime=0)[:-9], "brokermetrics: seen truncated gzip; needed: whole"),
    ],
)  # fmt: skip
def test_bad_input_in_a_znode_is_told_by_place_seen_and_needed(meta: bytes, free: bytes, told: str) -> None:
    with pytest.raises(ClusterFileError) as caught:
        parse(meta, free)
    assert str(caught.value).startswith(told)


def test_bad_input_a_znode_that_unpacks_without_end_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(peer_metrics, "MOST_BYTES", 1000)
    with pytest.raises(ClusterFileError, match="partitionmeta: seen more than 256 MiB"):
        parse(gzip.compress(b" " * 10_000, mtime=0), FREE)
