"""Decide how the copier continues after a broker's response."""

from __future__ import annotations

from dataclasses import dataclass

from zkmigrate.topics.mirror.rules.position import Failed, foreign

OFFSET_OUT_OF_RANGE, OFFSET_NOT_AVAILABLE = 1, 78
AGAIN = {
    -1: "UNKNOWN",
    1: "OFFSET_OUT_OF_RANGE",
    3: "UNKNOWN_TOPIC_OR_PARTITION",
    5: "LEADER_NOT_AVAILABLE",
    6: "NOT_LEADER_OR_FOLLOWER",
    7: "REQUEST_TIMED_OUT",
    9: "REPLICA_NOT_AVAILABLE",
    13: "NETWORK_EXCEPTION",
    14: "COORDINATOR_LOAD_IN_PROGRESS",
    15: "COORDINATOR_NOT_AVAILABLE",
    16: "NOT_COORDINATOR",
    19: "NOT_ENOUGH_REPLICAS",
    20: "NOT_ENOUGH_REPLICAS_AFTER_APPEND",
    45: "OUT_OF_ORDER_SEQUENCE_NUMBER",
    46: "DUPLICATE_SEQUENCE_NUMBER",
    49: "INVALID_PRODUCER_ID_MAPPING",
    51: "CONCURRENT_TRANSACTIONS",
    56: "KAFKA_STORAGE_ERROR",
    59: "UNKNOWN_PRODUCER_ID",
    74: "FENCED_LEADER_EPOCH",
    75: "UNKNOWN_LEADER_EPOCH",
    OFFSET_NOT_AVAILABLE: "OFFSET_NOT_AVAILABLE",
}
"""Kafka's errors, by code, after which the position is read again.

With 45 and 46 some of the records are in the log already. 49 means that the transactional id has expired, as
it does after a week without a transaction; no copier has taken it over.
"""

TOO_LARGE = 10
_NAMES = {
    2: "CORRUPT_MESSAGE",
    TOO_LARGE: "MESSAGE_TOO_LARGE",
    29: "TOPIC_AUTHORIZATION_FAILED",
    31: "CLUSTER_AUTHORIZATION_FAILED",
    32: "INVALID_TIMESTAMP",
    44: "POLICY_VIOLATION",
    53: "TRANSACTIONAL_ID_AUTHORIZATION_FAILED",
    76: "UNSUPPORTED_COMPRESSION_TYPE",
    87: "INVALID_RECORD",
}
"""Kafka's errors, by code, after which a partition fails and that an operator can fix."""

_ONCE, TRIES = frozenset({-1, 1, 45, 46, 59}), 5
"""Errors of ``AGAIN`` that should not occur again after the position was read again.

They fail the partition after this number of tries.
"""

FENCED = frozenset({47, 52, 90})
"""The error codes INVALID_PRODUCER_EPOCH, TRANSACTION_COORDINATOR_FENCED and PRODUCER_FENCED.

They mean that another copier has taken over.
"""

NO_TRANSACTION = 48
"""The error code INVALID_TXN_STATE.

The owner of a transactional id gets it if it ends a transaction that was never begun.
"""


@dataclass(frozen=True)
class Appended:
    """The outcome of a produce request whose batches were appended."""


@dataclass(frozen=True)
class Again:
    """The outcome of a request that may have succeeded, so that the position must be read again.

    why: Kafka's name of the error.
    """

    why: str


@dataclass(frozen=True)
class Fenced:
    """The outcome of a request that Kafka refused because another copier has taken over."""


def answered(
    needed: int, error: int, base_offset: int, tries: int = 0, why: str = ""
) -> Appended | Again | Fenced | Failed:
    """Return the outcome of a request to append a batch, from the broker's response.

    needed: the offset at which the batch belongs. error: Kafka's error code. base_offset: the offset in the
    response. tries, why: as for ``outcome``.
    """
    if error == 0 and base_offset != needed:
        return foreign(base_offset, needed)
    return outcome(error, tries, why)


def outcome(error: int, tries: int = 0, why: str = "") -> Appended | Again | Fenced | Failed:
    """Return the outcome of a request from an error code in the broker's response.

    tries: how many times the position was read since the last progress. why: Kafka's name of the error and
    its message, if known.
    """
    if error == 0:
        return Appended()
    if error in FENCED:
        return Fenced()
    if error in AGAIN and (error not in _ONCE or tries < TRIES):
        return Again(AGAIN[error])
    name = AGAIN.get(error) or _NAMES.get(error) or str(error)
    return Failed(f"Kafka's error {why or name}" + (f", {tries} times" if error in AGAIN else ""))


def owns(error: int) -> bool | None:
    """Return whether the copier still owns its transactional id, or None if this is not known.

    error: the error code of the response to the end of a transaction that was never begun.
    """
    if error in (0, NO_TRANSACTION):
        return True
    return False if error in FENCED else None
