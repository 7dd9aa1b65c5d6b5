"""Save a baseline: the sessions, owners of ephemerals and controller epoch that servers report at one moment.

A baseline is saved as ``baseline-NAME.json`` for the judge (format: ``judge/history.py``). ``before`` is
saved right before the cut-over stage, not at FENCE, where only the tool may read the servers. A session that
is lost between this baseline and FENCE is reported as not preserved.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from kazoo.exceptions import NoNodeError

from zkmigrate.lab.failure import LabError
from zkmigrate.lab.lab import Lab
from zkmigrate.lab.spec import OPERATOR_ADDRESS, Role
from zkmigrate.zookeeper.data.four_letter_words import WordError, parse_cons, parse_dump

_UNSIGNED = 0xFFFFFFFFFFFFFFFF


def save_baseline(lab: Lab, path: Path) -> None:
    """Write dest's baseline to the file. Raises LabError if a dest host does not answer."""
    path.write_text(json.dumps(baseline(lab), indent=1, sort_keys=True) + "\n")


def baseline(lab: Lab) -> dict[str, Any]:
    """Return dest's sessions, the ephemerals under the chroot with owner and czxid, and the controller epoch.

    While dest observes, the result has the sessions that dest's hosts serve (``cons``); once dest leads, it
    has all sessions that the leader knows (``dump``). The operator's own session is left out. Raises LabError
    if a dest host does not answer.
    """
    with lab.operator():
        sessions = _served(lab)
        modes = lab.zookeeper_modes(lab.names(Role.DEST))
        leaders = [host for host in lab.role(Role.DEST) if modes[host.name] == "leader"]
        if leaders:
            known = parse_dump(_word(lab, leaders[0].address, "dump")).sessions or {}
            sessions = {session: sessions.get(session, 0) for session in known}
    with lab.zookeeper(Role.DEST) as client:
        own = client.client_id[0]
        chroot = lab.spec.chroot.rstrip("/")
        ephemerals: dict[str, dict[str, str]] = {}
        for path in _paths(client, chroot):
            stat = client.exists(path)
            if stat is not None and stat.ephemeralOwner:
                owner = stat.ephemeralOwner & _UNSIGNED
                ephemerals[path] = {"owner": hex(owner), "czxid": hex(stat.czxid)}
        epoch = int(client.get(f"{chroot}/controller_epoch")[0])
    return {
        "sessions": {
            hex(session & _UNSIGNED): {"timeout_ms": timeout}
            for session, timeout in sessions.items()
            if session != own
        },
        "ephemerals": ephemerals,
        "controller_epoch": epoch,
    }


def _served(lab: Lab) -> dict[int, int]:
    found: dict[int, int] = {}
    for host in lab.role(Role.DEST):
        for connection in parse_cons(_word(lab, host.address, "cons")):
            if connection.session and connection.address != OPERATOR_ADDRESS:
                found[connection.session] = connection.timeout_ms or 0
    return found


def _word(lab: Lab, address: str, word: str) -> str:
    answer = lab.word(address, word)
    if answer is None:
        raise LabError(f"{address} does not answer {word}")
    try:
        (parse_cons if word == "cons" else parse_dump)(answer)
    except WordError as error:
        raise LabError(f"{address}: {error}") from error
    return answer


def _paths(client: Any, chroot: str) -> list[str]:
    """Return the paths of Kafka's ephemerals: the controller and the broker registrations."""
    ids = client.get_children(f"{chroot}/brokers/ids")
    try:
        client.get(f"{chroot}/controller")
    except NoNodeError:
        return [f"{chroot}/brokers/ids/{id}" for id in ids]
    return [f"{chroot}/controller", *(f"{chroot}/brokers/ids/{id}" for id in ids)]
