"""Wait until brokers know their cluster well enough for a client's first requests."""

from __future__ import annotations

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from zkmigrate.lab.kafka_login import PLAINTEXT, KafkaLogin
from zkmigrate.lab.wait import wait_until

_METADATA_S = 5.0


def metadata_problem(bootstrap: str, needed: int, login: KafkaLogin = PLAINTEXT) -> str | None:
    """Return the first broker whose metadata is not complete, with the reason; None if all are complete.

    needed: how many brokers the metadata must name. A broker that has just started names no controller, and a
    client would wait for a controller without requesting the metadata again. A broker also registers before
    the controller knows it, and the controller decides whether there are enough brokers for a topic. Each
    broker is queried by a new client, which knows no other broker.
    """
    for address in bootstrap.split(","):
        try:
            seen = AdminClient(login.librdkafka(address)).list_topics(timeout=_METADATA_S)
        except KafkaException as error:
            return f"{address}: {error}"
        if seen.controller_id < 0 or len(seen.brokers) < needed:
            return f"{address}: controller {seen.controller_id}, {len(seen.brokers)} of {needed} brokers"
    return None


def wait_for_metadata(bootstrap: str, needed: int, deadline_s: float, login: KafkaLogin = PLAINTEXT) -> None:
    """Wait until every broker's metadata names a controller and ``needed`` brokers.

    Call this function before a client sends a request to the controller: a client that knows no controller
    refreshes its metadata only after minutes. Raises NotReady after ``deadline_s`` seconds.
    """
    wait_until(
        "a controller and enough brokers in every broker's metadata",
        lambda: metadata_problem(bootstrap, needed, login),
        deadline_s,
    )
