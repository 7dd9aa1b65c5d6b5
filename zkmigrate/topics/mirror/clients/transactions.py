"""Find the clients that write to topics in transactions.

The facts come from a cluster's leaders and coordinators, or from the coordinators' log. DescribeProducers
exists since Kafka 2.8, ListTransactions since Kafka 3.0. Coordinators of an older cluster store their facts
in the topic ``__transaction_state``, which is read instead.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from kafka.protocol.admin import (
    DescribeProducersRequest,
    DescribeTransactionsRequest,
    ListTransactionsRequest,
)

from zkmigrate.errors import HostError
from zkmigrate.kafka.error_text import describe_error
from zkmigrate.topics.mirror.clients.cluster import Cluster, Part
from zkmigrate.topics.mirror.clients.codecs import KafkaCodecs
from zkmigrate.topics.mirror.clients.listing import each
from zkmigrate.topics.mirror.clients.reading import committed
from zkmigrate.topics.mirror.rules.batch import BatchError
from zkmigrate.topics.mirror.rules.needed import TRANSACTIONS
from zkmigrate.topics.mirror.rules.position import Ends
from zkmigrate.topics.mirror.rules.records import read_varint, seen
from zkmigrate.topics.mirror.rules.transactions import OPEN, Producer, Transactional, Writers, kept, writers

_NOBODYS = "5f2c1a90-an-id-of-nobody"
"""A transactional id for a test: an account may describe it only if the account may describe every id."""
_GONE = 105
"""Kafka's error code TRANSACTIONAL_ID_NOT_FOUND."""
ID_DENIED = 53
"""Kafka's error code TRANSACTIONAL_ID_AUTHORIZATION_FAILED."""
_MOST_RECORDS = 200_000
"""The most records that are read from the topic ``__transaction_state``."""


def transactional(cluster: Cluster, topics: Collection[str]) -> Writers:
    """Return the producers that write to these topics in transactions, without changing anything."""
    why = list(cluster.unshown(topics).values())
    producers = _producers(cluster, topics, why) if cluster.offers(DescribeProducersRequest) else None
    ids = (_listed if cluster.offers(ListTransactionsRequest) else _kept)(cluster, why)
    return writers(producers, list(ids.values()), topics, "; ".join(why))


def _producers(cluster: Cluster, topics: Collection[str], why: list[str]) -> dict[Part, list[Producer]]:
    kind = DescribeProducersRequest.TopicRequest
    led: dict[int, dict[str, list[int]]] = {}
    for name, numbers in cluster.leaders(topics).items():
        for number, leader in numbers.items():
            if leader < 0:
                why.append(f"{name}-{number} has no leader")
            else:
                led.setdefault(leader, {}).setdefault(name, []).append(number)
    asked = {
        leader: (
            DescribeProducersRequest(
                topics=[kind(name=name, partition_indexes=numbers) for name, numbers in by_topic.items()]
            ),
            leader,
        )
        for leader, by_topic in led.items()
    }
    found = {}
    for leader, answer in each(cluster, asked).items():
        if isinstance(answer, HostError):
            why.append(str(answer))
            continue
        told = {(topic.name, one.partition_index) for topic in answer.topics for one in topic.partitions}
        missing = {(name, n) for name, numbers in led[leader].items() for n in numbers} - told
        why += [f"broker {leader} does not report the producers of {name}-{n}" for name, n in sorted(missing)]
        for topic in answer.topics:
            for one in topic.partitions:
                if one.error_code:
                    reason = describe_error(one.error_code, one.error_message)
                    why.append(f"producers of {topic.name}-{one.partition_index}: {reason}")
                found[topic.name, one.partition_index] = [_producer(p) for p in one.active_producers]
    return found


def _producer(told: Any) -> Producer:
    ended = told.coordinator_epoch >= 0 or told.current_txn_start_offset >= 0
    return Producer(told.producer_id, told.last_timestamp, ended)


