"""``cluster.json``: what it holds, and every bad one refused with its place, what was seen and needed."""

from __future__ import annotations

import copy
import json
import re
from collections.abc import Callable
from typing import Any

import pytest

from zkmigrate.cluster.placement.cluster import Broker, Cluster, LogDir, Partition
from zkmigrate.cluster.placement.cluster_file import ClusterFileError, parse

GOOD: dict[str, Any] = {
    "brokers": {
        "10": {"rack": "a", "storage_free": 500, "host": "ten"},
        "9": {"rack": "b", "log_dirs": {"/d2": {"free": 7}, "/d1": {"free": 3, "total": 9}}, "new": True},
        "8": {"storage_free": 0, "rack": None},
    },
    "partitions": [
        {"topic": "t", "partition": 1, "replicas": [10, 77], "size": 5},
        {"topic": "t", "partition": 0, "replicas": [9, 10], "size": 4, "rate": 2, "log_dirs": ["/d1", "/x"]},
        {"topic": "s", "partition": 0, "replicas": [8]},
    ],
}


def parsed(value: Any) -> Cluster:
    return parse(json.dumps(value).encode(), "c.json")


def refusal(content: bytes) -> str:
    with pytest.raises(ClusterFileError) as caught:
        parse(content, "c.json")
    return str(caught.value)


def test_every_value_of_the_file_is_in_the_cluster_and_in_order() -> None:
    assert parsed(GOOD) == Cluster.of(
        [
            Broker(8, "", 0),
            Broker(9, "b", 10, new=True, dirs=(LogDir("/d1", 3, 9), LogDir("/d2", 7))),
            Broker(10, "a", 500, host="ten"),
        ],
        [
            Partition("s", 0, (8,), None),
            Partition("t", 0, (9, 10), 4, 2.0, ("/d1", "/x")),
            Partition("t", 1, (10, 77), 5),
        ],
    )
    assert list(parsed(GOOD).brokers) == [8, 9, 10]
    assert [one.name for one in parsed(GOOD).partitions] == [("s", 0), ("t", 0), ("t", 1)]


def test_whole_bytes_may_be_written_as_a_fraction_or_with_an_exponent() -> None:
    text = """{"brokers": {"1": {"storage_free": 900000000000.0},
                           "2": {"log_dirs": {"/d": {"free": 9e11, "total": 1E12}}}},
               "partitions": [{"topic": "t", "partition": 0, "replicas": [1, 2], "size": 5.0}]}"""
    cluster = parse(text.encode(), "c.json")
    assert [cluster.brokers[1].free, cluster.brokers[2].free] == [900_000_000_000] * 2
    assert type(cluster.brokers[1].free) is type(cluster.partitions[0].size) is int
    assert cluster.partitions[0].size == 5


def test_a_byte_order_mark_is_no_mistake() -> None:
    assert parse(b"\xef\xbb\xbf" + json.dumps(GOOD).encode(), "c.json") == parsed(GOOD)


