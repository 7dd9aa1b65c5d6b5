"""Run the verbs order and status, which query the gateway's process on this machine."""

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
from zkmigrate.topics.gateway.usage import usage

ANSWER_S = 30.0
_CODES = {"done": 0, "refused": 6, "fenced": 5, "failed": 8}


def order(file: Path, asked: Order, say: Callable[[str], None], *, as_json: bool) -> int:
    """Send an order to the gateway, and return the exit code.

    The codes are 0 for done, also if it was done before; 5 for another operator in charge; 6 for refused; 8
    for a record that could not be written. Raises UsageError for invalid fields, and HostError if no gateway
    answers.
    """
    try:
        forms.order(asdict(asked))
    except forms.FormError as error:
        raise UsageError(f"not an order: {error}. Nothing was sent. Next: correct it") from None
    told = answer(socket_of(file), asdict(asked))
    say(json.dumps(stamped(told)) if as_json else in_words(told))
    return _CODES[told["outcome"]]


def status(file: Path, say: Callable[[str], None], *, as_json: bool) -> int:
    """Print the status of the gateway, and return 0. Raises HostError if no gateway answers."""
    told = answer(socket_of(file), "status")
    if as_json:
        say(json.dumps(stamped(json.loads(status_json(told)))))
        return 0
    from zkmigrate.runbook.ui import finding_lines  # slow to import; the relay needs none of it

    found = _found(told)
    for line in _lines(told):
        say(line)
    used = [one for name, of_app in found.items() if _used(told["apps"][name]) for one in of_app]
    for line in finding_lines.findings(used):
        say(line)
    return 0


def in_words(told: Mapping[str, str]) -> str:
    """Return the answer to an order as text."""
    return f"{told['outcome']}: {told['text']}"


def status_json(told: Mapping[str, Any]) -> str:
    """Return the status with its findings as one line of JSON."""
    bodies = [encode_finding(one) for of_app in _found(told).values() for one in of_app]
    return json.dumps({**told, "findings": bodies})


def _found(told: Mapping[str, Any]) -> dict[str, tuple[Finding, ...]]:
    return {name: usage(name, app) for name, app in told["apps"].items()}


def _used(app: dict[str, Any]) -> bool:
    """Return True if a client of the application has sent a request."""
    return bool(app["clients"] or app["refused"])


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
        with socket.socket(socket.AF_UNIX) as asked:
            asked.settimeout(ANSWER_S)
            asked.connect(str(path))
            asked.sendall(json.dumps(question).encode() + b"\n")
            with asked.makefile("rb") as stream:
                return json.loads(stream.readline())
    except (OSError, ValueError) as error:
        raise HostError(
            f"{path}: {error}. No gateway answered, so the outcome of an order is unknown. Next: see whether "
            "this account may use the socket (gateways.program), and the gateway's log; then ask again, with "
            "the same operation id"
        ) from None


def _lines(told: dict[str, Any]) -> Iterator[str]:
    """Yield the status as lines of text."""
    load = told["load"]
    yield (
        f"connections: {load['connections']} of {load['connections_at_most']}, not served yet: "
        f"{load['not_served_yet']}; bytes kept: {load['bytes_kept']} of {load['bytes_at_most']}"
    )
    for name, cluster in told["clusters"].items():
        yield f"cluster {name}: versions {cluster['versions']}, brokers: {', '.join(cluster['brokers'])}"
        yield from (f"    broker {node}: {why}" for node, why in cluster["brokers"].items() if why)
    for one in told["unlisted"]:
        yield f"cluster {one['cluster']}: node {one['node']} has no port"
    for name, app in told["apps"].items():
        staged = f", staged {app['staged']}" if app["staged"] else ""
        lease = f", lease {app['lease_ms']} ms" if app["lease_ms"] is not None else ""
        ended = ", a lease has ended by itself" if app["lapsed"] else ""
        yield f"{name}: {app['gate']} on {app['route']}{staged}{lease}{ended}"
        yield (
            f"    connections: {app['connections']}, on left ports: {app['connections_on_left_ports']}, "
            f"in flight: {app['requests_in_flight']}, fencing: {app['fencing']}"
        )
        yield from _tables(app, "parked", "longest_wait_ms", "lost", "refused")
        yield from _tables(app, "software", "acks", "transactional")
    for name, reader in told["readers"].items():
        yield f"{name}: reads {reader['cluster']}, connections: {reader['connections']}"
        yield from _tables(reader, "lost", "refused", "software")


def _tables(seen: dict[str, Any], *kinds: str) -> Iterator[str]:
    for kind in kinds:
        if seen[kind]:
            yield f"    {kind}: " + ", ".join(f"{inline(key)} {count}" for key, count in seen[kind].items())
