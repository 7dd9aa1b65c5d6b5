"""What an operator's ssh_config says of one host, in OpenSSH's own reading of it.

``ssh -G`` resolves Host, Match and Include as the ssh of that machine does. It reads a text that includes the
operator's file and then gives our own values: in ssh_config the first value that is found counts, so ours
stand only where the file says nothing (ssh_config(5); ssh(1), -G).
"""

from __future__ import annotations

import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from zkmigrate.errors import UsageError

_ANSWER_S = 20.0
_UNSET = "/zkmigrate-unset"
"""Stands for a file that the operator's ssh_config does not name."""


@dataclass(frozen=True)
class Said:
    """host: HostName. key: IdentityFile, "" where the file names none that is there. jump: ProxyJump, "" for
    none. known_hosts: the files of UserKnownHostsFile that are there."""

    host: str
    user: str
    port: int
    key: str
    jump: str
    known_hosts: tuple[str, ...]


def resolve(file: str, alias: str, user: str, port: int) -> Said:
    """What ``file`` says of ``alias``; user and port stand where it does not say them.

    Raises UsageError when the file or the ssh client is not there, or ssh does not understand the file.
    """
    if not Path(file).is_file():
        raise UsageError(f"ssh.config {file} is not a file. Next: correct ssh.config in the inventory")
    text = (
        f'Include "{file}"\nHost *\n  User {user}\n  Port {port}\n'
        f"  IdentityFile {_UNSET}\n  UserKnownHostsFile {_UNSET}\n"
    )
    try:
        done = subprocess.run(
            ["ssh", "-G", "-F", "/dev/stdin", "--", alias],
            input=text,
            capture_output=True,
            text=True,
            timeout=_ANSWER_S,
            check=False,
        )
    except FileNotFoundError:
        raise UsageError(
            "ssh.config is read by OpenSSH's own ssh, which is not on this machine. Next: install "
            "it, or leave ssh.config out and say bastion, user and port in the inventory"
        ) from None
    except subprocess.TimeoutExpired:
        raise UsageError(
            f"`ssh -G {alias}` did not end within {_ANSWER_S:g} s: what does a Match exec in {file} wait for?"
        ) from None
    if done.returncode:
        said = (done.stderr.strip() or "it said nothing").splitlines()[-1]
        raise UsageError(f"ssh.config {file}: ssh refuses it: {said}")
    return _said(file, alias, _values(done.stdout))


def _values(text: str) -> Mapping[str, list[str]]:
    found: dict[str, list[str]] = {}
    for line in text.splitlines():
        key, _, value = line.partition(" ")
        found.setdefault(key.lower(), []).append(value)
    return found


def _said(file: str, alias: str, values: Mapping[str, list[str]]) -> Said:
    if command := _one(values, "proxycommand"):
        raise UsageError(
            f"ssh.config {file}: {alias} is reached by ProxyCommand {command[:80]}, which zkmigrate does not "
            "run. Next: say the same with ProxyJump"
        )
    keys = [name for name in values.get("identityfile", []) if name != _UNSET]
    pins = _one(values, "userknownhostsfile").split()
    return Said(
        host=_one(values, "hostname") or alias,
        user=_one(values, "user"),
        port=int(_one(values, "port")),
        key=next(iter(_there(keys)), ""),
        jump=_one(values, "proxyjump"),
        known_hosts=_there([name for name in pins if name != _UNSET]),
    )


def _one(values: Mapping[str, list[str]], key: str) -> str:
    value = values.get(key, [""])[0]
    return "" if value == "none" else value


def _there(names: list[str]) -> tuple[str, ...]:
    paths = [Path(name).expanduser() for name in names]
    return tuple(str(path) for path in paths if path.is_file())
