"""load.json: what is accepted and how the rest is refused; the steady pace."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from zkmigrate.lab.load.config import (
    LoadConfig,
    LoadConfigError,
    load_config,
    parse_address,
    parse_config,
    parse_plan,
)
from zkmigrate.lab.load.pace import Pace, planned_step
from zkmigrate.lab.load.target import config_for, of_cluster
from zkmigrate.lab.shape import Shape
from zkmigrate.lab.spec import LabSpec


def test_a_configuration_reads_back_as_written(tmp_path: Path) -> None:
    config = LoadConfig(bootstrap="b1:9092", raw_hosts={"d1": "d1:2181"}, tenant_servers=("s1:2181",))
    config.write(tmp_path / "load.json")
    assert load_config(tmp_path / "load.json") == config


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[]", "load.json: Input should be an object"),
        ("{", "load.json: Invalid JSON"),
        ('{"produce_rat": 1}', "produce_rat: Unexpected keyword"),
        ('{"produce_rate": "100"}', "produce_rate: Input should be a valid number, seen '100'"),
        ('{"produce_rate": 0}', "produce_rate: Input should be greater than 0, seen 0"),
        ('{"produce_rate": true}', "should be a valid number"),
        ('{"partitions": 1.5}', "partitions: Input should be a valid integer, seen 1.5"),
        ('{"partitions": true}', "should be a valid integer"),
        ('{"partitions": -1}', "greater than 0"),
        ('{"topics": "load-a"}', "topics: Input should be a valid array, seen 'load-a'"),
        ('{"bootstrap": 1}', "bootstrap: Input should be a valid string, seen 1"),
        ('{"raw_hosts": ["d1:2181"]}', "raw_hosts: Input should be an object, seen ['d1:2181']"),
        (
            '{"raw_hosts": {"d1": "d1"}}',
            "raw_hosts.d1: Value error, 'd1' is not an address. Needed: host:port",
        ),
        ('{"produce_plan": [[60]]}', "produce_plan.0.1: Field required"),
        ('{"produce_plan": [[60, 0]]}', "produce_plan.0.1: Input should be greater than 0, seen 0"),
        (
            '{"tenant_servers": ["s1"]}',
            "tenant_servers.0: Value error, 's1' is not an address. Needed: host:port",
        ),
    ],
)
def test_a_mistake_is_named(text: str, said: str) -> None:
    with pytest.raises(LoadConfigError) as refused:
        parse_config(text, "load.json")
    assert said in str(refused.value)


@pytest.mark.parametrize("text", ["d1", "d1:", ":2181", "d1:x", "d1:0", "d1:65536"])
def test_a_bad_address_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="Needed: host:port"):
        parse_address(text)


def test_a_lab_gives_its_own_addresses() -> None:
    config = config_for(LabSpec(dest_count=5, chroot="/", session_timeout_ms=9000), raw_rate=7.0)
    assert list(config.raw_hosts) == ["dest1", "dest2", "dest3", "dest4", "dest5"]
    assert len(config.tenant_servers) == 3
    assert config.raw_root == "/zkmigrate-raw"
    assert (config.session_timeout_ms, config.raw_rate) == (9000, 7.0)
    assert parse_config(config.to_json(), "load.json") == config


def test_the_load_of_one_cluster_knows_no_other() -> None:
    small: dict[str, Any] = {"name": "small", "version": "3.9.1", "brokers": [{"controller": True}]}
    shape = Shape.from_json({"clusters": [small, small | {"name": "large", "brokers": small["brokers"] * 4}]})
    made = [of_cluster(LabSpec(shape=shape), name) for name in ("small", "large")]
    alone = {"replication_factor": 1, "min_insync": 1, "cluster_zookeeper": ""}
    assert made[0] == {"bootstrap": "10.71.0.11:9092", **alone}
    four = ",".join(f"10.71.0.2{n}:9092" for n in (1, 2, 3, 4))
    assert made[1] == {
        "bootstrap": four, "replication_factor": 3, "min_insync": 2, "cluster_zookeeper": ""
    }  # fmt: skip


def test_the_load_of_a_cluster_knows_its_ensemble_and_chroot() -> None:
    zk = {"ensembles": [{"name": "zk"}]}
    for chroot, behind in (("/old", "/old"), ("/", "")):
        old = {"name": "old", "ensemble": "zk", "chroot": chroot, "brokers": [{}]}
        made = of_cluster(LabSpec(shape=Shape.from_json(zk | {"clusters": [old]})), "old")
        servers = ",".join(f"10.71.0.1{n}:2181" for n in (1, 2, 3))
        assert made["cluster_zookeeper"] == servers + behind


@given(st.lists(st.integers(0, 50_000_000), max_size=200))
def test_the_pace_is_never_above_its_rate(steps: list[int]) -> None:
    """Within any stretch no more operations are taken than the rate allows, stalls or not."""
    pace, now, taken = Pace(100.0, 0), 0, []
    for step in steps:
        now += step
        if pace.take(now):
            taken.append(now)
    for count, at in enumerate(taken):
        assert at >= 10_000_000 * count


def test_a_stall_is_not_made_up_for() -> None:
    pace = Pace(100.0, 0)
    assert pace.take(0)
    assert [pace.take(5_000_000_000) for _ in range(3)] == [True, True, False]


def test_a_plan_is_read_and_written_back() -> None:
    steps = parse_plan("60:100,0.5:200")
    assert steps == ((60.0, 100.0), (0.5, 200.0))
    config = LoadConfig(produce_plan=steps, produce_repeat=True)
    assert parse_config(config.to_json(), "load.json") == config


@pytest.mark.parametrize(
    "text", ["", "60", "60:", "60:100,", "60:100:3", "0:100", "60:-1", "60:0", "60:x", "60:inf", "nan:5"]
)
def test_a_plan_that_is_none_is_refused_with_its_form(text: str) -> None:
    with pytest.raises(LoadConfigError, match="Needed: SECONDS:RATE, for each step"):
        parse_plan(text)


@pytest.mark.parametrize(
    ("elapsed_s", "holds", "repeats"),
    [(0, 0, 0), (9.9, 0, 0), (10, 1, 1), (14.9, 1, 1), (15, 2, 2), (20, 2, 0), (34.9, 2, 1), (1e6, 2, 0)],
)
def test_the_last_step_of_a_plan_holds_or_the_first_follows(
    elapsed_s: float, holds: int, repeats: int
) -> None:
    steps = [(10.0, 1.0), (5.0, 2.0), (5.0, 1.0)]
    assert planned_step(steps, elapsed_s, repeat=False) == holds
    assert planned_step(steps, elapsed_s, repeat=True) == repeats


def test_a_changed_pace_takes_what_the_new_rate_allows() -> None:
    second = 1_000_000_000
    pace = Pace(0.001, 0)
    assert pace.take(0)
    assert not pace.take(second), "due in a thousand seconds"
    pace.change(10.0, second)
    assert not pace.take(second), "no burst"
    taken = [at for at in range(second, 2 * second, second // 1000) if pace.take(at)]
    assert len(taken) == 9
    pace.change(1.0, 2 * second)
    assert [pace.take(at) for at in (2 * second, 2 * second + 1, 3 * second - 1)] == [True, False, False]
