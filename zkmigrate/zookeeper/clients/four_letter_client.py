"""Client for four-letter words over TCP: send the word, then read until the connection is closed.

Source: ZooKeeper Administrator's Guide, "The Four Letter Words".
"""

from __future__ import annotations

import socket
import time

from zkmigrate.hosts.transport.failure import socket_cause, socket_text
from zkmigrate.runbook.model.fact import Reading, Seen, Unknown
from zkmigrate.secret import SecretError
from zkmigrate.zookeeper.clients.login import OPEN, Credentials

NOT_SERVING = b"not currently serving requests\n"
"""The last line of the answer of a server that is still starting.

A standalone server may never close the connection after this line, so the client stops reading there
(ZOOKEEPER-5051, measured on 3.8.4).
"""
LIMIT = 8 << 20
"""The largest accepted answer in bytes; ``dump`` and ``cons`` of a busy server stay far below."""


def four_letter_word(
    address: str, port: int, word: str, deadline_s: float, credentials: Credentials = OPEN
) -> Reading[str]:
    """Return the complete answer to a four-letter word. See :func:`conversation` for limits and failures."""
    return conversation(address, port, word, f"{word} to {address}:{port}", deadline_s, credentials)


def conversation(
    address: str,
    port: int,
    request: str,
    place: str,
    deadline_s: float,
    credentials: Credentials = OPEN,
) -> Reading[str]:
    """Return the complete answer to a request, up to the close of the connection or to NOT_SERVING.

    place: the server's name for messages. The result is Unknown (timeout) if the answer did not end within
    ``deadline_s`` seconds, and Unknown (garbled) if the answer is longer than ``LIMIT`` bytes. It is Unknown
    (failed) if the answer is empty, because a healthy server never sends an empty answer.
    """
    end = time.monotonic() + deadline_s
    answer = bytearray()
    try:
        with (
            socket.create_connection((address, port), timeout=deadline_s) as plain,
            credentials.secure(plain, address) as sock,
        ):
            sock.sendall(request.encode("ascii"))
            while not answer.endswith(NOT_SERVING):
                left = end - time.monotonic()
                if left <= 0:
                    raise TimeoutError
                sock.settimeout(left)
                data = sock.recv(65536)
                if not data:
                    break
                answer += data
                if len(answer) > LIMIT:
                    return Unknown("garbled", f"{place}: the answer is longer than {LIMIT} bytes")
    except SecretError as error:
        return Unknown("denied", f"{place}: {error}")
    except OSError as error:
        came = f" after {len(answer)} bytes" if answer else ""
        return Unknown(socket_cause(error), f"{place}: {socket_text(error)}{came}")
    if not answer:
        return Unknown("failed", f"{place}: the connection was closed without an answer")
    return Seen(answer.decode("utf-8", "replace"))
