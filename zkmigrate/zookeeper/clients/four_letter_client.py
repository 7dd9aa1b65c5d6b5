"""Client for four-letter words over TCP: send the word, then read until the connection is closed.

Source: ZooKeeper Administrator's Guide, "The Four Letter Words".
"""

from __future__ import annotations

import socket
import time

from zkmigrate.hosts.transport.failure import socket_cause, socket_text
from zkmigrate.runbook.model.fact import Reading, Seen, Unknown

NOT_SERVING = b"not currently serving requests\n"
"""The end of the answer of a server that is still starting.

A standalone server may never close that connection, so the client does not wait for it (ZOOKEEPER-5051,
measured on 3.8.4).
"""
LIMIT = 8 << 20
"""The largest accepted answer in bytes; ``dump`` and ``cons`` of a busy server stay far below."""


def four_letter_word(address: str, port: int, word: str, deadline_s: float) -> Reading[str]:
    """Return the complete answer to a four-letter word; see :func:`conversation`."""
    return conversation(address, port, word, f"{word} to {address}:{port}", deadline_s)


def conversation(address: str, port: int, request: str, place: str, deadline_s: float) -> Reading[str]:
    """Return the complete answer to a request, up to the close of the connection or to NOT_SERVING.

    place: the server's name in messages. Unknown (timeout): the answer did not end within ``deadline_s``
    seconds. Unknown (garbled): it is longer than ``LIMIT``. Unknown (failed): it is empty, which a healthy
    server never sends.
    """
    end = time.monotonic() + deadline_s
    answer = bytearray()
    try:
        with socket.create_connection((address, port), timeout=deadline_s) as sock:
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
    except OSError as error:
        came = f" after {len(answer)} bytes" if answer else ""
        return Unknown(socket_cause(error), f"{place}: {socket_text(error)}{came}")
    if not answer:
        return Unknown("failed", f"{place}: the connection was closed without an answer")
    return Seen(answer.decode("utf-8", "replace"))
