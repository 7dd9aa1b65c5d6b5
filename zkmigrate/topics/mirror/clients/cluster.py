"""Send the mirror's requests to one cluster: fetch, produce, end markers, ends of logs, topics and settings.

kafka-python has no public method for most of these requests. If a newer version of a request names topics by
id, an older version is sent.
"""

from __future__ import annotations

import logging
import math
import re
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeVar

from kafka.admin import KafkaAdminClient
from kafka.errors import KafkaError
from kafka.protocol.admin import DeleteRecordsRequest, DescribeConfigsRequest
from kafka.protocol.consumer import FetchRequest, ListOffsetsRequest
from kafka.protocol.metadata import MetadataRequest
from kafka.protocol.producer import ProduceRequest, WriteTxnMarkersRequest

from zkmigrate import deadline
from zkmigrate.errors import HostError
from zkmigrate.kafka.clients.connections import UnregisterBrokerRequest
from zkmigrate.kafka.clients.library import internals
from zkmigrate.kafka.error_text import describe_error, describe_exception
from zkmigrate.topics.mirror.clients.leads import Leads
from zkmigrate.topics.mirror.clients.owners import Owner, Owners
from zkmigrate.topics.mirror.rules.position import Ends
from zkmigrate.topics.mirror.rules.topic import Settings, describe

Part = tuple[str, int]
"""A topic's name and a partition's number."""
T = TypeVar("T")

REQUEST_S = 30.0
_OTHERS_S = 1.5 * REQUEST_S
"""Seconds after which a request that failed is not sent to another broker any more."""
FETCH_BYTES, PARTITION_BYTES = 16 << 20, 1 << 20
"""The most bytes of a fetch response, and of one partition in that response.

A broker still sends a larger batch, alone in a response.
"""
_WAIT_MS = 250
"""The longest time that a fetch waits for records, in milliseconds."""
_LARGEST = 128 << 20
_CONSUMER, UNCOMMITTED, COMMITTED = -1, 0, 1
_DEBUGGER = -2
"""The replica id in a ListOffsets request with which a leader returns its log end offset.

With other replica ids the leader returns its high watermark.
"""
_LATEST, _EARLIEST = -1, -2
_NO_EPOCH, _TOPIC, _BROKER = -1, 2, 4
_SUPER, _LEAST = "super.users", "min.insync.replicas"
_ANONYMOUS = "ANONYMOUS"
"""Kafka's name for the user of a client that does not log in."""

_IN_FLIGHT = 1 << 16
"""The most requests in flight on one connection, above which kafka-python refuses to send.

The copier has one request in flight for each partition.
"""
_OPEN: Mapping[str, Any] = {}
_PLAIN, _CUT = "PLAINTEXT", "socket disconnected"
"""The default protocol, and kafka-python's words for a broker that ends a connection without an answer."""
_REASON = re.compile(r"Connection (?:lost|failed): (.*)")

_LOG = logging.getLogger("kafka")
_LOG.addHandler(logging.NullHandler())  # the copier reports what matters
_LOG.setLevel(logging.INFO)  # kafka-python logs passwords at the level DEBUG


class _Said(logging.Handler):
    """A log handler that collects the reasons why connections failed.

    kafka-python reports these reasons only in its log.
    """

    def __init__(self) -> None:
        super().__init__()
        self.reasons: dict[str, None] = {}

    def emit(self, record: logging.LogRecord) -> None:
        if reason := _REASON.search(record.getMessage()):
            self.reasons[reason[1]] = None


@dataclass(frozen=True)
class Topic:
    """A topic of one cluster.

    leaders: the broker id of each partition's leader, -1 for a partition without a leader. replicas: the
    highest replica count of its partitions.
    """

    leaders: Mapping[int, int]
    replicas: int
    settings: Settings


class Latest(NamedTuple):
    """The offsets at which one partition's log ends.

    An offset is None if no leader reported it. end: the high watermark, up to which consumers can read.
    stable: the last stable offset. log_end: the log end offset of the leader. in_sync, replicas: broker ids.
    """

    end: int | None
    stable: int | None
    log_end: int | None = None
    in_sync: tuple[int, ...] = ()
    replicas: tuple[int, ...] = ()

    @property
    def last(self) -> int | None:
        """The end of the log, including records that consumers cannot read yet.

        It is the high watermark if the leader does not report its log end offset.
        """
        return self.end if self.end is None or self.log_end is None else max(self.end, self.log_end)


