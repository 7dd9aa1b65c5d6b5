"""Define the conditions of a ready lab: ssh answers, a quorum serves, every broker is registered.

A condition is a function that returns None if it is met, otherwise a text that says what is missing. Enter
the operator's network namespace before calling it.
"""

from __future__ import annotations

import json
import socket
import ssl
from collections.abc import Callable, Iterable, Mapping, Sequence

from kazoo.client import KazooClient
from kazoo.exceptions import NoNodeError

from zkmigrate.kafka.clients import cluster_view as kafka
from zkmigrate.lab.spec import CLIENT_PORT, KAFKA_PORT, HostPlan
from zkmigrate.runbook.model.fact import Seen
from zkmigrate.zookeeper.clients import four_letter_client

_SSH_PORT = 22
_CONNECT_S = 0.5


Word = Callable[[str, str], str | None]
"""A function that sends a four-letter word to a server: address, word → the answer, None without one."""


def four_letter_word(
    address: str,
    word: str,
    port: int = CLIENT_PORT,
    timeout_s: float = 2.0,
    tls: ssl.SSLContext | None = None,
) -> str | None:
    """Return a server's answer to a four-letter word; None if it does not answer in `timeout_s` seconds.

    tls: the context of a port with TLS.
    """
    if tls is not None:
        return _word_over_tls(address, port, word, timeout_s, tls)
    answer = four_letter_client.four_letter_word(address, port, word, timeout_s)
    return answer.value if isinstance(answer, Seen) else None


def _word_over_tls(address: str, port: int, word: str, timeout_s: float, tls: ssl.SSLContext) -> str | None:
    try:
        with (
            socket.create_connection((address, port), timeout_s) as plain,
            tls.wrap_socket(plain, server_hostname=address) as connection,
        ):
            connection.sendall(word.encode())
            answer = b"".join(iter(lambda: connection.recv(65536), b""))
    except OSError:
        return None
    return answer.decode("utf-8", "replace") or None


def server_mode(answer: str | None) -> str | None:
    """Return the mode in an answer to `srvr`, or None if the server does not serve.

    The mode is leader, follower, observer or standalone.
    """
    for line in (answer or "").splitlines():
        if line.startswith("Mode: "):
            return line.removeprefix("Mode: ").strip()
    return None


def mode_of(address: str, port: int = CLIENT_PORT) -> str | None:
    """Return the mode that a server reports now; None if it does not serve."""
    return server_mode(four_letter_word(address, "srvr", port))


def ssh_answers(hosts: Iterable[HostPlan]) -> Callable[[], str | None]:
    """Return the condition that every host's sshd sends its greeting."""
    waiting = {host.name: host.address for host in hosts}

    def missing() -> str | None:
        for name in list(waiting):
            try:
                with socket.create_connection((waiting[name], _SSH_PORT), _CONNECT_S) as connection:
                    connection.settimeout(_CONNECT_S)
                    greeted = connection.recv(4) == b"SSH-"
            except OSError:
                greeted = False
            if greeted:
                del waiting[name]
        return f"ssh on {', '.join(waiting)}" if waiting else None

    return missing


def quorum_serves(hosts: Sequence[HostPlan], ask: Word = four_letter_word) -> Callable[[], str | None]:
    """Return the condition that one of these servers leads, the others follow, and observers observe.

    A single server must be standalone. ask: asks them a word.
    """
    observers = sum(host.observer for host in hosts)
    followers = len(hosts) - observers - 1
    wanted = ["follower"] * followers + ["leader"] + ["observer"] * observers
    wanted = wanted if len(hosts) > 1 else ["standalone"]

    def missing() -> str | None:
        modes = {host.name: server_mode(ask(host.address, "srvr")) for host in hosts}
        if sorted(str(mode) for mode in modes.values()) == wanted:
            return None
        return ", ".join(f"{name} {mode or 'not serving'}" for name, mode in modes.items())

    return missing