BYTES = "whole bytes as a number from 0 to 9223372036854775807"
FIRST = 'partitions[0] (topic "t", partition 1)'
FAULTS: dict[str, tuple[Callable[[Any], Any], str]] = {
    "a duplicate broker in a set": (
        lambda c: c["partitions"][0].update(replicas=[10, 9, 10]),
        "partitions[0] (topic t, partition 1).replicas: seen a broker twice in [10, 9, 10]; "
        "needed: each broker once",
    ),
    "a size as text": (
        lambda c: c["partitions"][0].update(size="5"),
        f'{FIRST}.size: seen "5"; needed: {BYTES}',
    ),
    "a negative size": (
        lambda c: c["partitions"][0].update(size=-1),
        f"{FIRST}.size: seen -1; needed: {BYTES}",
    ),
    "an absurd size": (
        lambda c: c["partitions"][0].update(size=2**63),
        f"{FIRST}.size: seen {2**63}; needed: {BYTES}",
    ),
    "a size with a fraction": (
        lambda c: c["partitions"][0].update(size=1.5),
        f"{FIRST}.size: seen 1.5; needed: {BYTES}",
    ),
    "a size that is true": (
        lambda c: c["partitions"][0].update(size=True),
        f"{FIRST}.size: seen true; needed: {BYTES}",
    ),
    "a negative rate": (
        lambda c: c["partitions"][0].update(rate=-0.5),
        f"{FIRST}.rate: seen -0.5; needed: bytes per second as a number from 0 on",
    ),
    "free bytes as text": (
        lambda c: c["brokers"]["10"].update(storage_free="1 TB"),
        f'brokers.10.storage_free: seen "1 TB"; needed: {BYTES}',
    ),
    "no free bytes": (
        lambda c: c["brokers"]["10"].pop("storage_free"),
        "brokers.10: seen no storage_free and no log_dirs; needed: one of them",
    ),
    "two answers for free bytes": (
        lambda c: c["brokers"]["9"].update(storage_free=11),
        "brokers.9.storage_free: seen 11, its log_dirs have 10 free; needed: the same, or log_dirs alone",
    ),
    "more free than there is": (
        lambda c: c["brokers"]["9"]["log_dirs"]["/d1"].update(free=10),
        "brokers.9.log_dirs./d1: seen 10 bytes free of 9; needed: at most all",
    ),
    "a rack that is a number": (
        lambda c: c["brokers"]["10"].update(rack=1),
        "brokers.10.rack: seen 1; needed: a text of at most 1000 characters",
    ),
    "new as text": (
        lambda c: c["brokers"]["10"].update(new="yes"),
        'brokers.10.new: seen "yes"; needed: true or false',
    ),
    "an id that is a name": (
        lambda c: c["brokers"].update(b1={"storage_free": 1}),
        'brokers: seen the id "b1"; needed: a whole number from 0 to 2147483647, as a text',
    ),
    "an id with a zero before it": (
        lambda c: c["brokers"].update({"010": {"storage_free": 1}}),
        'brokers: seen the id "010"; needed: a whole number from 0 to 2147483647, as a text',
    ),
    "an id of thousands of digits": (
        lambda c: c["brokers"].update({"1" * 5000: {"storage_free": 1}}),
        f'brokers: seen the id "{"1" * 58}…; needed: a whole number from 0 to 2147483647, as a text',
    ),
    "an id in a set that is a text": (
        lambda c: c["partitions"][0].update(replicas=[10, "9"]),
        f'{FIRST}.replicas[1]: seen "9"; needed: a list of broker ids, whole numbers from 0 to 2147483647',
    ),
    "a negative id in a set": (
        lambda c: c["partitions"][0].update(replicas=[-1]),
        f"{FIRST}.replicas[0]: seen -1; needed: a list of broker ids, whole numbers from 0 to 2147483647",
    ),
    "an empty set": (
        lambda c: c["partitions"][0].update(replicas=[]),
        "partitions[0] (topic t, partition 1).replicas: seen []; needed: at least one broker id",
    ),
    "no replicas": (
        lambda c: c["partitions"][0].pop("replicas"),
        f"{FIRST}.replicas: seen nothing; needed: a list of broker ids, whole numbers from 0 to 2147483647",
    ),
    "half a topic": (
        lambda c: c["partitions"].append({"topic": "t", "partition": 4, "replicas": [9]}),
        "topic t: seen 3 partitions, the highest is 4, and no partition 2; "
        "needed: all of the topic, from 0 on",
    ),
    "a partition twice": (
        lambda c: c["partitions"].append(c["partitions"][0]),
        "partitions[3] (topic t, partition 1): seen a second time; needed: each partition once",
    ),
    "a topic's name of a path": (
        lambda c: c["partitions"][0].update(topic="../x"),
        'partitions[0] (topic "../x", partition 1).topic: seen "../x"; needed: a name of 1 to 249 '
        "characters of a-z A-Z 0-9 . _ -",
    ),
    "a topic's name with a line end": (
        lambda c: c["partitions"][0].update(topic="t\n"),
        'partitions[0] (topic "t\\n", partition 1).topic: seen "t\\n"; needed: a name of 1 to 249 '
        "characters of a-z A-Z 0-9 . _ -",
    ),
    "a topic named ..": (
        lambda c: c["partitions"][2].update(topic=".."),
        "partitions[2] (topic .., partition 0).topic: seen ..; needed: a name other than . and ..",
    ),
    "an unknown key": (
        lambda c: c["partitions"][0].update(bytes=5),
        f"{FIRST}.bytes: unknown key; needed: only the keys of the format",
    ),
    "a partition that is a list": (
        lambda c: c["partitions"].insert(0, ["t", 0]),
        'partitions[0]: seen ["t", 0]; needed: an object with topic, partition and replicas',
    ),
    "a broker that is a number": (
        lambda c: c["brokers"].update({"7": 5}),
        "brokers.7: seen 5; needed: an object with storage_free or log_dirs",
    ),
    "fewer paths than replicas": (
        lambda c: c["partitions"][1].update(log_dirs=["/d1"]),
        "partitions[1] (topic t, partition 0).log_dirs: seen 1 paths; needed: 2, as replicas",
    ),
    "a path that the broker has not": (
        lambda c: c["partitions"][1].update(log_dirs=["/d3", "/x"]),
        'partitions[1] (topic t, partition 0).log_dirs: seen "/d3"; needed: one of the log_dirs of broker 9',
    ),
    "no brokers": (
        lambda c: c.update(brokers={}),
        "brokers: seen {}; needed: an object: the brokers by their ids",
    ),
    "no partitions": (
        lambda c: c.update(partitions=[]),
        "partitions: seen []; needed: a list of partitions",
    ),
    "no key partitions": (
        lambda c: c.pop("partitions"),
        "partitions: seen nothing; needed: a list of partitions",
    ),
}  # fmt: skip


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_is_told_with_place_seen_and_needed(fault: str) -> None:
    broken = copy.deepcopy(GOOD)
    made, told = FAULTS[fault]
    made(broken)
    assert refusal(json.dumps(broken).encode()) == f"c.json: {told}"


