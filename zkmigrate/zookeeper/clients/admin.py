"""AdminServer, ZooKeeper's own HTTP server (3.5 and later, port 8080, on by default): what it answers, as the
four-letter word that says the same.

A server that allows only ``srvr`` (the default since 3.5.3) tells the rest here, without a restart.
"""

from __future__ import annotations

import json

from zkmigrate.model.fact import Reading, Seen, Unknown
from zkmigrate.zookeeper.clients.four_letter_client import conversation, four_letter_word
from zkmigrate.zookeeper.data.adminserver import COMMANDS, as_word
from zkmigrate.zookeeper.data.four_letter_words import not_allowed

ADMIN_PORT = 8080
"""ZooKeeper's default of ``admin.serverPort``."""


def allowed_word(address: str, port: int, admin_port: int, word: str, deadline_s: float) -> Reading[str]:
    """The answer to a four-letter word, from AdminServer where the server does not allow the word."""
    answer = four_letter_word(address, port, word, deadline_s)
    if not (isinstance(answer, Seen) and not_allowed(answer.value)):
        return answer
    return word_refused(address, admin_port, word, deadline_s)


def word_refused(address: str, admin_port: int, word: str, deadline_s: float) -> Reading[str]:
    """AdminServer's answer for a word that its server does not allow. Unknown (timeout, denied) says both."""
    answer = admin_word(address, admin_port, word, deadline_s)
    if not isinstance(answer, Unknown):
        return answer
    why = f"4lw.commands.whitelist does not name {word}; {answer.why}"
    return Unknown("timeout" if answer.cause == "timeout" else "denied", why)


def admin_word(address: str, port: int, word: str, deadline_s: float) -> Reading[str]:
    """The answer to a four-letter word, asked from AdminServer. Unknown (denied) for a word that AdminServer
    does not answer as a whole; else as ``clients.words.four_letter_word``."""
    place = f"AdminServer at {address}:{port}"
    command = COMMANDS.get(word)
    if command is None:
        return Unknown("denied", f"{place} does not tell all that {word} tells")
    # HTTP/1.0: the server ends the answer by closing the connection, as it does after a four-letter word.
    request = f"GET /commands/{command} HTTP/1.0\r\n\r\n"
    answer = conversation(address, port, request, place, deadline_s)
    if not isinstance(answer, Seen):
        return answer
    head, _, body = answer.value.partition("\r\n\r\n")
    first = head.partition("\r\n")[0]
    if first.split(" ")[1:2] != ["200"]:
        return Unknown("failed", f"{place}: {command} answered {first[:80]!r}")
    try:
        return Seen(as_word(word, json.loads(body)))
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        why = f"{command} answered what is not understood ({type(error).__name__})"
        return Unknown("garbled", f"{place}: {why}")