def brokers_ready(
    client: KazooClient, chroot: str, brokers: Sequence[HostPlan], started_s: Mapping[str, int]
) -> Callable[[], str | None]:
    """Return the condition that brokers are registered and accept connections, and every ISR is full.

    There must also be a controller. started_s: the start time of each broker's process (unix time), by host
    name. An older registration belongs to an earlier process whose session has not expired yet.
    """
    top = "" if chroot == "/" else chroot

    def missing() -> str | None:
        try:
            present = client.get_children(f"{top}/brokers/ids")
            seen = {number: json.loads(client.get(f"{top}/brokers/ids/{number}")[0]) for number in present}
            client.get(f"{top}/controller")
        except NoNodeError as absent:
            return f"a znode below {top or '/'}: {absent or 'not yet there'}"
        registered_s = {number: int(entry["timestamp"]) // 1000 for number, entry in seen.items()}
        unregistered = [
            broker.name
            for broker in brokers
            if registered_s.get(str(broker.node_id), -1) < started_s[broker.name]
        ]
        if unregistered:
            return f"registrations of {', '.join(unregistered)}"
        if closed := _closed(brokers):
            return closed
        short = short_isr(client, chroot)
        return f"full ISR of {', '.join(short)}" if short else None

    return missing


def kraft_ready(brokers: Sequence[HostPlan]) -> Callable[[], str | None]:
    """Return the condition that these brokers of a KRaft cluster accept connections, and every ISR is full.

    All brokers must be registered. For some seconds, a killed broker is still reported as registered and in
    sync.
    """
    addresses = [f"{broker.address}:{KAFKA_PORT}" for broker in brokers]

    def missing() -> str | None:
        if closed := _closed(brokers):
            return closed
        view = kafka.view(addresses, lambda: None)
        if not isinstance(view, Seen):
            return str(view)
        if absent := [b.name for b in brokers if b.node_id not in view.value.brokers]:
            return f"registrations of {', '.join(absent)}"
        short = [f"{p.topic}-{p.partition}" for p in view.value.partitions if set(p.isr) < set(p.replicas)]
        return f"full ISR of {', '.join(short)}" if short else None

    return missing


def ports_open(places: Iterable[tuple[str, int]]) -> Callable[[], str | None]:
    """Return the condition that connections to each of these addresses and ports are accepted."""
    left = set(places)

    def missing() -> str | None:
        left.difference_update([one for one in left if _accepts(*one)])
        return ", ".join(f"{address}:{port}" for address, port in sorted(left)) or None

    return missing


def short_isr(client: KazooClient, chroot: str) -> list[str]:
    """Return the partitions (`topic-N`) whose ISR is smaller than their replica list.

    Partitions that have no state yet are included.
    """
    top = "" if chroot == "/" else chroot
    short = []
    for topic in sorted(client.get_children(f"{top}/brokers/topics")):
        assignment = json.loads(client.get(f"{top}/brokers/topics/{topic}")[0])["partitions"]
        for partition, replicas in sorted(assignment.items()):
            try:
                state = json.loads(
                    client.get(f"{top}/brokers/topics/{topic}/partitions/{partition}/state")[0]
                )
            except NoNodeError:
                short.append(f"{topic}-{partition}")
                continue
            if len(state["isr"]) < len(replicas):
                short.append(f"{topic}-{partition}")
    return short


def _closed(brokers: Iterable[HostPlan]) -> str:
    """Return a text with the brokers whose port accepts no connection; "" if there are none."""
    closed = [broker.name for broker in brokers if not _accepts(broker.address, KAFKA_PORT)]
    return f"port {KAFKA_PORT} of {', '.join(closed)}" if closed else ""


def _accepts(address: str, port: int) -> bool:
    try:
        with socket.create_connection((address, port), _CONNECT_S):
            return True
    except OSError:
        return False