class _Led(NamedTuple):
    leader: int
    replicas: tuple[int, ...]
    in_sync: tuple[int, ...]


@dataclass(frozen=True)
class Fetched:
    """The part of a fetch response that belongs to one partition.

    error: Kafka's error code. end: the high watermark. stable: the last stable offset. aborted: the producer
    id and first offset of each aborted transaction. records: the record batches as received.
    """

    error: int
    end: int
    stable: int
    aborted: tuple[tuple[int, int], ...]
    records: bytes

    def shown(self, isolation: int) -> int:
        """Return the offset up to which the leader sends records to consumers with this isolation level."""
        return self.stable if isolation == COMMITTED else self.end


class _Client(KafkaAdminClient):  # type: ignore[misc]
    """An admin client of kafka-python that ends its thread even if it cannot connect.

    Queries are repeated for hours, so threads would accumulate otherwise.
    """

    def __init__(self, **configs: Any) -> None:
        try:
            super().__init__(**configs)
        except BaseException:
            if hasattr(self, "_client"):
                self._client.close()
            raise


class Cluster:
    """A connection to a cluster.

    what: the cluster's name in messages. brokers: ``host:port`` of each broker. security: the result of
    ``security.settings``. account: the principal of the connection by Kafka's default rules; with TLS alone,
    the brokers take the principal from the certificate instead.

    Each method raises HostError if no response arrived, so that the outcome of a change is unknown.
    """

    def __init__(self, what: str, brokers: Sequence[str], security: Mapping[str, Any] = _OPEN) -> None:
        self.what = what
        self._brokers = list(brokers)
        self.account = f"User:{security.get('sasl_plain_username', _ANONYMOUS)}"
        said = _Said()
        _LOG.addHandler(said)
        try:
            self._admin = _Client(
                bootstrap_servers=self._brokers,
                client_id="zkmigrate-mirror",
                request_timeout_ms=int(REQUEST_S * 1000),
                bootstrap_timeout_ms=int(deadline.remaining(REQUEST_S) * 1000),
                receive_message_max_bytes=_LARGEST,
                max_in_flight_requests_per_connection=_IN_FLIGHT,
                **security,
            )
        except (KafkaError, OSError) as error:
            seen = "; ".join(said.reasons)
            if str(security.get("security_protocol", "")).startswith("SASL"):
                # kafka-python may see the end of the connection before the broker's reason.
                seen = f"{seen}. With SASL, check the user and the password first"
            elif security.get("security_protocol", _PLAIN) == _PLAIN and _CUT in seen:
                seen = (
                    f"{seen}. The connection was plain text: if the brokers demand TLS or a login, give "
                    "clusters[].client in migration.yml, or mirror run's --source-config and --target-config"
                )
            raise self._silent(error, seen) from None
        finally:
            _LOG.removeHandler(said)
        self._net, self._manager = internals(self._admin)
        self._owners = Owners(self.begin, self.end)
        self.leads = Leads(what, self.begin, self.end)

    @property
    def at(self) -> str:
        """The addresses of the brokers as one text, in the form that Kafka's own tools accept."""
        return ",".join(self._brokers)

    def close(self) -> None:
        self._admin.close()

    def call(self, do: Callable[[KafkaAdminClient], T]) -> T:
        """Call a function with kafka-python's admin client, and return the function's result.

        Raises HostError if the call fails.
        """
        try:
            return do(self._admin)
        except (KafkaError, OSError) as error:
            raise self._silent(error) from None

    def _silent(self, error: Exception, why: str = "") -> HostError:
        text = f"{self.what} {self.at} did not respond: {describe_exception(error)}"
        return HostError(f"{text}. Cause: {why}" if why else text)

    def offers(self, request: Any) -> bool:
        """Return whether the cluster's brokers support a type of request."""
        return request.API_KEY in self._manager.broker_version_data.api_versions

    def begin(self, request: Any, node: int | None = None) -> Any:
        """Send a request and return at once. The method ``end`` waits for the response.

        node: the id of the broker that gets the request; None for any broker.
        """
        return self._net.call_soon_with_future(self._manager.send, request, node)

    def end(self, sent: Any) -> Any:
        """Wait for the response to a request, within :mod:`zkmigrate.deadline`, and return it."""
        most_s = deadline.remaining(math.inf)
        try:
            if math.isinf(most_s):  # the client's own limit holds
                return self._manager.run(lambda: sent)
            return self._manager.run(self._manager.wait_for, sent, most_s * 1000)
        except (KafkaError, OSError) as error:
            raise self._silent(error) from None

    def ask(self, request: Any, node: int | None = None) -> Any:
        """Send a request to a broker and return the response.

        If ``node`` is None, brokers are tried until one responds, because any broker may have failed a moment
        ago. Such a request must not change anything, because a broker that fails may have received it. Raises
        HostError if no broker responds.
        """
        began = time.monotonic()
        try:
            return self.end(self.begin(request, node))
        except HostError as error:
            failed = error
        for id in self._known() if node is None else ():
            if time.monotonic() - began >= _OTHERS_S:
                break
            with suppress(HostError):
                return self.end(self.begin(request, id))
        raise failed

    def _known(self) -> list[int]:
        """Return the ids of the brokers in the newest metadata."""
        return sorted(one.node_id for one in self._manager.cluster.brokers())

    # -- topics

    def id(self) -> str:
        """Return the cluster's id."""
        return str(self.ask(MetadataRequest(topics=[], allow_auto_topic_creation=False)).cluster_id)

    def leaders(self, topics: Iterable[str]) -> dict[str, dict[int, int]]:
        """Return the leaders of topics, by topic and partition; -1 for a partition without a leader.

        Topics that do not exist are left out.
        """
        return _leaders(self._led(topics))

    def _led(self, topics: Iterable[str]) -> dict[str, dict[int, _Led]]:
        named = [MetadataRequest.MetadataRequestTopic(name=name) for name in topics]
        answer = self.ask(MetadataRequest(topics=named, allow_auto_topic_creation=False))
        return {
            topic.name: {
                p.partition_index: _Led(p.leader_id, tuple(p.replica_nodes), tuple(p.isr_nodes))
                for p in topic.partitions
            }
            for topic in answer.topics
            if topic.partitions
        }

    def brokers(self) -> list[int]:
        """Return the ids of the live brokers."""
        answer = self.ask(MetadataRequest(topics=[], allow_auto_topic_creation=False))
        return sorted(one.node_id for one in answer.brokers)

    def controller(self) -> int:
        """Return the id of a broker that accepts changes of topics.

        With ZooKeeper this is the controller. Without ZooKeeper every broker forwards such changes, and
        Metadata may name any broker as the controller, even a broker that failed a moment ago. So the first
        broker that responds is returned. Raises HostError if no broker responds.
        """
        request = MetadataRequest(topics=[], allow_auto_topic_creation=False)
        answer = self.ask(request)
        if not self.offers(UnregisterBrokerRequest):
            return int(answer.controller_id)
        failed = HostError(f"{self.what}: no broker accepts changes to topics")
        for id in sorted((one.node_id for one in answer.brokers), key=lambda id: id != answer.controller_id):
            try:
                self.ask(request, id)
            except HostError as error:
                failed = error
            else:
                return int(id)
        raise failed

    def topics(self, names: Iterable[str]) -> tuple[dict[str, Topic], dict[str, str]]:
        """Read topics by name.

        Returns two dicts by topic: the topics that exist, and for other topics the reason why Kafka does not
        show them.
        """
        asked = [MetadataRequest.MetadataRequestTopic(name=name) for name in names]
        answer = self.ask(MetadataRequest(topics=asked, allow_auto_topic_creation=False))
        led = {one.name: one.partitions for one in answer.topics if one.partitions}
        hidden = self._unshown(answer)
        request = DescribeConfigsRequest(
            resources=[(_TOPIC, name, None) for name in led], include_synonyms=True, min_version=1
        )
        found = dict[str, Topic]()
        for result in self.ask(request).results if led else []:
            name = result.resource_name
            if result.error_code:
                why = describe_error(result.error_code, result.error_message)
                hidden[name] = f"{self.what} does not show the settings of topic {name}: {why}"
                continue
            leaders = {p.partition_index: p.leader_id for p in led[name]}
            replicas = max(len(p.replica_nodes) for p in led[name])
            found[name] = Topic(leaders, replicas, _settings(result.configs))
        return found, hidden

    def unshown(self, names: Iterable[str]) -> dict[str, str]:
        """Return, for each topic that Kafka does not show, the reason why.

        Topics that Kafka shows and topics that do not exist are left out.
        """
        asked = [MetadataRequest.MetadataRequestTopic(name=name) for name in names]
        return self._unshown(self.ask(MetadataRequest(topics=asked, allow_auto_topic_creation=False)))

    def _unshown(self, answer: Any) -> dict[str, str]:
        return {
            one.name: f"{self.what} does not report topic {one.name}: {describe_error(one.error_code)}"
            for one in answer.topics
            if not one.partitions and one.error_code != NO_TOPIC
        }

    def least_in_sync(self, names: Sequence[str]) -> dict[str, int]:
        """Return the min.insync.replicas setting of each topic.

        This is how many replicas must be in sync for a write with acks=all. Raises HostError if Kafka does
        not show the setting.
        """
        request = DescribeConfigsRequest(
            resources=[(_TOPIC, name, [_LEAST]) for name in names], min_version=1
        )
        found = dict[str, int]()
        for result in self.ask(request).results:
            name = result.resource_name
            if result.error_code:
                why = describe_error(result.error_code, result.error_message)
                raise HostError(f"{self.what} does not show {_LEAST} of topic {name}: {why}")
            found.update((name, int(one.value)) for one in result.configs if one.name == _LEAST)
        return found

    def super_users(self, node: int) -> bool:
        """Return whether ``super.users`` is set on this broker.

        The broker hides the value, as it does for every setting that it does not know. Raises HostError with
        Kafka's reason.
        """
        request = DescribeConfigsRequest(resources=[(_BROKER, str(node), [_SUPER])], min_version=1)
        [result] = self.ask(request, node).results
        if result.error_code:
            why = describe_error(result.error_code, result.error_message)
            raise HostError(f"{self.what} does not show {_SUPER}: {why}")
        return any(one.name == _SUPER for one in result.configs)

    # -- logs

    def ends(self, parts: Iterable[Part], *, committed: bool = False) -> dict[Part, Ends | int]:
        """Return where each partition's log begins and ends, or Kafka's error code.

        A partition is left out if it has no leader, or if the leader does not respond. committed: whether the
        end is the last stable offset, and not the high watermark.
        """
        starts = self._offsets(parts, _EARLIEST, UNCOMMITTED)
        ends = self._offsets(parts, _LATEST, COMMITTED if committed else UNCOMMITTED)
        found: dict[Part, Ends | int] = {}
        for part, (error, start) in starts.items():
            other, end = ends.get(part, (NO_LEADER, -1))
            found[part] = error or other or Ends(start, end)
        return found

    def first_at(self, leader: int, part: Part, ms: int) -> int:
        """Return the offset of a partition's first committed record that is not older than a time.

        leader: the broker id of the partition's leader. ms: the time in milliseconds since the epoch. Returns
        -1 if there is no such record, or if the leader does not report the offset.
        """
        asked = self._begin_offsets({leader: {part[0]: [part[1]]}}, ms, COMMITTED)
        error, offset = self._end_offsets(asked).get(part, (NO_LEADER, -1))
        return -1 if error else offset

    def latest(self, topics: Iterable[str]) -> dict[Part, Latest]:
        """Return the offsets at which the log of each partition of these topics ends.

        Topics that do not exist are left out. All requests are in flight at the same time.
        """
        led = self._led(topics)
        parts = [(name, number) for name, numbers in led.items() for number in numbers]
        by_leader = _grouped(parts, _leaders(led))
        # The log's end first, so that records written meanwhile do not seem to be unreadable.
        asked = ((_DEBUGGER, UNCOMMITTED), (_CONSUMER, UNCOMMITTED), (_CONSUMER, COMMITTED))
        sent = [self._begin_offsets(by_leader, _LATEST, isolation, asker) for asker, isolation in asked]
        last, ends, stable = (
            {part: offset for part, (error, offset) in self._end_offsets(one).items() if not error}
            for one in sent
        )
        return {
            (name, n): Latest(
                ends.get((name, n)), stable.get((name, n)), last.get((name, n)), one.in_sync, one.replicas
            )
            for name, numbers in led.items()
            for n, one in numbers.items()
        }

    def _offsets(self, parts: Iterable[Part], which: int, isolation: int) -> dict[Part, tuple[int, int]]:
        return self._end_offsets(self._begin_offsets(self._by_leader(parts), which, isolation))

    def _begin_offsets(
        self,
        by_leader: Mapping[int, Mapping[str, Sequence[int]]],
        which: int,
        isolation: int,
        asker: int = _CONSUMER,
    ) -> list[Any]:
        kind = ListOffsetsRequest.ListOffsetsTopic
        sent = []
        for leader, by_topic in by_leader.items():
            topics = [
                kind(
                    name=name,
                    partitions=[
                        kind.ListOffsetsPartition(
                            partition_index=p, current_leader_epoch=_NO_EPOCH, timestamp=which
                        )
                        for p in numbers
                    ],
                )
                for name, numbers in by_topic.items()
            ]
            request = ListOffsetsRequest(
                replica_id=asker, isolation_level=isolation, topics=topics, max_version=5
            )
            sent.append(self.begin(request, leader))
        return sent

    def _end_offsets(self, sent: Iterable[Any]) -> dict[Part, tuple[int, int]]:
        """Return Kafka's error code and the offset of each partition for which a leader responded.

        sent: the ListOffsets requests that were sent.
        """
        found = dict[Part, tuple[int, int]]()
        for one in sent:
            with suppress(HostError):  # the partitions of a leader that is gone are left out
                for topic in self.end(one).topics:
                    for p in topic.partitions:
                        found[topic.name, p.partition_index] = p.error_code, p.offset
        return found

    def _by_leader(self, parts: Iterable[Part]) -> dict[int, dict[str, list[int]]]:
        """Group partitions by the id of their leader and by topic. Leave out partitions without a leader."""
        wanted = list(parts)
        return _grouped(wanted, self.leaders({name for name, _ in wanted}))

    def begin_fetch(
        self, leader: int, offsets: Mapping[Part, int], isolation: int = COMMITTED, most: int = FETCH_BYTES
    ) -> Any:
        """Request record batches from the given offsets on, and return at once.

        The method ``fetched`` waits for the response. isolation: the isolation level of the consumer. most:
        the most bytes of the response.
        """
        kind = FetchRequest.FetchTopic
        by_topic: dict[str, list[Any]] = defaultdict(list)
        for (name, number), offset in offsets.items():
            by_topic[name].append(
                kind.FetchPartition(
                    partition=number,
                    current_leader_epoch=_NO_EPOCH,
                    fetch_offset=offset,
                    log_start_offset=-1,
                    partition_max_bytes=PARTITION_BYTES,
                )
            )
        request = FetchRequest(
            replica_id=_CONSUMER,
            max_wait_ms=_WAIT_MS,
            min_bytes=1,
            max_bytes=most,
            isolation_level=isolation,
            session_id=0,
            session_epoch=-1,
            topics=[kind(topic=name, partitions=own) for name, own in by_topic.items()],
            forgotten_topics_data=[],
            rack_id="",
            max_version=11,
        )
        return self.begin(request, leader)

    def arrived(self, sent: Any) -> bool:
        """Return whether the response to a request has arrived, or can no longer arrive."""
        return bool(sent.is_done)

    def fetched(self, sent: Any) -> dict[Part, Fetched]:
        """Wait for the response to ``begin_fetch``, and return its parts by partition.

        Raises HostError if the request as a whole failed.
        """
        answer = self.end(sent)
        if getattr(answer, "error_code", 0):
            raise HostError(f"{self.what}: {describe_error(answer.error_code)}")
        return {
            (topic.topic, p.partition_index): Fetched(
                p.error_code,
                p.high_watermark,
                p.last_stable_offset,
                tuple((one.producer_id, one.first_offset) for one in p.aborted_transactions or ()),
                bytes(p.records or b""),
            )
            for topic in answer.responses
            for p in topic.partitions
        }

    def begin_produce(self, leader: int, batches: Mapping[Part, bytes]) -> Any:
        """Send one batch for each partition with acks=all, and return at once.

        The method ``produced`` waits for the response.
        """
        kind = ProduceRequest.TopicProduceData
        by_topic: dict[str, list[Any]] = defaultdict(list)
        for (name, number), data in batches.items():
            by_topic[name].append(kind.PartitionProduceData(index=number, records=data))
        request = ProduceRequest(
            transactional_id=None,
            acks=-1,
            timeout_ms=int(REQUEST_S * 1000),
            topic_data=[kind(name=name, partition_data=own) for name, own in by_topic.items()],
            max_version=8,
        )
        return self.begin(request, leader)

    def produced(self, sent: Any) -> dict[Part, tuple[int, int, str]]:
        """Wait for the response to ``begin_produce``, and return its parts by partition.

        Each part consists of Kafka's error code, the base offset, and the error message.
        """
        return {
            (topic.name, p.index): (p.error_code, p.base_offset, _refused(p))
            for topic in self.end(sent).responses
            for p in topic.partition_responses
        }

    def mark(self, leader: int, counts: Mapping[Part, tuple[int, Owner]]) -> dict[Part, int]:
        """Append end markers of empty, aborted transactions to partitions of one leader.

        counts: by partition, the number of markers, and the owner of the transactional id that writes them.
        Returns Kafka's error code by partition, 0 for no error.
        """
        kind = WriteTxnMarkersRequest.WritableTxnMarker
        markers = []
        for round in range(max(count for count, _ in counts.values())):
            by_owner: dict[Owner, dict[str, list[int]]] = defaultdict(lambda: defaultdict(list))
            for (name, number), (count, owner) in counts.items():
                if round < count:
                    by_owner[owner][name].append(number)
            for owner, by_topic in by_owner.items():
                topics = [
                    kind.WritableTxnMarkerTopic(name=name, partition_indexes=numbers)
                    for name, numbers in by_topic.items()
                ]
                markers.append(
                    kind(
                        producer_id=owner.id,
                        producer_epoch=owner.epoch,
                        transaction_result=False,
                        topics=topics,
                        coordinator_epoch=0,
                    )
                )
        found: dict[Part, int] = {}
        for marker in self.ask(WriteTxnMarkersRequest(markers=markers), leader).markers:
            for topic in marker.topics:
                for p in topic.partitions:
                    part = (topic.name, p.partition_index)
                    found[part] = found.get(part, 0) or p.error_code
        return found

    def drop(self, part: Part, offset: int) -> int:
        """Delete the records of a partition below an offset, and return Kafka's error code."""
        kind = DeleteRecordsRequest.DeleteRecordsTopic
        name, number = part
        below = kind.DeleteRecordsPartition(partition_index=number, offset=offset)
        request = DeleteRecordsRequest(
            topics=[kind(name=name, partitions=[below])], timeout_ms=int(REQUEST_S * 1000)
        )
        for leader in self._by_leader([part]):
            [topic] = self.ask(request, leader).topics
            return int(topic.partitions[0].error_code)
        return NO_LEADER

    # -- who may write end markers

    def take(self, names: Sequence[str]) -> dict[str, Owner | int]:
        """Take over transactional ids, so that their former owners can no longer write.

        Returns a dict by transactional id. A value is the new owner, or Kafka's error code.
        """
        return self._owners.take(names)

    def ended(self, owners: Sequence[Owner]) -> dict[str, int]:
        """Check whether owners still own their transactional ids, without changing anything.

        Each owner asks to end a transaction that was never begun. Returns Kafka's error code for this
        request, by transactional id; the code shows whether the owner still owns the id.
        """
        return self._owners.ended(owners)


