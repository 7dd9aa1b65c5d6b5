"""Whom to trust: the operator's key file and the pinned host keys of the inventory, nothing else.

Fabric accepts any host key by default and paramiko would look at the user's own files and agent; neither
happens here. Formats: sshd(8), section SSH_KNOWN_HOSTS FILE FORMAT; ssh-keygen(1).
"""

from __future__ import annotations

import stat
from dataclasses import dataclass
from os import fstat, getuid
from pathlib import Path
from typing import IO, NoReturn

import paramiko
from paramiko.hostkeys import HostKeyEntry, InvalidHostKey

from zkmigrate.errors import UsageError

_PRIVATE = 0o077
_NOT_OTHERS_TO_WRITE = 0o022


class UnknownHostKey(paramiko.SSHException):
    """The host showed a key, and the pinned file has none for it."""


class Reject(paramiko.MissingHostKeyPolicy):
    """Refuses every host key that is not pinned, and says which key was shown."""

    def missing_host_key(self, client: paramiko.SSHClient, hostname: str, key: paramiko.PKey) -> NoReturn:  # noqa: ARG002
        raise UnknownHostKey(f"shows the key {shown(key)}, and known_hosts has no key for {hostname}")


@dataclass(frozen=True)
class Trust:
    """The loaded key and the checked known_hosts file of a run."""

    key: paramiko.PKey
    known_hosts: Path


def shown(key: paramiko.PKey) -> str:
    """A host key as ``ssh-keygen -lf`` prints it: type and SHA-256 fingerprint."""
    return f"{key.get_name()} {key.fingerprint}"


def load(key: str, known_hosts: str) -> Trust:
    """Read and check both files; UsageError says what is wrong and how to put it right."""
    key_path, hosts_path = Path(key).expanduser(), Path(known_hosts).expanduser()
    with _guarded(key_path, "ssh key", _PRIVATE):
        pass
    with _guarded(hosts_path, "known_hosts file", _NOT_OTHERS_TO_WRITE) as file:
        _check_known_hosts(hosts_path, file.read())
    try:
        return Trust(paramiko.PKey.from_path(key_path), hosts_path)
    except paramiko.PasswordRequiredException:
        raise UsageError(
            f"{key_path}: the ssh key has a passphrase, and zkmigrate runs unattended: give it its own key"
        ) from None
    except (paramiko.SSHException, ValueError, TypeError, OSError) as error:
        raise UsageError(f"{key_path}: not a private ssh key that can be read ({error})") from error


def _guarded(path: Path, what: str, forbidden: int) -> IO[str]:
    """The opened file, after its owner and mode were checked on the open handle."""
    try:
        file = path.open(encoding="utf-8", errors="replace")
    except OSError as error:
        raise UsageError(f"{path}: cannot read the {what} ({error.strerror})") from error
    info = fstat(file.fileno())
    mode = stat.S_IMODE(info.st_mode)
    if mode & forbidden or not stat.S_ISREG(info.st_mode) or info.st_uid not in (0, getuid()):
        file.close()
        raise UsageError(
            f"{path}: the {what} must be a plain file of yours that others cannot "
            f"{'read' if forbidden & 0o044 else 'write'} (mode {mode:04o}, owner {info.st_uid} seen); "
            f"run: chmod go-{'rwx' if forbidden & 0o044 else 'w'} {path}"
        )
    return file


def _check_known_hosts(path: Path, text: str) -> None:
    """UsageError for a line that paramiko would skip in silence: a skipped @revoked must not pass."""
    for number, line in enumerate(text.splitlines(), start=1):
        line = line.strip()
        if not line or line.startswith("#"):
            continue
        if line.startswith("@"):
            raise UsageError(
                f"{path}:{number}: {line.split()[0]} lines are not supported; pin each host's own key instead"
            )
        try:
            entry = HostKeyEntry.from_line(line, number)
        except (InvalidHostKey, paramiko.SSHException, ValueError) as error:
            raise UsageError(f"{path}:{number}: not a host key ({error})") from error
        if entry is None:
            raise UsageError(f"{path}:{number}: not a known_hosts line, or a key type that is not supported")
