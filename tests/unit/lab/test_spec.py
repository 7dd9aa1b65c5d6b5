from __future__ import annotations

import json
from typing import Any

import pytest

from zkmigrate.lab.failure import LabError
from zkmigrate.lab.render import zookeeper_servers
from zkmigrate.lab.shape import Ensemble, Shape
from zkmigrate.lab.spec import LabSpec, Role, hosts_of, machines_of

ONE_ENSEMBLE = Shape(ensembles=(Ensemble(name="zk"),))


def test_default_lab_is_three_of_each_and_one_client() -> None:
    hosts = hosts_of(LabSpec())
    assert [host.name for host in hosts] == [
        *("source1", "source2", "source3", "dest1", "dest2", "dest3"),
        *("broker1", "broker2", "broker3", "client1"),
    ]
    assert [host.myid for host in hosts] == [1, 2, 3, 11, 12, 13, None, None, None, None]
    assert [host.rack for host in hosts if host.role is Role.BROKER] == ["r1", "r2", "r3"]


def test_addresses_are_unique_with_five_dest_hosts() -> None:
    hosts = hosts_of(LabSpec(dest_count=5))
    assert len({host.address for host in hosts}) == len(hosts) == 12
    assert [host.myid for host in hosts if host.role is Role.DEST] == [11, 12, 13, 14, 15]


def test_source_may_have_observers_after_its_voters() -> None:
    hosts = hosts_of(LabSpec(source_count=5, source_observers=2, dest_count=7))
    source = [host for host in hosts if host.role is Role.SOURCE]
    assert [(host.name, host.myid) for host in source if host.observer] == [("source6", 6), ("source7", 7)]
    assert [host.observer for host in hosts if host.role is not Role.SOURCE] == [False] * 11
    lines = zookeeper_servers(source).splitlines()
    assert [line.endswith(":observer") for line in lines] == [False] * 5 + [True] * 2


def test_spec_survives_json() -> None:
    spec = LabSpec(
        source_version="3.8.4",
        source_options={"snapCount": "1000"},
        broker_options={"num.io.threads": "4"},
        bandwidth_kbit={"dest2": 5000},
        jute_maxbuffer=4194304,
        dest_count=5,
    )
    assert LabSpec.from_json(json.loads(json.dumps(spec.to_json()))) == spec


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"dest_count": 4}, "possible: 3, 5 or 7"),
        ({"debian": 11}, "possible: 12 or 13"),
        ({"source_count": 2}, "possible: 1, 3, 5 or 7 with 0 to 2"),
        ({"source_observers": 3}, "possible: 1, 3, 5 or 7 with 0 to 2"),
        ({"chroot": "kafka"}, "absolute znode path"),
        ({"chroot": "/kafka/"}, "absolute znode path"),
        ({"chroot": "/a/../b"}, "absolute znode path"),
        ({"session_timeout_ms": 41_000}, "grants 4000 to 40000"),
        ({"session_timeout_ms": 3_999}, "grants 4000 to 40000"),
        ({"tree_size": -1}, "negative"),
        ({"tree_node_bytes": 0}, "possible: 1 to 1000000"),
        ({"tree_node_bytes": 1_000_001}, "possible: 1 to 1000000"),
        ({"data_disk_mb": 64}, "128 or more"),
        ({"service": "runit"}, "possible: systemd or commands"),
        ({"shared": "brokers"}, "possible: source-brokers or dest-brokers"),
        ({"shared": "dest-brokers", "shape": ONE_ENSEMBLE}, "a shape defines shared itself"),
        ({"shared": "source-brokers", "bandwidth_kbit": {"broker1": 100}}, "unknown hosts: broker1"),
        ({"bandwidth_kbit": {"dest4": 100}}, "unknown hosts: dest4"),
        ({"four_letter_words": "ruok, mntr"}, "leaves out srvr"),
    ],
)
def test_impossible_specs_are_refused_with_what_is_possible(wrong: dict[str, Any], said: str) -> None:
    with pytest.raises(LabError, match=said):
        LabSpec(**wrong)


def test_a_key_the_spec_does_not_have_is_refused_by_name() -> None:
    with pytest.raises(LabError, match="no key brokers"):
        LabSpec.from_json({"brokers": 3})


def test_a_lab_without_shared_machines_is_recorded_as_before() -> None:
    """A version of the lab that does not know the key must be able to remove this lab."""
    assert "shared" not in LabSpec().to_json()
    assert LabSpec.from_json(LabSpec().to_json()).shared is None
    shared = LabSpec(shared="dest-brokers")
    assert LabSpec.from_json(json.loads(json.dumps(shared.to_json()))) == shared


@pytest.mark.parametrize(("shared", "below"), [("source-brokers", "source"), ("dest-brokers", "dest")])
def test_a_broker_on_a_shared_machine_keeps_its_name(shared: str, below: str) -> None:
    spec = LabSpec(shared=shared, dest_count=5)
    hosts = {host.name: host for host in hosts_of(spec)}
    for n in (1, 2, 3):
        assert hosts[f"broker{n}"].address == hosts[f"{below}{n}"].address
        assert [host.name for host in machines_of(spec)[f"{below}{n}"]] == [f"{below}{n}", f"broker{n}"]
    assert [name for name in machines_of(spec) if name.startswith("broker")] == []
    assert len({host.address for host in hosts.values()}) == len(machines_of(spec)) == 9
