"""Drive ``zkclient.Client`` objects with one event loop, and read many znodes with them."""

from __future__ import annotations

import select
import time
from collections.abc import Callable, Sequence
from functools import partial

from zkmigrate.lab.load import zkmessages as messages
from zkmigrate.lab.load.zkclient import Client

_TICK_NS = 50_000_000
_CLOSE_LIMIT_S = 5.0
_READS_IN_FLIGHT = 256


def turn(clients: Sequence[Client], wake_ns: int) -> None:
    """Run one round of the event loop, until ``wake_ns`` (CLOCK_MONOTONIC) at the latest.

    Sockets come before timers, so that a server that has answered never counts as silent.
    """
    now = time.monotonic_ns()
    timers = [timer for client in clients if (timer := client.next_timer_ns()) is not None]
    wait_s = max(0, min([wake_ns, *timers]) - now) / 1e9
    polled = {sock: client for client in clients if (sock := client.socket_to_poll()) is not None}
    writers = [sock for sock, client in polled.items() if client.wants_write]
    readable, writable, _ = select.select(list(polled), writers, [], wait_s)
    now = time.monotonic_ns()
    for sock in writable:
        polled[sock].on_writable(now)
    for sock in readable:
        if polled[sock].socket_to_poll() is sock:  # not dropped by the write just before
            polled[sock].on_readable(now)
    for client in clients:
        client.advance(now)


def settle(clients: Sequence[Client], done: Callable[[], bool], limit_s: float) -> bool:
    """Run the event loop until ``done()``. Return False when ``limit_s`` passes first."""
    deadline = time.monotonic_ns() + int(limit_s * 1e9)
    while not done():
        now = time.monotonic_ns()
        if now >= deadline:
            return False
        turn(clients, min(deadline, now + 100_000_000))
    return True


def end_sessions(clients: Sequence[Client]) -> None:
    """Wait for the requests in flight, end the sessions of connected clients, then close all sockets.

    Each of the two waits takes at most 5 seconds.
    """
    settle(clients, lambda: not any(client.in_flight for client in clients), _CLOSE_LIMIT_S)
    closing = [client for client in clients if client.connected]
    for client in closing:
        client.close_session(lambda _reply, client=client: client.shut())  # type: ignore[misc]
    settle(closing, lambda: not any(client.in_flight for client in closing), _CLOSE_LIMIT_S)
    for client in clients:
        client.shut()


def read_all(
    client: Client,
    root: str,
    reads: Sequence[tuple[int, str, Callable[[messages.Reply], None]]],
    limit_s: float,
) -> int:
    """Send a sync of ``root`` and then all ``reads``, pipelined, and return how many got no answer.

    After the sync, any server's answers are as new as the leader's. reads: operation, path and callback for
    the reply. limit_s: time for the whole; the wait for the connection and the wait for the sync may each
    take this long.
    """
    left = len(reads)
    queue = list(reversed(reads))
    deadline = time.monotonic_ns() + int(limit_s * 1e9)
    if not settle([client], lambda: client.connected, limit_s):
        return left
    synced: list[int] = []
    client.submit(messages.SYNC, messages.sync_request(root), lambda reply: synced.append(reply.error))
    if not settle([client], lambda: bool(synced), limit_s) or synced != [messages.OK]:
        return left

    def answered(answer: Callable[[messages.Reply], None], reply: messages.Reply) -> None:
        nonlocal left
        if reply.error == messages.CONNECTION_LOSS:
            return
        left -= 1
        answer(reply)

    while left and client.connected and time.monotonic_ns() < deadline:
        while queue and client.connected and client.in_flight < _READS_IN_FLIGHT:
            op, path, answer = queue.pop()
            client.submit(op, messages.read_request(path), partial(answered, answer))
        turn([client], time.monotonic_ns() + _TICK_NS)
    return left
