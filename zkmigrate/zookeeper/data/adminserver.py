"""AdminServer's JSON as the text of the four-letter word that says the same, so that one parser reads both.

``conf`` is not among them: AdminServer leaves out the members and their version. ``dump`` of a learner has no
timeouts here: those of connected sessions stand in ``cons``.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

COMMANDS = {"mntr": "monitor", "cons": "connections", "dump": "dump"}
"""Four-letter word → command of AdminServer."""

_NOT_LISTED = "org.apache.zookeeper.server.quorum.LearnerSessionTracker@0"
"""What a learner prints that does not list its sessions."""


def as_word(word: str, body: Mapping[str, Any]) -> str:
    """Raises KeyError, TypeError, ValueError or AttributeError for JSON that is no answer to this command."""
    if body["command"] != COMMANDS[word]:
        raise ValueError(f"an answer to {body['command']!r}")
    if error := body["error"]:
        return f"{error}\n"
    return {"mntr": _mntr, "cons": _cons, "dump": _dump}[word](body)


def _mntr(body: Mapping[str, Any]) -> str:
    lines = (f"zk_{key}\t{_flat(value)}\n" for key, value in body.items() if key not in ("command", "error"))
    return "".join(lines)


def _flat(value: object) -> str:
    """A value on one line: no text of a server begins a line of its own."""
    return " ".join(str(value).split())


def _cons(body: Mapping[str, Any]) -> str:
    return "".join(_connection(c) for c in (*body["connections"], *body["secure_connections"])) + "\n"


def _connection(c: Mapping[str, Any]) -> str:
    fields = {"queued": c["outstanding_requests"], "recved": c["packets_received"], "sent": c["packets_sent"]}
    if c.get("session_id"):
        fields |= {
            "sid": _session(c["session_id"]),
            "lop": c["last_operation"],
            "est": c["established"],
            "to": c["session_timeout"],
            "lcxid": _session(c["last_cxid"]),
            "lzxid": _session(c["last_zxid"]),
        }
    said = ",".join(f"{key}={_flat(value)}" for key, value in fields.items())
    return f" /{_flat(c['remote_socket_address'])}[{int(c['interest_ops'])}]({said})\n"


def _session(number: int) -> str:
    """Java's signed long as ZooKeeper prints it."""
    return f"0x{int(number) & 0xFFFFFFFFFFFFFFFF:x}"


def _dump(body: Mapping[str, Any]) -> str:
    sessions = [id for ids in body["expiry_time_to_session_ids"].values() for id in ids]
    owners = body["session_id_to_ephemeral_paths"]
    listed = "".join(f"\t{_session(id)}\n" for id in sessions) if sessions else f"{_NOT_LISTED}\n"
    held = "".join(
        f"{_session(int(id))}:\n" + "".join(f"\t{_flat(path)}\n" for path in paths)
        for id, paths in owners.items()
    )
    ephemerals = f"Sessions with Ephemerals ({len(owners)}):\n{held}"
    return f"SessionTracker dump:\n{listed}ephemeral nodes dump:\n{ephemerals}"
