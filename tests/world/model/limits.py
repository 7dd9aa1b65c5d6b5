"""What a policy allows, in the model: the same answers as ``may`` of zkm-host.

tests/unit/hosts/zkm_host/test_policy.py compares both.
"""

from __future__ import annotations

import re
from fnmatch import fnmatchcase

from tests.world.model.host import File, Host
from zkmigrate.hosts.zkm_host import POLICY_NAME, STATE_DIR
from zkmigrate.runbook.model import policy
from zkmigrate.runbook.model.change import (
    Arm,
    Discard,
    EditLine,
    HostChange,
    InstallProgram,
    MoveAside,
    PutFile,
    Restore,
    SetService,
    UninstallProgram,
    command_words,
)

_STAGED = re.compile(rf"{STATE_DIR}/[^/]+/staged/[^/]+")


def forbidden(host: Host, change: HostChange) -> str:
    """Why zkm-host refuses a change on this host; empty if the policies there allow it."""
    if isinstance(change, InstallProgram | UninstallProgram) or change.channel:
        return ""
    lines = tuple(
        line
        for path, file in host.files.items()
        if path.startswith(f"{STATE_DIR}/") and path.endswith(f"/{POLICY_NAME}")
        for line in file.content.decode().splitlines()
    )
    missing = next((one for one in _requests(host, change, lines) if not _granted(one, lines)), "")
    return missing and f"the policy of this host does not allow '{missing}'"


def _granted(request: str, lines: tuple[str, ...]) -> bool:
    def head(text: str) -> str:
        return text.rpartition("/")[0] if "/" in text else text

    def tail(text: str) -> str:
        return text.rpartition("/")[2]

    return any(head(one) == head(request) and fnmatchcase(tail(request), tail(one)) for one in lines)


def _requests(host: Host, change: HostChange, lines: tuple[str, ...]) -> tuple[str, ...]:
    """What the policy has to allow, so that this change may be made."""
    match change:
        case PutFile():
            if _STAGED.fullmatch(change.path):
                return ("window",)
            there = host.files.get(change.path, File(b"", change.mode, change.owner, 0.0))
            if (there.mode, there.owner) == (change.mode, change.owner):
                return () if f"rewrite {change.path}" in lines else (_put(change),)
            return (_put(change),)
        case EditLine():
            return (f"rewrite {change.path}",)
        case MoveAside():
            patterns = [line.removeprefix("leftover ") for line in lines if line.startswith("leftover ")]
            if change.folder and any(fnmatchcase(change.path, pattern) for pattern in patterns):
                return ()
            return (" ".join(("move-aside", *change.arguments())),)
        case SetService():
            own = command_words(change.commands)
            return (
                f"service {change.unit} {change.action}",
                *((f"commands {' '.join((change.unit, *own))}",) if own else ()),
            )
        case Restore() | Discard():
            return ("lock",)
        case Arm():
            allowed = sorted(line for line in lines if line.startswith("arm "))
            asked = sorted(policy.arm(change.spec))
            fits = policy.covers(policy.text(allowed), policy.text(asked))
            return ("window", *(() if fits else ("arm with this spec",)))
        case _:
            return ("window",)


def _put(change: PutFile) -> str:
    return f"put {change.path} {change.mode} {change.owner}"