def _listed(cluster: Cluster, why: list[str]) -> dict[str, Transactional]:
    """Return the transactional ids that coordinators list, with the partitions of open transactions.

    why: a list to which the reasons for missing facts are appended. Brokers leave out the ids that this
    account may not describe, without an error.
    """
    try:
        if not describes_every_id(cluster):
            why.append("brokers list only the transactional ids that this account may describe")
    except HostError as error:
        why.append(f"it is not known whether all transactional ids are listed: {error}")
    asked: dict[Any, Any] = {
        node: (ListTransactionsRequest(state_filters=[], producer_id_filters=[], max_version=0), node)
        for node in cluster.brokers()
    }
    found, opened = dict[str, Transactional](), dict[int, list[str]]()
    for node, answer in each(cluster, asked).items():
        if isinstance(answer, HostError) or answer.error_code:
            reason = answer if isinstance(answer, HostError) else describe_error(answer.error_code)
            why.append(f"transactional ids of broker {node}: {reason}")
            continue
        for one in answer.transaction_states:
            found[one.transactional_id] = Transactional(
                one.transactional_id, one.producer_id, one.transaction_state
            )
            if one.transaction_state in OPEN:
                opened.setdefault(node, []).append(one.transactional_id)
    asked = {node: (DescribeTransactionsRequest(transactional_ids=ids), node) for node, ids in opened.items()}
    for node, answer in each(cluster, asked).items():
        if isinstance(answer, HostError):
            why.append(f"open transactions of broker {node}: {answer}")
            continue
        for one in answer.transaction_states:
            if one.error_code not in (0, _GONE):
                why.append(f"open transaction of {one.transactional_id}: {describe_error(one.error_code)}")
            elif not one.error_code:
                parts = frozenset((topic.topic, n) for topic in one.topics for n in topic.partitions)
                found[one.transactional_id] = Transactional(
                    one.transactional_id, one.producer_id, one.transaction_state, parts
                )
    return found


def describes_every_id(cluster: Cluster) -> bool:
    """Return whether this account may describe every transactional id."""
    request = DescribeTransactionsRequest(transactional_ids=[_NOBODYS])
    [told] = cluster.ask(request).transaction_states
    return bool(told.error_code != ID_DENIED)


def _kept(cluster: Cluster, why: list[str]) -> dict[str, Transactional]:
    """Return every transactional id that the coordinators' own log contains.

    why: a list to which the reasons for missing ids are appended, for example that this account may not read
    the log.
    """
    why += [
        f"transactional ids: {told}. Needed: the rights Read and Describe on that topic"
        for told in cluster.unshown([TRANSACTIONS]).values()
    ]
    led = cluster.leaders([TRANSACTIONS]).get(TRANSACTIONS, {})
    ends = cluster.ends([(TRANSACTIONS, number) for number in led])
    found, left = dict[str, Transactional](), _MOST_RECORDS
    for number, leader in led.items():
        one = ends.get((TRANSACTIONS, number))
        try:
            if not isinstance(one, Ends):
                raise HostError("no response" if one is None else describe_error(one))
            left -= one.end - one.start
            if left < 0:
                raise HostError(f"the topic has more than {_MOST_RECORDS:,} records")
            found |= _partition(cluster, leader, number, one)
        except (HostError, BatchError, ValueError) as error:
            why.append(f"transactional ids in {TRANSACTIONS}-{number}: {error}")
    return found


def _partition(cluster: Cluster, leader: int, number: int, ends: Ends) -> Mapping[str, Transactional]:
    found = dict[str, Transactional]()
    part = (TRANSACTIONS, number)
    codecs = KafkaCodecs()
    batches = committed(cluster, leader, part, ends.start, ends.end, codecs)
    for _, _, body in (record for batch in batches for record in seen(batch, codecs)):
        length, at = read_varint(body, 0)
        key = body[at : at + length]
        length, at = read_varint(body, at + length)
        told = kept(key, None if length < 0 else body[at : at + length])
        if told is not None and told[1] is not None:
            found[told[0]] = told[1]
        elif told is not None:
            found.pop(told[0], None)
    return found