NO_LEADER, NO_TOPIC = 5, 3
"""Kafka's error codes LEADER_NOT_AVAILABLE and UNKNOWN_TOPIC_OR_PARTITION."""


def _settings(configs: Iterable[Any]) -> Settings:
    return describe(
        (
            one.name,
            one.value or "",
            one.config_source,
            [(s.name, s.value or "", s.source) for s in one.synonyms],
        )
        for one in configs
    )


def _refused(answer: Any) -> str:
    """Return Kafka's message about a refused batch, or an empty text if the batch was not refused.

    If the broker names an invalid record, this is the message about the first invalid record.
    """
    if not answer.error_code:
        return ""
    first = next((one.batch_index_error_message for one in answer.record_errors or ()), None)
    return describe_error(answer.error_code, first or answer.error_message)


def _leaders(led: Mapping[str, Mapping[int, _Led]]) -> dict[str, dict[int, int]]:
    return {name: {p: one.leader for p, one in parts.items()} for name, parts in led.items()}


def _grouped(parts: Iterable[Part], led: Mapping[str, Mapping[int, int]]) -> dict[int, dict[str, list[int]]]:
    """Group partitions by the id of their leader and by topic. Partitions without a leader are left out.

    led: the leaders by topic and partition.
    """
    found: dict[int, dict[str, list[int]]] = defaultdict(lambda: defaultdict(list))
    for name, number in parts:
        leader = led.get(name, {}).get(number, -1)
        if leader >= 0:
            found[leader][name].append(number)
    return found
