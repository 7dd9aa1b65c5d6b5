"""The settings of one host in the operator's ssh_config, resolved by OpenSSH itself.

``ssh -G`` resolves Host, Match and Include. Its input includes the operator's file and then sets zkmigrate's
defaults: the first value of a setting counts in ssh_config (ssh_config(5); ssh(1), -G).
"""

from __future__ import annotations

import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from zkmigrate.errors import UsageError

_ANSWER_S = 20.0
_UNSET = "/zkmigrate-unset"
"""The default path for a key or known_hosts file, which shows that the operator's ssh_config names none."""


@dataclass(frozen=True)
class HostConfig:
    """The ssh settings of one host.

    host: HostName. key: the first existing IdentityFile, or "". jump: ProxyJump, or "". known_hosts: the
    existing files of UserKnownHostsFile.
    """

    host: str
    user: str
    port: int
    key: str
    jump: str
    known_hosts: tuple[str, ...]


def resolve(file: str, alias: str, user: str, port: int) -> HostConfig:
    """Return the settings of ``alias`` in ``file``; ``user`` and ``port`` are the defaults.

    Raises UsageError if the file or the ssh client is missing, if ssh rejects the file or does not answer, or
    if the host needs ProxyCommand.
    """
    if not Path(file).is_file():
        raise UsageError(f"ssh.config {file} is not a file. Next: fix ssh.config in the inventory")
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
            "reading ssh.config needs OpenSSH's ssh, which is not on this machine. Next: install it, or "
            "give bastion, user and port in the inventory instead of ssh.config"
        ) from None
    except subprocess.TimeoutExpired:
        raise UsageError(
            f"`ssh -G {alias}` did not end within {_ANSWER_S:g} s. Next: check whether a Match exec in "
            f"{file} waits for something"
        ) from None
    if done.returncode:
        error = (done.stderr.strip() or "no error text").splitlines()[-1]
        raise UsageError(f"ssh.config {file}: ssh refuses it: {error}")
    return _host_config(file, alias, _values(done.stdout))


def _values(text: str) -> Mapping[str, list[str]]:
    found: dict[str, list[str]] = {}
    for line in text.splitlines():
        key, _, value = line.partition(" ")
        found.setdefault(key.lower(), []).append(value)
    return found


def _host_config(file: str, alias: str, values: Mapping[str, list[str]]) -> HostConfig:
    if command := _first(values, "proxycommand"):
        raise UsageError(
            f"ssh.config {file}: {alias} is reached by ProxyCommand {command[:80]}, which zkmigrate does "
            "not run. Next: use ProxyJump instead"
        )
    keys = [name for name in values.get("identityfile", []) if name != _UNSET]
    pins = _first(values, "userknownhostsfile").split()
    return HostConfig(
        host=_first(values, "hostname") or alias,
        user=_first(values, "user"),
        port=int(_first(values, "port")),
        key=next(iter(_existing(keys)), ""),
        jump=_first(values, "proxyjump"),
        known_hosts=_existing([name for name in pins if name != _UNSET]),
    )


def _first(values: Mapping[str, list[str]], key: str) -> str:
    value = values.get(key, [""])[0]
    return "" if value == "none" else value


def _existing(names: list[str]) -> tuple[str, ...]:
    paths = [Path(name).expanduser() for name in names]
    return tuple(str(path) for path in paths if path.is_file())
