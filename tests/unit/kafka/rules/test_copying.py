"""What two looks at log directories tell of partitions that move."""

from __future__ import annotations

from zkmigrate.hosts.facts.load import Load
from zkmigrate.kafka.questions import LogDir, LogDirs, ReplicaLog
from zkmigrate.kafka.rates import Moving, Rate, Sample
from zkmigrate.kafka.rules.copying import Copied, measure_copying, sample
from zkmigrate.runbook.model.fact import Seen, Unknown
from zkmigrate.runbook.model.look import Pulse

SILENT = Unknown("timeout", "broker 2 does not answer")


def dirs(*logs: tuple[int, int, int], future: tuple[int, ...] = ()) -> LogDirs:
    """One directory with (partition, size, lag) of topic t, and one that fails. future: partitions being
    copied to another directory."""
    own = [ReplicaLog("t", number, size, lag, False) for number, size, lag in logs]
    copies = [ReplicaLog("t", number, 7, 7, True) for number in future]
    return Seen({"/a": Seen(LogDir((*own, *copies))), "/b": Unknown("failed", "KAFKA_STORAGE_ERROR")})


def test_progress_production_lag_and_rates_come_from_what_grew() -> None:
    moving = (Moving("t", 0, 1, (2, 3)), Moving("t", 1, 1, (3,)))
    before = {1: dirs((0, 1000, 0), (1, 500, 0)), 2: dirs((0, 100, 9)), 3: dirs((1, 50, 5))}
    after = {1: dirs((0, 1200, 0), (1, 500, 0)), 2: dirs((0, 400, 4)), 3: dirs((0, 200, 8), (1, 500, 0))}
    assert measure_copying(moving, before, after, 10.0) == Copied(
        (
            Moving("t", 0, 1, (2, 3), left=1000, produced=20.0, lags={2: 4, 3: 8}),
            Moving("t", 1, 1, (3,), left=0, produced=0.0, lags={3: 0}),
        ),
        {1: Rate(95, 0), 2: Rate(0, 30), 3: Rate(0, 65)},
    )


def test_a_log_that_retention_cut_keeps_the_production_known_before() -> None:
    moving = (Moving("t", 0, 1, (2,), produced=33.0),)
    before = {1: dirs((0, 900, 0)), 2: dirs((0, 800, 1))}
    told = measure_copying(moving, before, {1: dirs((0, 500, 0)), 2: dirs((0, 700, 1))}, 10.0)
    assert told.moving == (Moving("t", 0, 1, (2,), left=0, produced=33.0, lags={2: 1}),)
    assert told.rates == {1: Rate(0, 0), 2: Rate(0, 0)}


def test_a_partition_that_a_look_did_not_show_before_has_no_production_yet() -> None:
    told = measure_copying(
        (Moving("t", 0, 1, (2,)),), {1: dirs(), 2: dirs()}, {1: dirs((0, 900, 0)), 2: dirs()}, 10.0
    )
    assert told.moving == (Moving("t", 0, 1, (2,), left=900),)


def test_without_a_takers_directories_its_rate_and_its_leaders_are_unknown_and_not_0() -> None:
    moving = (Moving("t", 0, 1, (2,)), Moving("t", 1, 3, (4,)))
    before = {1: dirs((0, 900, 0)), 2: SILENT, 3: dirs((1, 90, 0)), 4: dirs((1, 0, 1))}
    after = {**before, 2: dirs((0, 500, 1)), 4: dirs((1, 90, 0))}
    assert measure_copying(moving, before, after, 10.0).rates == {3: Rate(9, 0), 4: Rate(0, 9)}


def test_without_the_leaders_directories_a_partition_stays_as_it_came() -> None:
    one = Moving("t", 0, 1, (2,), left=5, produced=6.0, lags={2: 7})
    told = measure_copying((one,), {1: SILENT, 2: dirs()}, {1: SILENT, 2: dirs((0, 100, 1))}, 10.0)
    assert told.moving == (one,)
    assert told.rates == {2: Rate(0, 10)}


def test_a_copy_between_two_directories_of_a_broker_is_no_progress() -> None:
    look = {1: dirs((0, 900, 0)), 2: dirs(future=(0,))}
    assert measure_copying((Moving("t", 0, 1, (2,)),), look, look, 10.0).moving[0].lags == {}


def test_an_unknown_lag_is_left_out() -> None:
    look = {1: dirs((0, 900, 0)), 2: dirs((0, 100, -1))}
    assert measure_copying((Moving("t", 0, 1, (2,)),), look, look, 10.0).moving[0].lags == {}


LOAD = Load(10.0, 20.0, busy=0.5, await_ms=3.0)


def test_a_sample_has_the_p99_of_the_canarys_answers() -> None:
    pulses = [Pulse(0.0, took_s=ms / 1000) for ms in range(1, 201)]
    assert sample(LOAD, Rate(1, 2), pulses) == Sample(10.0, 20.0, Rate(1, 2), 0.5, 3.0, 198.0)
    assert sample(LOAD, None, ()).latency_ms is None


def test_a_canary_without_an_answer_is_slower_than_any_limit() -> None:
    assert sample(LOAD, None, [Pulse(0.0, took_s=0.001), Pulse(1.0, "refused")]).latency_ms == float("inf")