@pytest.mark.parametrize("path", ["", "any", "d1", "/", "/d1/", "//d1", "/d1/\n"])
def test_a_path_that_no_broker_tells_is_told(path: str) -> None:
    broken = copy.deepcopy(GOOD)
    broken["brokers"]["9"]["log_dirs"][path] = {"free": 0}
    told = f"seen {json.dumps(path)}; needed: paths as Kafka reports them, such as /data1"
    assert refusal(json.dumps(broken).encode()) == f"c.json: brokers.9.log_dirs: {told}"


JSON = 'needed: JSON, an object with "brokers" and "partitions"'
TEXTS = {
    "not JSON": (b"{brokers", f"line 1, column 2: Expecting property name enclosed in double quotes; {JSON}"),
    "nothing": (b"", f"line 1, column 1: Expecting value; {JSON}"),
    "cut off": (b'{"brokers": {"1": ', f"line 1, column 19: Expecting value; {JSON}"),
    "too deep": (b"[" * 200_000, f"seen lists or objects nested too deep; {JSON}"),
    "no UTF-8": (b'{"brokers": "\xff"}', f"byte 13 is not UTF-8; {JSON}"),
    "a key twice": (
        b'{"brokers": {"1": {"rack": "a"}, "1": {"rack": "b"}}}',
        'key "1" 2 times in {"1": {"rack": "b"}}; needed: each key once',
    ),
    "not a number": (b'{"brokers": NaN}', "seen NaN; needed: numbers that JSON allows"),
    "thousands of digits": (
        b'{"brokers": ' + b"9" * 5000 + b"}",
        f"seen a number of more than 4300 digits; {JSON}",
    ),
    "a list": (b"[1]", 'the file: seen [1]; needed: an object with "brokers" and "partitions"'),
}  # fmt: skip


@pytest.mark.parametrize("text", TEXTS)
def test_what_is_not_a_cluster_is_told_where_it_stops(text: str) -> None:
    content, told = TEXTS[text]
    assert refusal(content) == f"c.json: {told}"


def test_ten_mistakes_are_told_and_that_others_follow() -> None:
    broken = copy.deepcopy(GOOD)
    broken["partitions"] = [{"topic": "t", "partition": n, "replicas": [9, 9]} for n in range(11)]
    told = refusal(json.dumps(broken).encode()).splitlines()
    assert len(told) == 11
    assert told[-1] == "c.json: and more"
    broken["partitions"] = [{"topic": "t", "partition": n, "replicas": [9], "size": "x"} for n in range(10)]
    assert len(refusal(json.dumps(broken).encode()).splitlines()) == 10


def test_what_is_seen_is_shortened() -> None:
    broken = {**GOOD, "brokers": "x" * 100_000}
    assert max(len(line) for line in refusal(json.dumps(broken).encode()).splitlines()) < 200


def test_many_partitions_are_read_and_refused() -> None:
    """Not only those of a small cluster: nothing in it grows faster than the file."""
    one = b'{"topic": "t%d", "partition": %d, "replicas": [8, 9, 10], "size": %d}'
    rows = [one % (n // 1000, n % 1000, n) for n in range(20_000)]
    content = b'{"brokers": %b, "partitions": [%b]}' % (
        json.dumps(GOOD["brokers"]).encode(),
        b", ".join(rows),
    )
    assert len(parse(content, "c.json").partitions) == 20_000
    last = re.sub(rb"19999}\]}$", b'"19999"}]}', content)
    assert refusal(last) == (
        f'c.json: partitions[19999] (topic "t19", partition 999).size: seen "19999"; needed: {BYTES}'
    )
