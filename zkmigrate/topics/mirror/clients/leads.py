"""Store which cluster leads each mirrored topic, in the commits of a consumer group without members.

The leading cluster is the one to which clients write.

The committed offset is the fencing number of the run that wrote it. Kafka retains the commit as long as the
topic exists.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping
from typing import Any

from kafka.protocol.consumer import OffsetCommitRequest, OffsetFetchRequest
from kafka.protocol.metadata import FindCoordinatorRequest

from zkmigrate import deadline
from zkmigrate.errors import HostError
from zkmigrate.kafka.error_text import describe_error
from zkmigrate.topics.mirror.rules.direction import Lead, parse

GROUP = "zkmigrate-mirror"
"""The name of the consumer group, which has a commit for partition 0 of each topic."""
_KIND_GROUP, _PARTITION = 0, 0
_FOREVER_MS = 100 * 365 * 86_400_000
"""The retention time of the commits, in milliseconds.

If no retention time is sent, Kafka deletes the commits of a group without members after a week.
"""
_ELSEWHERE = frozenset({14, 15, 16})
"""Kafka's error codes COORDINATOR_LOAD_IN_PROGRESS, COORDINATOR_NOT_AVAILABLE and NOT_COORDINATOR.

After such an error the request is sent again.
"""
_MOST_S, _AGAIN_S = 30.0, 0.1


class Leads:
    """A store of the leading cluster of each topic, at the coordinator of the group ``GROUP``.

    begin: a function that sends a request to a node. end: a function that waits for the response. The first
    request to a cluster creates ``__consumer_offsets`` if that topic does not exist yet.
    """

    def __init__(self, what: str, begin: Callable[..., Any], end: Callable[[Any], Any]) -> None:
        self._what, self._begin, self._end = what, begin, end
        self._node: int | None = None

    def ask(self, topics: Collection[str]) -> Any:
        """Send a request for the leading clusters of topics, and return at once.

        The method ``told`` waits for the response.
        """
        return self._begin(_question(topics), self._coordinator())

    def told(self, topics: Collection[str], sent: Any) -> dict[str, Lead]:
        """Wait for the response to ``ask``, and return the recorded leading clusters by topic.

        The response is at least as new as the request. Raises HostError.
        """
        answer = self._answer(sent)
        if answer.error_code in _ELSEWHERE:
            answer = self._again(_question(topics), lambda one: one.error_code)
        return _leads(self._what, topics, answer)

    def told_by(self, node: int, topics: Collection[str]) -> dict[str, Lead]:
        """Return the leading clusters of topics as a given broker reports them.

        node: the id of the broker that is the group's coordinator. The request creates no topic. Raises
        HostError.
        """
        return _leads(self._what, topics, self._end(self._begin(_question(topics), node)))

    def keep(self, kept: Mapping[str, Lead]) -> None:
        """Record the leading clusters of topics.

        Raises HostError with Kafka's reason if it refuses, and HostError if the outcome is unknown.
        """
        kind = OffsetCommitRequest.OffsetCommitRequestTopic
        request = OffsetCommitRequest(
            group_id=GROUP,
            generation_id_or_member_epoch=-1,
            member_id="",
            retention_time_ms=_FOREVER_MS,
            topics=[
                kind(
                    name=topic,
                    partitions=[
                        kind.OffsetCommitRequestPartition(
                            partition_index=_PARTITION,
                            committed_offset=one.number,
                            committed_metadata=one.text,
                        )
                    ],
                )
                for topic, one in kept.items()
            ],
            min_version=2,
            max_version=4,  # later ones have no retention time
        )
        answer = self._again(request, _committed)
        if error := _committed(answer):
            raise HostError(f"{self._what} did not record the direction: {told_of(error)}")

    def _answer(self, sent: Any) -> Any:
        try:
            return self._end(sent)
        except HostError:
            self._node = None
            raise

    def _again(self, request: Any, error: Callable[[Any], int]) -> Any:
        """Send a request until the coordinator is found and ready, and return the response.

        error: a function that returns the error code of a response.
        """
        end = time.monotonic() + deadline.remaining(_MOST_S)
        while True:
            answer = self._answer(self._begin(request, self._coordinator()))
            if error(answer) not in _ELSEWHERE or time.monotonic() > end:
                return answer
            self._node = None
            time.sleep(_AGAIN_S)

    def _coordinator(self) -> int:
        end = time.monotonic() + deadline.remaining(_MOST_S)
        while self._node is None:
            request = FindCoordinatorRequest(key=GROUP, key_type=_KIND_GROUP, max_version=3)
            answer = self._end(self._begin(request))
            if not answer.error_code:
                self._node = int(answer.node_id)
            elif answer.error_code not in _ELSEWHERE or time.monotonic() > end:
                raise HostError(
                    f"{self._what} does not report the recorded direction: {told_of(answer.error_code)}"
                )
            else:
                time.sleep(_AGAIN_S)
        return self._node


def _question(topics: Collection[str]) -> OffsetFetchRequest:
    kind = OffsetFetchRequest.OffsetFetchRequestTopic
    return OffsetFetchRequest(
        group_id=GROUP,
        topics=[kind(name=topic, partition_indexes=[_PARTITION]) for topic in topics],
        min_version=2,
        max_version=7,
    )


def _leads(what: str, topics: Collection[str], answer: Any) -> dict[str, Lead]:
    """Return the leading clusters in a coordinator's response, by topic.

    what: the name of the cluster in messages. Raises HostError if the response has an error or lacks one of
    the topics. Topics for which nothing is recorded are left out; every copier may write such topics.
    """
    parts = [(topic.name, one) for topic in answer.topics for one in topic.partitions]
    if error := max((answer.error_code, *(one.error_code for _, one in parts)), key=abs):
        raise HostError(f"{what} does not report the recorded direction: {told_of(error)}")
    if missing := sorted({*topics} - {name for name, _ in parts}):
        raise HostError(f"{what} does not report the recorded direction of topic {', '.join(missing)}")
    known = ((name, one) for name, one in parts if one.committed_offset >= 0)
    return {name: parse(one.metadata or "", one.committed_offset) for name, one in known}


def _committed(answer: Any) -> int:
    return max((one.error_code for topic in answer.topics for one in topic.partitions), key=abs, default=0)


def told_of(error: int) -> str:
    """Return Kafka's error as a text that names the group."""
    return f"{describe_error(error)} for the group {GROUP}"
