"""Take over the transactional ids with which a copier writes end markers, at their coordinators.

All requests are in flight at the same time, because a copier may own thousands of ids.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from kafka.protocol.metadata import FindCoordinatorRequest
from kafka.protocol.producer import EndTxnRequest, InitProducerIdRequest

from zkmigrate.errors import HostError
from zkmigrate.topics.mirror.rules.needed import OWNED

_TRANSACTION, _TRANSACTION_MS = 1, 60_000
_NO_COORDINATOR, _NOT_COORDINATOR = 15, 16


@dataclass(frozen=True)
class Owner:
    """A transactional id that a copier owns, with its producer id and producer epoch."""

    name: str
    id: int
    epoch: int


def owned(part: tuple[str, int]) -> str:
    """Return the transactional id that a copier must own to write end markers to a partition."""
    return f"{OWNED}{part[0]}-{part[1]}"


class Owners:
    """A client of the coordinators of transactional ids in one cluster.

    begin: a function that sends a request to a node. end: a function that waits for the response.
    """

    def __init__(self, begin: Callable[..., Any], end: Callable[[Any], Any]) -> None:
        self._begin, self._end = begin, end
        self._coordinators: dict[str, int] = {}

    def take(self, names: Sequence[str]) -> dict[str, Owner | int]:
        """Take over transactional ids, so that their former owners can no longer write.

        Returns a dict by transactional id. A value is the new owner, or Kafka's error code.
        """
        told = self._coordinated(
            {
                name: InitProducerIdRequest(
                    transactional_id=name,
                    transaction_timeout_ms=_TRANSACTION_MS,
                    producer_id=-1,
                    producer_epoch=-1,
                )
                for name in names
            }
        )
        return {
            name: int(one.error_code) or Owner(name, one.producer_id, one.producer_epoch)
            for name, one in told.items()
        } | {name: _NO_COORDINATOR for name in names if name not in told}

    def ended(self, owners: Sequence[Owner]) -> dict[str, int]:
        """Check whether owners still own their transactional ids, without changing anything.

        Each owner asks to end a transaction that was never begun. Returns Kafka's error code for this
        request, by transactional id; the code shows whether the owner still owns the id.
        """
        told = self._coordinated(
            {
                owner.name: EndTxnRequest(
                    transactional_id=owner.name,
                    producer_id=owner.id,
                    producer_epoch=owner.epoch,
                    committed=False,
                    max_version=4,  # later ones begin a new epoch
                )
                for owner in owners
            }
        )
        return {
            one.name: told[one.name].error_code if one.name in told else _NO_COORDINATOR for one in owners
        }

    def _coordinated(self, requests: Mapping[str, Any]) -> dict[str, Any]:
        """Send each request to the coordinator of its transactional id, and return the responses by id.

        Ids without a coordinator are left out. All requests are in flight at the same time.
        """
        known = self._coordinators
        try:
            asked = {
                name: self._begin(FindCoordinatorRequest(key=name, key_type=_TRANSACTION, max_version=3))
                for name in requests
                if name not in known
            }
            found = {name: self._end(one) for name, one in asked.items()}
            known.update({name: int(one.node_id) for name, one in found.items() if not one.error_code})
            sent = {name: self._begin(one, known[name]) for name, one in requests.items() if name in known}
            told = {name: self._end(one) for name, one in sent.items()}
        except HostError:
            known.clear()
            raise
        for name, one in told.items():
            if one.error_code in (_NO_COORDINATOR, _NOT_COORDINATOR):
                del known[name]
        return told
