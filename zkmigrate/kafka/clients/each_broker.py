"""Ask several brokers of a cluster the same question in parallel, so that one that hangs delays no other."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, TypeVar

from kafka.errors import KafkaError, KafkaTimeoutError, RequestTimedOutError, UnknownBrokerIdError

from zkmigrate.hosts.parallel import GiveUp, together
from zkmigrate.kafka.clients.cluster_view import reachable
from zkmigrate.kafka.clients.connections import GARBLED, ask
from zkmigrate.kafka.clients.library import known_brokers, metadata
from zkmigrate.kafka.error_text import describe_exception
from zkmigrate.runbook.model.fact import Reading, Seen, Unknown

T = TypeVar("T")

LATE_S = 5.0
"""Seconds that slow brokers get once most brokers have answered; more if most brokers took longer."""


def of_each(
    brokers: Sequence[str], ids: Sequence[int], question: Callable[[Any, int], Reading[T]]
) -> Reading[Mapping[int, Reading[T]]]:
    """Return the answer of ``question(client, id)`` from each broker, by broker id.

    A broker that does not answer, or that the cluster does not list, is Unknown. brokers: those of the
    cluster, ``host:port``.
    """

    def ask_each(admin: Any, releases: Mapping[str, str]) -> Reading[Mapping[int, Reading[T]]]:
        cluster = metadata(admin, None, ())
        here = reachable(cluster, releases, everybody=len(releases) == len(set(brokers)))
        # An older client does not know a broker that has just started; only a new client can reach it.
        if unnamed := {*ids}.intersection(here) - {one.node_id for one in known_brokers(admin)}:
            raise UnknownBrokerIdError(unnamed)
        late: GiveUp[Reading[T]] = GiveUp(LATE_S, _answer_too_late, time.monotonic)
        questions = {str(id): partial(_answer, admin, id, question) for id in ids if id in here}
        answers = together(questions, late)
        return Seen({id: answers[str(id)] if id in here else _no_answer(id) for id in ids})

    return ask(brokers, ask_each)


def _answer(admin: Any, id: int, question: Callable[[Any, int], Reading[T]]) -> Reading[T]:
    """Return one broker's answer, or Unknown for an error, so that it does not hide the others' answers."""
    try:
        return question(admin, id)
    except (KafkaTimeoutError, RequestTimedOutError) as error:
        return Unknown("timeout", f"broker {id}: {describe_exception(error)}")
    except (KafkaError, OSError) as error:
        return Unknown("failed", f"broker {id}: {describe_exception(error)}")
    except GARBLED as error:
        return Unknown("garbled", f"cannot parse the answer of broker {id}: {describe_exception(error)}")


def _no_answer(id: int) -> Unknown:
    return Unknown("timeout", f"broker {id} does not answer, or the cluster does not list it")


def _answer_too_late(id: str) -> Unknown:
    return Unknown("timeout", f"broker {id} did not answer within the time that most others needed")
