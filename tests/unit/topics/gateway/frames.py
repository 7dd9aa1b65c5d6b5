"""Frames as another implementation encodes them: kafka-python's."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any

from kafka.protocol.consumer import (
    FetchRequest,
    HeartbeatRequest,
    ListOffsetsRequest,
    ListOffsetsResponse,
    OffsetCommitRequest,
    OffsetFetchResponse,
    SyncGroupResponse,
)
from kafka.protocol.metadata import (
    ApiVersionsRequest,
    ApiVersionsResponse,
    FindCoordinatorResponse,
    MetadataRequest,
    MetadataResponse,
)
from kafka.protocol.producer import InitProducerIdRequest, ProduceRequest, TxnOffsetCommitRequest

from zkmigrate.topics.gateway.rules.messages import Head

__all__ = [
    "ApiVersionsRequest",
    "ApiVersionsResponse",
    "HeartbeatRequest",
    "InitProducerIdRequest",
    "MetadataRequest",
    "OffsetCommitRequest",
    "SyncGroupResponse",
]

EPOCH = 7
"""The leader epoch in all of these."""


def request(one: Any, version: int, correlation: int = 5, client: str = "app-1") -> bytes:
    """A request with its header, without its size."""
    one.API_VERSION = version
    one.with_header(correlation, client)
    return bytes(one.encode(header=True))


def answer(one: Any, version: int, correlation: int = 5) -> bytes:
    """An answer with its header, without its size."""
    one._header = None  # of an earlier version
    one.API_VERSION = version
    one.with_header(correlation)
    return bytes(one.encode(header=True))


def decoded(kind: Any, frame: bytes, version: int) -> dict[str, Any]:
    """An answer's or a request's fields."""
    return dict(kind.decode(frame, version=version, header=True).to_dict())


def head(key: int, version: int) -> Head:
    return Head(key, version, 5, "app-1", 0)


def metadata(nodes: int = 2, partitions: int = 3) -> Any:
    kind = MetadataResponse
    topic, part = kind.MetadataResponseTopic, kind.MetadataResponseTopic.MetadataResponsePartition
    return kind(
        throttle_time_ms=0,
        brokers=[
            kind.MetadataResponseBroker(node_id=n, host=f"old{n}.example", port=9092, rack=None)
            for n in range(1, nodes + 1)
        ],
        cluster_id="0123456789abcdefABCDEF",
        controller_id=1,
        topics=[
            topic(
                error_code=0,
                name="orders",
                is_internal=False,
                partitions=[
                    part(
                        error_code=0,
                        partition_index=n,
                        leader_id=1,
                        leader_epoch=EPOCH,
                        replica_nodes=[1, 2],
                        isr_nodes=[1],
                        offline_replicas=[],
                    )
                    for n in range(partitions)
                ],
                authorized_operations=None,
            )
        ],
        authorized_operations=None,
    )


def coordinator(version: int, node: int = 2) -> Any:
    kind = FindCoordinatorResponse
    host, port = ("old2.example", 9092) if node >= 0 else ("", -1)
    error = 0 if node >= 0 else 15
    if version < 4:
        return kind(
            throttle_time_ms=0, error_code=error, error_message=None, node_id=node, host=host, port=port
        )
    one = kind.Coordinator(
        key="group", node_id=node, host=host, port=port, error_code=error, error_message=None
    )
    return kind(throttle_time_ms=0, coordinators=[one])


def list_offsets() -> Any:
    kind = ListOffsetsRequest.ListOffsetsTopic
    part = kind.ListOffsetsPartition(partition_index=0, current_leader_epoch=EPOCH, timestamp=-1)
    return ListOffsetsRequest(
        replica_id=-1, isolation_level=0, topics=[kind(name="orders", partitions=[part])]
    )


def listed_offsets() -> Any:
    kind = ListOffsetsResponse.ListOffsetsTopicResponse
    part = kind.ListOffsetsPartitionResponse(
        partition_index=0, error_code=0, timestamp=-1, offset=99, leader_epoch=EPOCH
    )
    return ListOffsetsResponse(throttle_time_ms=0, topics=[kind(name="orders", partitions=[part])])


def offset_commit() -> Any:
    kind = OffsetCommitRequest.OffsetCommitRequestTopic
    part = kind.OffsetCommitRequestPartition(
        partition_index=0, committed_offset=99, committed_leader_epoch=EPOCH, committed_metadata="m"
    )
    return OffsetCommitRequest(
        group_id="group",
        generation_id_or_member_epoch=1,
        member_id="m",
        group_instance_id=None,
        topics=[kind(name="orders", partitions=[part])],
    )


def offset_fetched(version: int) -> Any:
    if version < 8:
        kind = OffsetFetchResponse.OffsetFetchResponseTopic
        part = kind.OffsetFetchResponsePartition(
            partition_index=0, committed_offset=9, committed_leader_epoch=EPOCH, metadata="", error_code=0
        )
        return OffsetFetchResponse(throttle_time_ms=0, topics=[kind(name="orders", partitions=[part])])
    group = OffsetFetchResponse.OffsetFetchResponseGroup
    topic = group.OffsetFetchResponseTopics
    one = topic.OffsetFetchResponsePartitions(
        partition_index=0, committed_offset=9, committed_leader_epoch=EPOCH, metadata="", error_code=0
    )
    own = group(group_id="group", topics=[topic(name="orders", partitions=[one])], error_code=0)
    return OffsetFetchResponse(throttle_time_ms=0, groups=[own])


def txn_offset_commit() -> Any:
    kind = TxnOffsetCommitRequest.TxnOffsetCommitRequestTopic
    part = kind.TxnOffsetCommitRequestPartition(
        partition_index=0, committed_offset=9, committed_leader_epoch=EPOCH, committed_metadata=None
    )
    return TxnOffsetCommitRequest(
        transactional_id="t",
        group_id="group",
        producer_id=1,
        producer_epoch=0,
        topics=[kind(name="orders", partitions=[part])],
    )


def fetch(topics: Mapping[str, Sequence[int]] = MappingProxyType({"orders": [EPOCH]})) -> Any:
    """A FETCH of topics with the leader epoch of each partition."""
    kind = FetchRequest.FetchTopic

    def part(epoch: int) -> Any:
        return kind.FetchPartition(
            partition=0,
            current_leader_epoch=epoch,
            fetch_offset=9,
            log_start_offset=-1,
            partition_max_bytes=1 << 20,
        )

    return FetchRequest(
        replica_id=-1,
        max_wait_ms=100,
        min_bytes=1,
        max_bytes=1 << 20,
        isolation_level=0,
        session_id=0,
        session_epoch=-1,
        topics=[kind(topic=name, partitions=[part(epoch) for epoch in own]) for name, own in topics.items()],
        forgotten_topics_data=[],
        rack_id="",
    )


def produce(acks: int = -1, transactional: str | None = None, records: bytes = b"records") -> Any:
    kind = ProduceRequest.TopicProduceData
    own = kind(name="orders", partition_data=[kind.PartitionProduceData(index=0, records=records)])
    return ProduceRequest(transactional_id=transactional, acks=acks, timeout_ms=100, topic_data=[own])


def software(name: str = "librdkafka", version: str = "2.16.0") -> Any:
    return ApiVersionsRequest(client_software_name=name, client_software_version=version)
