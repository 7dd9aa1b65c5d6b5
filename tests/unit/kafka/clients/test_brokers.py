"""Many brokers asked at once, over connections that are kept, beside brokers that hang."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
from kafka.errors import KafkaConnectionError
from kafka.protocol.admin import DescribeLogDirsRequest

from tests.unit.kafka.clients import wire_brokers
from tests.unit.kafka.clients.wire_brokers import one_dir
from zkmigrate.kafka.clients import admin as kafka
from zkmigrate.kafka.clients import each_broker, log_dirs
from zkmigrate.model.fact import Seen, Unknown


def told(at: Any, ids: tuple[int, ...]) -> Mapping[int, Any]:
    seen = log_dirs.log_dirs(at, ids, None)
    assert isinstance(seen, Seen), seen
    return seen.value


def test_connections_are_kept_from_one_question_to_the_next() -> None:
    ids = tuple(range(1, 31))
    with wire_brokers.brokers(ids) as made:
        at = kafka.Brokers(made.at.values())
        assert all(isinstance(one, Seen) for one in told(at, ids).values())
        opened = made.opened
        assert all(isinstance(one, Seen) for one in told(at, ids).values())
        assert made.opened == opened
        at.close()


def test_a_broker_that_hangs_is_waited_for_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Not with each question: a preflight puts a dozen."""
    monkeypatch.setattr(kafka, "_PULSE_S", 0.5)
    with wire_brokers.brokers((1, 2, 3)) as made:
        at = kafka.Brokers(made.at.values())
        made.hung = {2}
        for _ in range(3):
            seen = told(at, (1, 2, 3))
            assert isinstance(seen[2], Unknown)
            assert isinstance(seen[1], Seen)
            assert isinstance(seen[3], Seen)
        connections = at._canary._connections[made.at[2]]
        assert connections._correlation == 1, "one pulse"
        made.hung = set()
        monkeypatch.setattr(kafka, "_SILENT_S", 0.0)
        at._silent_until.clear()
        assert isinstance(told(at, (2,))[2], Seen), "it is back"
        at.close()


def test_a_broker_that_hangs_at_the_question_delays_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    """It answers ApiVersions, so it is asked; a disk that hangs looks so."""
    monkeypatch.setattr(each_broker, "LATE_S", 0.2)
    answers = {DescribeLogDirsRequest: lambda id, request: None if id == 2 else one_dir(id, request)}
    with wire_brokers.brokers((1, 2, 3), answers) as made:
        seen = told(list(made.at.values()), (1, 2, 3))
        assert isinstance(seen[1], Seen)
        assert isinstance(seen[3], Seen)
        assert seen[2] == Unknown("timeout", "broker 2 has not answered yet; most others have")


def test_a_broker_that_answers_before_the_cluster_names_it_is_asked_later() -> None:
    """So does one that has just started."""
    with wire_brokers.brokers((1, 2, 3)) as made:
        at, made.fenced = kafka.Brokers(made.at.values()), {3}
        assert isinstance(told(at, (1, 3))[3], Unknown)
        made.fenced = set()
        assert isinstance(told(at, (1, 3))[3], Seen)
        at.close()


class Stale:
    """A client whose brokers closed its connections."""

    def __init__(self) -> None:
        self._manager = self
        self.asked = self.closed = False

    def run(self, *_: object) -> object:
        self.asked = True
        raise KafkaConnectionError("gone")

    def close(self) -> None:
        self.closed = True


def test_a_kept_client_that_fails_is_replaced() -> None:
    with wire_brokers.brokers((1,)) as made:
        at, stale = kafka.Brokers(made.at.values()), Stale()
        at._idle.put((stale, frozenset(made.at.values())))
        assert isinstance(told(at, (1,))[1], Seen)
        assert stale.closed
        at.close()


def test_a_client_that_knows_other_brokers_is_not_asked() -> None:
    """It may have a connection to one that hangs by now."""
    with wire_brokers.brokers((1,)) as made:
        at, other = kafka.Brokers(made.at.values()), Stale()
        at._idle.put((other, frozenset({*made.at.values(), "127.0.0.1:1"})))
        assert isinstance(told(at, (1,))[1], Seen)
        assert (other.asked, other.closed) == (False, True)
        at.close()
