"""Where logs of replicas end, as brokers tell a client with real connections."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
from kafka.protocol.consumer import ListOffsetsRequest, ListOffsetsResponse

from tests.unit.kafka.clients import wire_brokers
from zkmigrate.kafka.clients import log_ends
from zkmigrate.kafka.questions import LogEnd, ReadLogEnds
from zkmigrate.runbook.model.fact import Seen, Unknown

Topic = ListOffsetsResponse.ListOffsetsTopicResponse
END, MARK = -2, -1
"""The replica ids of a debugging consumer and of a consumer."""
Offsets = Mapping[tuple[int, int, int], tuple[int, int, int]]
"""By broker, replica id of the asker and partition: error code, offset, leader epoch."""
LEADER = {(1, END, 0): (0, 28, 4), (1, MARK, 0): (0, 21, 4)}
COPY = {(2, END, 0): (0, 5, 3), (2, MARK, 0): (6, -1, -1)}


def told(offsets: Offsets, asked: Mapping[int, list[int]]) -> Mapping[int, Any]:
    """What the client makes of these answers about topic a."""

    def answer(id: int, request: Any) -> Mapping[str, Any]:
        [topic] = request.topics
        rows = []
        for p in topic.partitions:
            assert p.timestamp == -1
            code, offset, epoch = offsets[id, request.replica_id, p.partition_index]
            rows.append(
                Topic.ListOffsetsPartitionResponse(
                    partition_index=p.partition_index,
                    error_code=code,
                    timestamp=-1,
                    offset=offset,
                    leader_epoch=epoch,
                )
            )
        return {"topics": [Topic(name=topic.name, partitions=rows)]}

    with wire_brokers.brokers(tuple(asked), {ListOffsetsRequest: answer}) as made:
        seen = log_ends.log_ends(list(made.at.values()), {id: {"a": ns} for id, ns in asked.items()})
        assert isinstance(seen, Seen), seen
        return seen.value


def test_p14_every_replica_tells_its_log_end_and_the_leader_its_high_watermark() -> None:
    assert told({**LEADER, **COPY}, {1: [0], 2: [0]}) == {
        1: Seen({("a", 0): Seen(LogEnd(28, 21, 4))}),
        2: Seen({("a", 0): Seen(LogEnd(5, None, 3))}),
    }


@pytest.mark.parametrize(("code", "cause"), [(29, "denied"), (6, "failed"), (3, "failed")])
def test_what_one_replica_does_not_tell_hides_no_other(code: int, cause: str) -> None:
    refused = {(1, END, 1): (code, -1, -1), (1, MARK, 1): (code, -1, -1)}
    [one] = told({**LEADER, **refused}, {1: [0, 1]}).values()
    assert one.value["a", 0] == Seen(LogEnd(28, 21, 4))
    unknown = one.value["a", 1]
    assert isinstance(unknown, Unknown)
    assert unknown.cause == cause
    assert unknown.why.startswith("the log end of a-1 on broker 1: ")


@pytest.mark.parametrize("wrong", [{**LEADER, (1, END, 0): (0, -1, 4)}, {**LEADER, (1, MARK, 0): (0, -1, 4)}])
def test_an_impossible_offset_is_no_offset(wrong: Offsets) -> None:
    [one] = told(wrong, {1: [0]}).values()
    assert isinstance(one, Unknown)
    assert one.cause == "garbled"


def test_the_look_states_what_it_asks_of_whom() -> None:
    assert "two ListOffsets requests" in ReadLogEnds.costs
