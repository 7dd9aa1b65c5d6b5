"""The inventory of a switch: what it refuses, and what it says."""

from __future__ import annotations

from pathlib import Path

import pytest

from playbooks.kafka_topic_move import PLAYBOOK
from zkmigrate.errors import InventoryError
from zkmigrate.inventory.inventory import digest, load
from zkmigrate.topics.topic_move.section import TopicMoveInventory, switched

FILE = """\
version: 1
name: shop
ssh: {user: ops, key: id, known_hosts: known_hosts}
clusters:
  - {name: old, brokers: ["old1:9092", "old2:9092"], config: old.properties, mirror: to-old.service}
  - {name: new, brokers: ["new1:9092"], mirror: to-new.service}
gateways:
  hosts: [{name: gw1, address: 10.0.0.51}]
mirrors:
  hosts: [{name: mm1, address: 10.0.0.61}]
sets:
  - {name: shop, topics: [orders, payments], apps: [shop], groups: [billing]}
topic_move: {set: shop, source: old, target: new}
"""


def read(folder: Path, text: str) -> TopicMoveInventory:
    path = folder / "shop.yml"
    path.write_text(text)
    return load(path, TopicMoveInventory, PLAYBOOK.sections)


def test_it_names_hosts_clusters_and_what_switches(tmp_path: Path) -> None:
    inventory = read(tmp_path, FILE)
    assert inventory.hosts == {"gateways": ("gw1",), "mirrors": ("mm1",)}
    assert [inventory.address(name) for name in ("gw1", "mm1")] == ["10.0.0.51", "10.0.0.61"]
    assert switched(inventory).topics == ("orders", "payments")
    source, target = inventory.ends
    assert source.brokers == ("old1:9092", "old2:9092")
    assert source.config == str(tmp_path / "old.properties")
    assert (target.brokers, target.config) == (("new1:9092",), None)
    assert PLAYBOOK.witnesses(inventory) == ("mm1",)
    assert PLAYBOOK.changed(inventory) == ("gw1", "mm1")


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("source: old, target", "source: odl, target", "topic_move.source: there is no cluster 'odl'"),
        ("target: new}", "target: nwe}", "topic_move.target: there is no cluster 'nwe'"),
        ("target: new}", "target: old}", "'old' is also the source"),
        ("{set: shop,", "{set: shpo,", "topic_move.set: there is no set 'shpo' (needed: one of shop)"),
        ("- {name: new,", "- {name: old,", "clusters: the name old is used twice"),
        ("target: new}", "target: new, hold_ms: 10001}", "more than a third of client_timeout_ms"),
        ("address: 10.0.0.61", "address: 10.0.0.51", "address 10.0.0.51"),
        ('"new1:9092"', '"new1"', "clusters[1].brokers[0]"),
        ("topics: [orders, payments]", "topics: []", "too few"),
        ("apps: [shop]", "apps: []", "too few"),
        (", mirror: to-new.service", "", "missing (needed: this key)"),
        ("topic_move:", "topics_move:", "topic_move"),
    ],
)
def test_a_wrong_file_is_refused_by_the_key_that_is_wrong(
    tmp_path: Path, old: str, new: str, said: str
) -> None:
    assert FILE.count(old) == 1
    with pytest.raises(InventoryError) as error:
        read(tmp_path, FILE.replace(old, new))
    assert said in str(error.value)


def test_times_may_change_under_way_and_the_direction_may_not(tmp_path: Path) -> None:
    whole = digest(read(tmp_path, FILE))
    slower = FILE.replace("target: new}", "target: new, hold_ms: 8000, settle_ms: 3000, proved: 5}")
    assert digest(read(tmp_path, slower)) == whole
    back = FILE.replace("source: old, target: new", "source: new, target: old")
    assert digest(read(tmp_path, back)) != whole
