"""Client of AdminServer, ZooKeeper's own HTTP server (3.5 and later, port 8080, on by default).

A server that allows only ``srvr`` as a four-letter word (the default since 3.5.3) answers other words through
AdminServer, without a restart. The JSON answer is converted to the text of the four-letter word, so that one
parser reads both.

``conf`` is not supported, because AdminServer omits the ensemble's members and their version. In the answer
to ``dump``, a learner gives no session timeouts; the answer to ``cons`` has the timeouts of connected
sessions.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from zkmigrate.runbook.model.fact import Reading, Seen, Unknown
from zkmigrate.zookeeper.clients.four_letter_client import conversation, four_letter_word
from zkmigrate.zookeeper.clients.login import OPEN, Credentials
from zkmigrate.zookeeper.data.four_letter_words import not_allowed
from zkmigrate.zookeeper.data.session import format_session

COMMANDS = {"mntr": "monitor", "cons": "connections", "dump": "dump", "envi": "environment"}
"""The command of AdminServer for each supported four-letter word."""

_NOT_LISTED = "org.apache.zookeeper.server.quorum.LearnerSessionTracker@0"
"""The line that a learner prints instead of a list of sessions."""


def allowed_word(
    address: str,
    port: int,
    admin_port: int,
    word: str,
    deadline_s: float,
    credentials: Credentials = OPEN,
) -> Reading[str]:
    """Return the answer to a four-letter word, from AdminServer if the server does not allow the word.

    deadline_s: the time limit in seconds for each of the two requests. Failures are Unknown: see
    :func:`admin_word`.
    """
    answer = four_letter_word(address, port, word, deadline_s, credentials)
    if not (isinstance(answer, Seen) and not_allowed(answer.value)):
        return answer
    return word_refused(address, admin_port, word, deadline_s)


def word_refused(address: str, admin_port: int, word: str, deadline_s: float) -> Reading[str]:
    """Return AdminServer's answer for a four-letter word that the server does not allow.

    If AdminServer fails too, the result is Unknown (timeout or denied), and its reason states both failures.
    """
    answer = admin_word(address, admin_port, word, deadline_s)
    if not isinstance(answer, Unknown):
        return answer
    why = f"4lw.commands.whitelist does not name {word}; {answer.why}"
    return Unknown("timeout" if answer.cause == "timeout" else "denied", why)


def admin_word(address: str, port: int, word: str, deadline_s: float) -> Reading[str]:
    """Return AdminServer's answer as the text of a four-letter word.

    The result is Unknown (denied) for a word that AdminServer cannot answer completely, Unknown (failed) for
    an HTTP status other than 200, and Unknown (garbled) for JSON that does not answer the command. For
    connection failures see :func:`conversation`.
    """
    place = f"AdminServer at {address}:{port}"
    command = COMMANDS.get(word)
    if command is None:
        return Unknown("denied", f"{place} has no command that answers {word} completely")
    # HTTP/1.0: the server ends the answer by closing the connection, as it does after a four-letter word.
    request = f"GET /commands/{command} HTTP/1.0\r\n\r\n"
    answer = conversation(address, port, request, place, deadline_s)
    if not isinstance(answer, Seen):
        return answer
    head, _, body = answer.value.partition("\r\n\r\n")
    first = head.partition("\r\n")[0]
    if first.split(" ")[1:2] != ["200"]:
        return Unknown("failed", f"{place} answered {command} with {first[:80]!r}")
    try:
        return Seen(format_as_word(word, json.loads(body)))
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        why = f"cannot parse the answer to {command} ({type(error).__name__})"
        return Unknown("garbled", f"{place}: {why}")


def format_as_word(word: str, body: Mapping[str, Any]) -> str:
    """Convert AdminServer's JSON to the text of a four-letter word.

    Raises KeyError, TypeError, ValueError or AttributeError for JSON that does not answer this command.
    """
    if body["command"] != COMMANDS[word]:
        raise ValueError(f"an answer to {body['command']!r}")
    if error := body["error"]:
        return f"{error}\n"
    return {"mntr": _mntr, "cons": _cons, "dump": _dump, "envi": _envi}[word](body)


def _mntr(body: Mapping[str, Any]) -> str:
    lines = (
        f"zk_{key}\t{_format_flat(value)}\n" for key, value in body.items() if key not in ("command", "error")
    )
    return "".join(lines)


def _envi(body: Mapping[str, Any]) -> str:
    lines = (
        f"{key}={_format_flat(value)}\n" for key, value in body.items() if key not in ("command", "error")
    )
    return "".join(("Environment:\n", *lines))


def _format_flat(value: object) -> str:
    """Return a value as text on one line. Line breaks in the value become blanks."""
    return " ".join(str(value).split())


def _cons(body: Mapping[str, Any]) -> str:
    return "".join(_connection(c) for c in (*body["connections"], *body["secure_connections"])) + "\n"


def _connection(c: Mapping[str, Any]) -> str:
    fields = {"queued": c["outstanding_requests"], "recved": c["packets_received"], "sent": c["packets_sent"]}
    if c.get("session_id"):
        fields |= {"sid": format_session(int(c["session_id"])), "to": c["session_timeout"]}
    pairs = ",".join(f"{key}={_format_flat(value)}" for key, value in fields.items())
    return f" /{_format_flat(c['remote_socket_address'])}[{int(c['interest_ops'])}]({pairs})\n"


def _dump(body: Mapping[str, Any]) -> str:
    sessions = [id for ids in body["expiry_time_to_session_ids"].values() for id in ids]
    owners = body["session_id_to_ephemeral_paths"]
    listed = "".join(f"\t{format_session(int(id))}\n" for id in sessions) if sessions else f"{_NOT_LISTED}\n"
    held = "".join(
        f"{format_session(int(id))}:\n" + "".join(f"\t{_format_flat(path)}\n" for path in paths)
        for id, paths in owners.items()
    )
    ephemerals = f"Sessions with Ephemerals ({len(owners)}):\n{held}"
    return f"SessionTracker dump:\n{listed}ephemeral nodes dump:\n{ephemerals}"
