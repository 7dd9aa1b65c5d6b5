"""Read where the logs of replicas end, from the brokers that hold them.

Tried on Kafka 2.8.2 and 3.9.1: every replica answers ListOffsets from a *debugging consumer* (replica id -2)
with its log end offset. From an ordinary consumer (-1) only the leader answers, with the high watermark.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from kafka.protocol.consumer import ListOffsetsRequest

from zkmigrate.kafka.clients.each_broker import of_each
from zkmigrate.kafka.clients.library import send
from zkmigrate.kafka.error_text import describe_error
from zkmigrate.kafka.questions import LogEnd
from zkmigrate.runbook.model.fact import Reading, Seen, Unknown

_CONSUMER, _DEBUGGING_CONSUMER = -1, -2
_LATEST = -1
_DENIED = 29
"""TOPIC_AUTHORIZATION_FAILED."""

Ends = Mapping[tuple[str, int], Reading[LogEnd]]


def log_ends(
    brokers: Sequence[str], replicas: Mapping[int, Mapping[str, Sequence[int]]]
) -> Reading[Mapping[int, Reading[Ends]]]:
    """Return where the logs of these replicas end, by broker id and partition.

    brokers: those of the cluster, ``host:port``. replicas: by broker id, the partitions by topic.
    """

    def question(admin: Any, id: int) -> Reading[Ends]:
        ends, marks = (
            _offsets(send(admin, _request(consumer, replicas[id]), id))
            for consumer in (_DEBUGGING_CONSUMER, _CONSUMER)
        )
        names = [(topic, number) for topic, numbers in replicas[id].items() for number in numbers]
        return Seen({name: _end(id, name, ends[name], marks[name]) for name in names})

    return of_each(brokers, tuple(replicas), question)


def _request(consumer: int, partitions: Mapping[str, Sequence[int]]) -> ListOffsetsRequest:
    topic = ListOffsetsRequest.ListOffsetsTopic
    return ListOffsetsRequest(
        replica_id=consumer,
        isolation_level=0,
        topics=[
            topic(
                name=name,
                partitions=[
                    topic.ListOffsetsPartition(partition_index=number, timestamp=_LATEST)
                    for number in numbers
                ],
            )
            for name, numbers in partitions.items()
        ],
        min_version=4,  # the first version with the leader epoch
    )


def _offsets(answer: Mapping[str, Any]) -> dict[tuple[str, int], tuple[int, int, int]]:
    """Return (error code, offset, leader epoch) of each partition in an answer."""
    return {
        (topic["name"], p["partition_index"]): (p["error_code"], p["offset"], p["leader_epoch"])
        for topic in answer["topics"]
        for p in topic["partitions"]
    }


def _end(
    id: int, name: tuple[str, int], end: tuple[int, int, int], mark: tuple[int, int, int]
) -> Reading[LogEnd]:
    """Combine the two answers about one replica; raises ValueError for an impossible offset."""
    code, offset, epoch = end
    if code:
        why = f"the log end of {name[0]}-{name[1]} on broker {id}: {describe_error(code)}"
        return Unknown("denied" if code == _DENIED else "failed", why)
    refused, watermark, _ = mark
    if offset < 0 or (not refused and watermark < 0):
        raise ValueError(f"{name[0]}-{name[1]}: log end {offset}, high watermark {watermark}")
    return Seen(LogEnd(offset, None if refused else watermark, None if epoch < 0 else epoch))
