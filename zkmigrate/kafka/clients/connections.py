"""Hold a client's connections to the brokers of a cluster, and send questions only to brokers that answer."""

from __future__ import annotations

import queue
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import closing, suppress
from functools import partial
from typing import Any, TypeVar, overload

from kafka.admin import KafkaAdminClient
from kafka.errors import AuthorizationError, KafkaError, KafkaTimeoutError, RequestTimedOutError
from kafka.protocol.api_message import ApiMessage
from kafka.protocol.broker_version_data import infer_broker_version_from_api_versions

from zkmigrate.hosts.parallel import together
from zkmigrate.kafka.clients import library, schemas
from zkmigrate.kafka.clients.canary import BrokerCanary
from zkmigrate.kafka.clients.login import Login
from zkmigrate.kafka.error_text import describe_exception
from zkmigrate.runbook.model.fact import Reading, Unknown
from zkmigrate.runbook.model.look import Pulse
from zkmigrate.secret import SecretError

T = TypeVar("T")

ANSWER_S = 3.0
"""Seconds within which a broker must answer ApiVersions to get questions."""
_SILENT_S = 10.0
"""Seconds for which a broker is not asked again after a question to it timed out."""
QUESTION_S = 20.0
"""Seconds until a question times out. Five seconds were too few for brokers with half a CPU core."""
GARBLED = (KeyError, ValueError, TypeError)
"""The exceptions that reading an unexpected answer raises."""


class UnregisterBrokerRequest(ApiMessage, load_json=schemas):  # type: ignore[misc, call-arg]
    """An UnregisterBroker request (KIP-631, Kafka 2.8), which only brokers without ZooKeeper accept."""


class UnregisterBrokerResponse(ApiMessage, load_json=schemas):  # type: ignore[misc, call-arg]
    """The answer to an UnregisterBrokerRequest.

    Defining the class registers it with kafka-python, which then decodes answers with it.
    """


def ask(
    brokers: Sequence[str],
    question: Callable[[Any, Mapping[str, str]], Reading[T]],
    deadline_s: float = QUESTION_S,
) -> Reading[T]:
    """Return the result of ``question(client, releases)`` for the cluster at ``brokers`` (``host:port``).

    brokers: :class:`Brokers` if the client must log in. releases: the release of each broker that answers.
    Errors of Kafka, of the network and in the answer become Unknown.
    """
    try:
        releases = releases_of(brokers)
        if isinstance(brokers, Brokers):
            return brokers.put(question, releases)
        with closing(_client(brokers, releases, deadline_s)) as admin:
            return question(admin, releases)
    except NoBrokerError as error:
        return Unknown("timeout", str(error))
    except SecretError as error:
        return Unknown("denied", str(error))
    except KafkaTimeoutError as error:
        silent = f"no broker of {', '.join(brokers)} answered in {deadline_s:g} s"
        return Unknown("timeout", f"{silent}: {describe_exception(error)}")
    except AuthorizationError as error:
        return Unknown("denied", f"Kafka at {', '.join(brokers)}: {describe_exception(error)}")
    except (KafkaError, OSError) as error:
        return Unknown("failed", f"Kafka at {', '.join(brokers)}: {describe_exception(error)}")
    except GARBLED as error:
        why = describe_exception(error)
        return Unknown("garbled", f"cannot parse the answer of Kafka at {', '.join(brokers)}: {why}")


def _client(
    brokers: Sequence[str], answering: Collection[str], deadline_s: float, login: Login = dict
) -> Any:
    """Return a client that sends its requests only to brokers that answer."""
    admin = new_client(answering, deadline_s, login)
    if len(answering) < len(set(brokers)):
        _keep_to(admin, answering)
    return admin


class NoBrokerError(Exception):
    """No broker answers. The text says why, without a full stop."""


