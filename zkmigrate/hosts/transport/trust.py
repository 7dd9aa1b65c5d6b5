"""The operator's key file and the host keys that the inventory pins, the only sources of trust.

Fabric would accept any host key, and paramiko would use the user's files and agent; this module permits
neither. Formats: sshd(8), SSH_KNOWN_HOSTS FILE FORMAT; ssh-keygen(1).
"""

from __future__ import annotations

import os
import stat
from dataclasses import dataclass
from pathlib import Path
from typing import IO, NoReturn

import paramiko
from paramiko.hostkeys import HostKeyEntry, InvalidHostKey

from zkmigrate.errors import UsageError

_KEY, _KNOWN_HOSTS = "ssh.key", "ssh.known_hosts"
"""The inventory's keys for the path of the private key file and of the known_hosts file."""

_MAKE_KEY = "ssh-keygen -t ed25519 -N '' -f FILE, and add FILE.pub to the account's authorized_keys"
_MAKE_KNOWN_HOSTS = "ssh-keyscan HOST prints such lines; compare their fingerprints at the host's console"
_OTHERS_ANY = 0o077
_OTHERS_WRITE = 0o022


class UnknownHostKey(paramiko.SSHException):
    """Raised if a host presents a key and no known_hosts file has a key for this host."""


class Reject(paramiko.MissingHostKeyPolicy):
    """A paramiko policy that rejects every host without a pinned key. The error shows the host's key."""

    def missing_host_key(self, client: paramiko.SSHClient, hostname: str, key: paramiko.PKey) -> NoReturn:  # noqa: ARG002
        raise UnknownHostKey(
            f"the host shows the key {fingerprint(key)}, but known_hosts has no key for {hostname}"
        )


@dataclass(frozen=True)
class Trust:
    """The loaded private key and the checked known_hosts files of a login."""

    key: paramiko.PKey
    known_hosts: tuple[Path, ...]


@dataclass(frozen=True)
class HostKey:
    """A host key that is not pinned. pin: the host's name in known_hosts files."""

    host: str
    pin: str
    key: paramiko.PKey

    @property
    def line(self) -> str:
        """The line to add to a known_hosts file."""
        return f"{self.pin} {self.key.get_name()} {self.key.get_base64()}\n"


def pinned(known_hosts: Path, pin: str) -> bool:
    """Return whether a checked known_hosts file has any key for a host."""
    return paramiko.HostKeys(str(known_hosts)).lookup(pin) is not None


def fingerprint(key: paramiko.PKey) -> str:
    """Return a host key as ``ssh-keygen -lf`` prints it: type and SHA-256 fingerprint."""
    return f"{key.get_name()} {key.fingerprint}"


def load(key: str, *known_hosts: str) -> Trust:
    """Read and check the private key file and the known_hosts files of a login.

    Raises UsageError, whose text says what is wrong, in which inventory key, and how to fix it.
    """
    key_path = Path(key).expanduser()
    hosts_paths = tuple(Path(name).expanduser() for name in known_hosts)
    with _open_checked(key_path, _KEY, _OTHERS_ANY):
        pass
    for path in hosts_paths:
        with _open_checked(path, _KNOWN_HOSTS, _OTHERS_WRITE) as file:
            _check_known_hosts(path, file.read())
    try:
        return Trust(paramiko.PKey.from_path(key_path), hosts_paths)
    except paramiko.PasswordRequiredException:
        raise UsageError(
            f"{_KEY} {key_path} has a passphrase, but zkmigrate runs unattended. Next: create a separate "
            f"key: {_MAKE_KEY}"
        ) from None
    except (paramiko.SSHException, ValueError, TypeError, OSError) as error:
        raise UsageError(
            f"{_KEY} {key_path} is not a readable private ssh key ({error}). Next: name the private key, "
            f"not its .pub; or create one: {_MAKE_KEY}"
        ) from error


def _open_checked(path: Path, what: str, forbidden: int) -> IO[str]:
    """Open a file, and check owner and mode of the open file.

    what: the inventory key that names the file. forbidden: the mode bits that must not be set. Raises
    UsageError.
    """
    try:
        file = open(path, encoding="utf-8", errors="replace", opener=_at_once)  # noqa: SIM115 (returned open)
    except OSError as error:
        make = _MAKE_KEY if what == _KEY else _MAKE_KNOWN_HOSTS
        raise UsageError(
            f"{what} {path} cannot be read ({error.strerror}). Next: fix {what} in the inventory, or "
            f"create the file: {make}"
        ) from error
    info = os.fstat(file.fileno())
    mode = stat.S_IMODE(info.st_mode)
    if mode & forbidden or not stat.S_ISREG(info.st_mode) or info.st_uid not in (0, os.getuid()):
        file.close()
        raise UsageError(
            f"{what} {path} has mode {mode:04o} and owner {info.st_uid}. Needed: a plain file that you own "
            f"and others cannot {'read' if forbidden & 0o044 else 'write'}. Next: chmod "
            f"go-{'rwx' if forbidden & 0o044 else 'w'} {path}"
        )
    return file


def _at_once(path: str, flags: int) -> int:
    """Open a file, without waiting if it is a pipe."""
    return os.open(path, flags | os.O_NONBLOCK)


def _check_known_hosts(path: Path, text: str) -> None:
    """Raise UsageError for a line that paramiko would skip silently.

    Otherwise a line marked @revoked could be skipped, and its key would be accepted.
    """
    for number, line in enumerate(text.splitlines(), start=1):
        line = line.strip()
        if not line or line.startswith("#"):
            continue
        if line.startswith("@"):
            raise UsageError(
                f"{_KNOWN_HOSTS} {path}:{number}: {line.split()[0]} lines are not supported. Next: "
                f"pin each host's own key instead, {_MAKE_KNOWN_HOSTS}"
            )
        try:
            entry = HostKeyEntry.from_line(line, number)
        except (InvalidHostKey, paramiko.SSHException, ValueError) as error:
            raise _bad_line(path, number, f"not a host key ({error})") from error
        if entry is None:
            raise _bad_line(path, number, "not a known_hosts line, or a key type that is not supported")


def _bad_line(path: Path, number: int, why: str) -> UsageError:
    return UsageError(
        f"{_KNOWN_HOSTS} {path}:{number}: {why}. Next: fix or remove that line; {_MAKE_KNOWN_HOSTS}"
    )
