"""Many brokers asked at once, over connections that are kept, beside brokers that hang."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest
from kafka.errors import KafkaConnectionError
from kafka.protocol.admin import (
    DescribeLogDirsRequest,
    DescribeQuorumRequest,
    DescribeQuorumResponse,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)

from tests.ports import free_port
from tests.unit.kafka.clients import wire_brokers
from tests.unit.kafka.clients.wire_brokers import Answer, one_dir
from zkmigrate.errors import HostError
from zkmigrate.kafka.changes import AlterAtController
from zkmigrate.kafka.clients import admin as kafka
from zkmigrate.kafka.clients import connections, each_broker, log_dirs, reassignments
from zkmigrate.runbook.model.fact import Absent, Seen, Unknown


def told(at: Any, ids: tuple[int, ...]) -> Mapping[int, Any]:
    seen = log_dirs.log_dirs(at, ids, None)
    assert isinstance(seen, Seen), seen
    return seen.value


def test_connections_are_kept_from_one_question_to_the_next() -> None:
    ids = tuple(range(1, 31))
    with wire_brokers.brokers(ids) as made:
        at = connections.Brokers(made.at.values())
        assert all(isinstance(one, Seen) for one in told(at, ids).values())
        opened = made.opened
        assert all(isinstance(one, Seen) for one in told(at, ids).values())
        assert made.opened == opened
        at.close()


def test_a_broker_that_hangs_is_waited_for_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Not with each question: a preflight puts a dozen."""
    monkeypatch.setattr(connections, "ANSWER_S", 0.5)
    with wire_brokers.brokers((1, 2, 3)) as made:
        at = connections.Brokers(made.at.values())
        made.hung = {2}
        for _ in range(3):
            seen = told(at, (1, 2, 3))
            assert isinstance(seen[2], Unknown)
            assert isinstance(seen[1], Seen)
            assert isinstance(seen[3], Seen)
        connection = at._canary._connections[made.at[2]]
        assert connection._correlation == 1, "one pulse"
        made.hung = set()
        monkeypatch.setattr(connections, "_SILENT_S", 0.0)
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
        assert seen[2] == Unknown(
            "timeout", "broker 2 did not answer within the time that most others needed"
        )


def test_a_broker_that_answers_before_the_cluster_names_it_is_asked_later() -> None:
    """So does one that has just started."""
    with wire_brokers.brokers((1, 2, 3)) as made:
        at, made.fenced = connections.Brokers(made.at.values()), {3}
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
        at, stale = connections.Brokers(made.at.values()), Stale()
        at._idle.put((stale, frozenset(made.at.values())))
        assert isinstance(told(at, (1,))[1], Seen)
        assert stale.closed
        at.close()


def test_a_client_that_knows_other_brokers_is_not_asked() -> None:
    """It may have a connection to one that hangs by now."""
    with wire_brokers.brokers((1,)) as made:
        at, other = connections.Brokers(made.at.values()), Stale()
        at._idle.put((other, frozenset({*made.at.values(), "127.0.0.1:1"})))
        assert isinstance(told(at, (1,))[1], Seen)
        assert (other.asked, other.closed) == (False, True)
        at.close()


DOWN = AlterAtController("kafka", 7, "cordoned.log.dirs", None, "*")


def quorum(port: int, leader: int = 9) -> Answer:
    """Brokers that name a controller on loopback."""
    one = DescribeQuorumResponse.TopicData
    partition = one.PartitionData(
        partition_index=0, error_code=0, error_message=None, leader_id=leader, leader_epoch=1,
        high_watermark=1, current_voters=[], observers=[],
    )  # fmt: skip
    listener = DescribeQuorumResponse.Node.Listener(name="CONTROLLER", host="127.0.0.1", port=port)
    return lambda _id, _request: {
        "error_code": 0,
        "error_message": None,
        "topics": [one(topic_name="__cluster_metadata", partitions=[partition])],
        "nodes": [DescribeQuorumResponse.Node(node_id=9, listeners=[listener])],
    }


def test_with_zookeeper_no_controller_takes_a_config_for_a_broker_that_is_down() -> None:
    with wire_brokers.brokers((1,)) as made:
        assert reassignments.refused_at_controller([made.at[1]], DOWN) == Absent("DescribeQuorum")


def test_x9_the_controller_unsets_a_config_of_a_broker_that_is_down(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(wire_brokers, "RELEASE", {**wire_brokers.RELEASE, 44: 1, 55: 2})
    sent: list[tuple[int, bool, object]] = []
    code = 0

    def alter(id: int, request: Any) -> Mapping[str, Any]:
        [resource] = request.resources
        [config] = resource.configs
        act = (resource.resource_type, resource.resource_name, config.name, config.config_operation)
        sent.append((id, request.validate_only, (*act, config.value)))
        told = IncrementalAlterConfigsResponse.AlterConfigsResourceResponse(
            error_code=code, error_message="No node" if code else None, resource_type=4, resource_name="7"
        )
        return {"responses": [told]}

    with wire_brokers.brokers((1, 3), {IncrementalAlterConfigsRequest: alter}) as made:
        at, send = [made.at[1]], kafka.Alter([made.at[1]])
        made.answer(DescribeQuorumRequest, quorum(int(made.at[3].rpartition(":")[2])))
        assert reassignments.refused_at_controller(at, DOWN) == Seen("")
        assert send(DOWN)[0] == 0
        act = (4, "7", "cordoned.log.dirs", 1, None)
        assert sent == [(3, True, act), (3, False, act)], "to the controller, and first only validated"

        sent.clear()
        assert send(replace(DOWN, value="77"))[0] == 0
        assert sent == [(3, False, (4, "7", "cordoned.log.dirs", 0, "77"))]

        code = 102
        assert reassignments.refused_at_controller(at, DOWN) == Seen("BROKER_ID_NOT_REGISTERED: No node")
        assert send(DOWN)[0] == 0, "Kafka forgot the broker after it was unset"
        code = 31
        assert send(DOWN) == (1, "CLUSTER_AUTHORIZATION_FAILED: No node")

        # No controller, or none that can be reached from here.
        made.answer(DescribeQuorumRequest, quorum(1, leader=-1))
        assert isinstance(reassignments.refused_at_controller(at, DOWN), Unknown)
        made.answer(DescribeQuorumRequest, quorum(free_port()))
        unreached = reassignments.refused_at_controller(at, DOWN)
        assert isinstance(unreached, Unknown)
        assert "the controller at 127.0.0.1:" in unreached.why
        with pytest.raises(HostError, match="Whether the change was made is unknown"):
            send(DOWN)
        send.close()
