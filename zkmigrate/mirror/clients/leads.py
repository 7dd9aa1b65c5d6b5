"""Where a cluster keeps who leads a mirrored topic: in the commits of a group that has no members.

The offset is the fencing number of the run that wrote it. Kafka keeps the commit as long as the topic.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping
from typing import Any

from kafka.protocol.consumer import OffsetCommitRequest, OffsetFetchRequest
from kafka.protocol.metadata import FindCoordinatorRequest

from zkmigrate import deadline
from zkmigrate.errors import HostError
from zkmigrate.kafka.said import said
from zkmigrate.mirror.rules.direction import Lead, parse

GROUP = "zkmigrate-mirror"
"""The group. It has commits for partition 0 of each topic."""
_KIND_GROUP, _PARTITION = 0, 0
_FOREVER_MS = 100 * 365 * 86_400_000
"""Without a time of its own a commit of a group without members ends after a week."""
_ELSEWHERE = frozenset({14, 15, 16})
"""COORDINATOR_LOAD_IN_PROGRESS, COORDINATOR_NOT_AVAILABLE and NOT_COORDINATOR: ask again."""
_MOST_S, _AGAIN_S = 30.0, 0.1


class Leads:
    """Asks a cluster's coordinator of the group. begin, end: send a request to a node, and wait for its
    answer. The first question ever makes Kafka's topic of commits."""

    def __init__(self, what: str, begin: Callable[..., Any], end: Callable[[Any], Any]) -> None:
        self._what, self._begin, self._end = what, begin, end
        self._node: int | None = None

    def ask(self, topics: Collection[str]) -> Any:
        """Send the question and return at once; ``told`` waits for the answer."""
        return self._begin(_question(topics), self._coordinator())

    def told(self, topics: Collection[str], sent: Any) -> dict[str, Lead]:
        """The answer: topics that have a leader. It is as new as the question. HostError."""
        answer = self._answer(sent)
        if answer.error_code in _ELSEWHERE:
            answer = self._again(_question(topics), lambda one: one.error_code)
        return _leads(self._what, answer)

    def told_by(self, node: int, topics: Collection[str]) -> dict[str, Lead]:
        """What this node, the coordinator, tells. It makes no topic. HostError."""
        return _leads(self._what, self._end(self._begin(_question(topics), node)))

    def keep(self, kept: Mapping[str, Lead]) -> None:
        """Keep these, by topic. HostError with Kafka's reason, or when that is unknown."""
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
            max_version=4,  # later ones have no time to keep it
        )
        answer = self._again(request, _committed)
        if error := _committed(answer):
            raise HostError(f"{self._what} did not keep who leads: {told_of(error)}")

    def _answer(self, sent: Any) -> Any:
        try:
            return self._end(sent)
        except HostError:
            self._node = None
            raise

    def _again(self, request: Any, error: Callable[[Any], int]) -> Any:
        """The answer, once the coordinator is found and ready. error: of an answer."""
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
                raise HostError(f"{self._what} does not tell who leads: {told_of(answer.error_code)}")
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


def _leads(what: str, answer: Any) -> dict[str, Lead]:
    """What a coordinator's answer tells. HostError."""
    parts = [(topic.name, one) for topic in answer.topics for one in topic.partitions]
    if error := max((answer.error_code, *(one.error_code for _, one in parts)), key=abs):
        raise HostError(f"{what} does not tell who leads: {told_of(error)}")
    known = ((name, one) for name, one in parts if one.committed_offset >= 0)
    return {name: parse(one.metadata or "", one.committed_offset) for name, one in known}


def _committed(answer: Any) -> int:
    return max((one.error_code for topic in answer.topics for one in topic.partitions), key=abs, default=0)


def told_of(error: int) -> str:
    """Kafka's error about the group."""
    return f"{said(error)} for the group {GROUP}"
