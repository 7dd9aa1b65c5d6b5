"""Ask several brokers of a cluster the same question in parallel, so that one that hangs delays no other."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, TypeVar

from kafka.errors import KafkaError, KafkaTimeoutError, RequestTimedOutError, UnknownBrokerIdError

from zkmigrate.hosts.parallel import GiveUp, together
from zkmigrate.kafka.clients import admin as kafka
from zkmigrate.kafka.said import reason
from zkmigrate.runbook.model.fact import Reading, Seen, Unknown

T = TypeVar("T")

LATE_S = 5.0
"""Seconds that the remaining brokers get once most have answered. They get longer if most took longer."""


def of_each(
    brokers: Sequence[str], ids: Sequence[int], question: Callable[[Any, int], Reading[T]]
) -> Reading[Mapping[int, Reading[T]]]:
    """Return the answer of ``question(client, id)`` from each broker, by broker id.

    A broker that does not answer, or that the cluster does not list, is Unknown. brokers: those of the
    cluster, ``host:port``.
    """

    def ask(admin: Any, releases: Mapping[str, str]) -> Reading[Mapping[int, Reading[T]]]:
        cluster = admin._manager.run(kafka._metadata, admin, None, ())
        here = kafka.reachable(cluster, releases, everybody=len(releases) == len(set(brokers)))
        # An older client does not know a broker that has just started; only a new client can reach it.
        if unnamed := {*ids}.intersection(here) - {one.node_id for one in admin._manager.cluster.brokers()}:
            raise UnknownBrokerIdError(unnamed)
        late: GiveUp[Reading[T]] = GiveUp(LATE_S, _late, time.monotonic)
        asked = {str(id): partial(_told, admin, id, question) for id in ids if id in here}
        told = together(asked, late)
        return Seen({id: told[str(id)] if id in here else _no_answer(id) for id in ids})

    return kafka.ask(brokers, ask)


def _told(admin: Any, id: int, question: Callable[[Any, int], Reading[T]]) -> Reading[T]:
    """Return one broker's answer, or Unknown for an error, so that it does not hide the others' answers."""
    try:
        return question(admin, id)
    except (KafkaTimeoutError, RequestTimedOutError) as error:
        return Unknown("timeout", f"broker {id}: {reason(error)}")
    except (KafkaError, OSError) as error:
        return Unknown("failed", f"broker {id}: {reason(error)}")
    except kafka.GARBLED as error:
        return Unknown("garbled", f"broker {id} answered something unexpected: {reason(error)}")


def _no_answer(id: int) -> Unknown:
    return Unknown("timeout", f"broker {id} does not answer, or the cluster does not name it")


def _late(id: str) -> Unknown:
    return Unknown("timeout", f"broker {id} has not answered yet; most others have")