class Brokers(Sequence[str]):
    """The brokers of one cluster, each ``host:port``, with their open connections and how to log in.

    Each question sent with :func:`ask` reuses the connections of earlier ones. It does not wait again for a
    broker that recently timed out.
    """

    def __init__(self, at: Iterable[str], login: Login = dict) -> None:
        self._at = tuple(at)
        self.login = login
        self._canary = BrokerCanary({broker: _split(broker) for broker in self._at}, login)
        self._idle: queue.SimpleQueue[tuple[Any, frozenset[str]]] = queue.SimpleQueue()
        self._silent_until: dict[str, float] = {}

    @overload
    def __getitem__(self, at: int) -> str: ...
    @overload
    def __getitem__(self, at: slice) -> Sequence[str]: ...
    def __getitem__(self, at: int | slice) -> str | Sequence[str]:
        return self._at[at]

    def __len__(self) -> int:
        return len(self._at)

    def releases(self) -> dict[str, str]:
        """Return the brokers that answer now, each with its release as MAJOR.MINOR, by their ApiVersions.

        Raises SecretError, and NoBrokerError if there is none.
        """
        settings = self.login()
        now = time.monotonic()
        responsive = [broker for broker in self._at if self._silent_until.get(broker, now) <= now]
        pulses = together({broker: partial(self._pulse, broker) for broker in responsive or self._at})
        found = {broker: _release(pulse.apis) for broker, pulse in pulses.items() if not pulse.why}
        if not found:
            silent = f"no broker of {', '.join(self._at)} answered in {ANSWER_S:g} s"
            # An encrypted connection or a login fails for reasons that only these texts name.
            why = "; ".join(dict.fromkeys(pulse.why for pulse in pulses.values())) if settings else ""
            raise NoBrokerError(f"{silent}: {why}" if why else silent)
        return found

    def _pulse(self, broker: str) -> Pulse:
        began = time.monotonic()
        pulse = self._canary.ask(broker, ANSWER_S)
        now = time.monotonic()
        self._silent_until[broker] = now + _SILENT_S if pulse.why and now - began >= ANSWER_S else now
        return pulse

    def put(self, question: Callable[[Any, Mapping[str, str]], T], releases: Mapping[str, str]) -> T:
        """Return the answer to a question, over an idle client if there is one, otherwise over a new one.

        If the idle client fails, the question is sent again over a new client, because the brokers may have
        closed the old connections. Raises what the question raises; a timeout is not retried.
        """
        kept = self._take_idle(frozenset(releases))
        if kept is not None:
            try:
                return self._answer(kept, question, releases)
            except (KafkaTimeoutError, RequestTimedOutError):
                raise
            except (KafkaError, OSError):
                pass
        return self._answer(_client(self, releases, QUESTION_S, self.login), question, releases)

    def _answer(
        self, admin: Any, question: Callable[[Any, Mapping[str, str]], T], releases: Mapping[str, str]
    ) -> T:
        try:
            answer = question(admin, releases)
        except BaseException:
            admin.close()
            raise
        self._idle.put((admin, frozenset(releases)))
        return answer

    def _take_idle(self, answering: frozenset[str]) -> Any:
        """Return an idle client that knows exactly these brokers, or None if there is none.

        Other clients are closed: they may be connected to a broker that hangs, or not to one that is back.
        """
        with suppress(queue.Empty):
            while True:
                admin, knows = self._idle.get_nowait()
                if knows == answering:
                    return admin
                admin.close()
        return None

    def close(self) -> None:
        """Close every connection."""
        self._take_idle(frozenset())
        self._canary.close()


def new_client(answering: Collection[str], deadline_s: float, login: Login) -> Any:
    """Return a client for these brokers, which answer. Raises SecretError, KafkaError and OSError.

    Brokers without ZooKeeper pass requests for the controller on, so one of these brokers gets them. Their
    Metadata may name any broker as the controller, even one that is dead but has not left the cluster yet.
    """
    milliseconds = int(deadline_s * 1000)
    admin = KafkaAdminClient(
        bootstrap_servers=list(answering),
        client_id="zkmigrate",
        request_timeout_ms=milliseconds,
        bootstrap_timeout_ms=milliseconds,
        **login(),
    )
    if library.accepts(admin, UnregisterBrokerRequest):
        here = [b.node_id for b in library.known_brokers(admin) if f"{b.host}:{b.port}" in answering]
        library.use_as_controller(admin, next(iter(here), None))
    return admin


def _keep_to(admin: Any, answering: Collection[str]) -> None:
    """Connect the client to one of these brokers.

    A client prefers a broker that it is connected to. Otherwise it takes any of the cluster, perhaps one that
    hangs.
    """
    for broker in library.known_brokers(admin):
        if f"{broker.host}:{broker.port}" in answering:
            library.metadata(admin, broker.node_id, ())
            return


def releases_of(brokers: Sequence[str]) -> dict[str, str]:
    """Return the brokers that answer now, each with its release as MAJOR.MINOR, by their ApiVersions.

    A client that started from a hanging broker would wait in vain. Raises SecretError and NoBrokerError.
    """
    if isinstance(brokers, Brokers):
        return brokers.releases()
    with closing(Brokers(brokers)) as probe:
        return probe.releases()


def _release(apis: Mapping[int, tuple[int, int]]) -> str:
    # kafka-python knows which version of which API came with which release.
    return ".".join(map(str, infer_broker_version_from_api_versions(apis)))


def _split(broker: str) -> tuple[str, int]:
    address, _, port = broker.rpartition(":")
    return address.strip("[]"), int(port)
