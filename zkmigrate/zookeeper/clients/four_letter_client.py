"""Four-letter words over TCP, as ZooKeeper's own ``nc`` recipe does it: send the word, read until close.

Source: ZooKeeper Administrator's Guide, "The Four Letter Words".
"""

from __future__ import annotations

import socket
import time

from zkmigrate.hosts.transport.failure import socket_cause, socket_text
from zkmigrate.model.fact import Reading, Seen, Unknown

NOT_SERVING = b"not currently serving requests\n"
"""How the answer of a server ends that has begun its start.  One that stands alone may leave that connection
open for ever, so nobody waits for its close (ZOOKEEPER-5051, measured on 3.8.4)."""
LIMIT = 8 << 20
"""The largest answer that is read, in bytes; ``dump`` and ``cons`` of a busy server stay far below."""


def four_letter_word(address: str, port: int, word: str, deadline_s: float) -> Reading[str]:
    """The whole answer to a four-letter word, as :func:`conversation` gives it."""
    return conversation(address, port, word, f"{word} to {address}:{port}", deadline_s)


def conversation(address: str, port: int, said: str, place: str, deadline_s: float) -> Reading[str]:
    """The whole answer to what is said, once the server has closed the connection after it or does not serve.

    Unknown ``timeout`` when it has not closed within ``deadline_s`` seconds, whatever came until then;
    ``garbled`` when the answer exceeds ``LIMIT``; ``failed`` when there is none at all, which is what a
    server does that is not able to answer, and never what a healthy one says. place: for messages.
    """
    end = time.monotonic() + deadline_s
    answer = bytearray()
    try:
        with socket.create_connection((address, port), timeout=deadline_s) as sock:
            sock.sendall(said.encode("ascii"))
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
                    return Unknown("garbled", f"{place}: more than {LIMIT} bytes and no end")
    except OSError as error:
        came = f" after {len(answer)} bytes" if answer else ""
        return Unknown(socket_cause(error), f"{place}: {socket_text(error)}{came}")
    if not answer:
        return Unknown("failed", f"{place}: connection closed without an answer")
    return Seen(answer.decode("utf-8", "replace"))
