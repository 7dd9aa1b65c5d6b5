"""Run the verbs order and status, which send a question to the gateway's process on this machine."""

from __future__ import annotations

import json
import socket
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from zkmigrate.clean import inline
from zkmigrate.errors import HostError, UsageError
from zkmigrate.json_stamp import stamped
from zkmigrate.runbook.engine.codec import encode_finding
from zkmigrate.runbook.model.finding import Finding
from zkmigrate.topics.gateway.rules import forms
from zkmigrate.topics.gateway.rules.hold import Order
from zkmigrate.topics.gateway.serving.config import load
from zkmigrate.topics.gateway.serving.record import SOCKET
from zkmigrate.topics.gateway.usage import certificates, usage

ANSWER_S = 30.0
_CODES = {"done": 0, "refused": 6, "fenced": 5, "failed": 8}


def order(file: Path, fields: Order, say: Callable[[str], None], *, as_json: bool) -> int:
    """Send an order to the gateway, print the answer, and return the exit code.

    file: the gateway's configuration. fields: the order. The exit codes are 0 for done, even if it was done
    before; 5 if another operator is in charge; 6 for refused; 8 if the record could not be written. Raises
    UsageError if fields are not valid, and HostError if no gateway answers.
    """
    try:
        forms.order(asdict(fields))
    except forms.FormError as error:
        raise UsageError(
            f"this is not an order: {error}. Nothing was sent. Next: correct the order, and send it again"
        ) from None
    body = answer(socket_of(file), asdict(fields))
    say(json.dumps(stamped(body)) if as_json else answer_text(body))
    return _CODES[body["outcome"]]


def status(file: Path, say: Callable[[str], None], *, as_json: bool) -> int:
    """Print the status of the gateway, and return 0. Raises HostError if no gateway answers."""
    body = answer(socket_of(file), "status")
    if as_json:
        say(json.dumps(stamped(json.loads(status_json(body)))))
        return 0
    from zkmigrate.runbook.ui import finding_lines  # slow to import; the relay needs none of it

    found = _usage_by_app(body)
    told = certificates("", body["certificates"])
    for line in _lines(body):
        say(line)
    with_clients = {name for name, app in body["apps"].items() if app["clients"] or app["refused"]}
    for line in finding_lines.findings(
        [*told, *(one for name in found if name in with_clients for one in found[name])]
    ):
        say(line)
    return 0


def answer_text(body: Mapping[str, str]) -> str:
    """Return the gateway's answer to an order as a text."""
    return f"{body['outcome']}: {body['text']}"


def status_json(body: Mapping[str, Any]) -> str:
    """Return the status with its findings as one line of JSON."""
    found = [one for of_app in _usage_by_app(body).values() for one in of_app]
    bodies = [encode_finding(one) for one in (*found, *certificates("", body["certificates"]))]
    return json.dumps({**body, "findings": bodies})


def _usage_by_app(body: Mapping[str, Any]) -> dict[str, tuple[Finding, ...]]:
    return {name: usage(name, app) for name, app in body["apps"].items()}


def socket_of(file: Path) -> Path:
    """Return the path of the socket on which a configured gateway accepts orders.

    file: the gateway's configuration. Raises InventoryError if it is invalid.
    """
    return Path(load(file).state) / SOCKET


def answer(path: Path, question: Any) -> Any:
    """Send a question to the gateway at a socket, and return its answer.

    question: the fields of an order, or ``status``. Raises HostError if no gateway answers.
    """
    try:
        with socket.socket(socket.AF_UNIX) as connection:
            connection.settimeout(ANSWER_S)
            connection.connect(str(path))
            connection.sendall(json.dumps(question).encode() + b"\n")
            with connection.makefile("rb") as stream:
                return json.loads(stream.readline())
    except (OSError, ValueError) as error:
        raise HostError(
            f"{path}: {error}. No gateway responded, so the outcome of an order is unknown. Next: check that "
            "this account may use the socket (gateways.program), and read the gateway's log; then send the "
            "same request again, with the same operation id"
        ) from None


def _lines(body: dict[str, Any]) -> Iterator[str]:
    """Yield the status as lines of text."""
    load = body["load"]
    yield (
        f"connections: {load['connections']} of {load['connections_at_most']}, waiting: "
        f"{load['not_served_yet']}; bytes in use: {load['bytes_kept']} of {load['bytes_at_most']}"
    )
    for name, cluster in body["clusters"].items():
        yield f"cluster {name}: versions {cluster['versions']}, brokers: {', '.join(cluster['brokers'])}"
        yield from (f"    broker {node}: {why}" for node, why in cluster["brokers"].items() if why)
    for one in body["unlisted"]:
        yield f"cluster {one['cluster']}: node {one['node']} has no port in the configuration"
    for name, app in body["apps"].items():
        staged = f", staged {app['staged']}" if app["staged"] else ""
        lease = f", lease {app['lease_ms']} ms" if app["lease_ms"] is not None else ""
        ended = ", its lease has expired" if app["lapsed"] else ""
        yield f"{name}: {app['gate']} on {app['route']}{staged}{lease}{ended}"
        yield (
            f"    connections: {app['connections']}, on ports of the former cluster: "
            f"{app['connections_on_left_ports']}, in flight: {app['requests_in_flight']}, "
            f"fencing: {app['fencing']}"
        )
        yield from _tables(app, "parked", "longest_wait_ms", "lost", "refused")
        yield from _tables(app, "software", "acks", "transactional")
    for name, reader in body["readers"].items():
        yield f"{name}: reads {reader['cluster']}, connections: {reader['connections']}"
        yield from _tables(reader, "lost", "refused", "software")


def _tables(seen: dict[str, Any], *kinds: str) -> Iterator[str]:
    for kind in kinds:
        if seen[kind]:
            yield f"    {kind}: " + ", ".join(f"{inline(key)} {count}" for key, count in seen[kind].items())
