"""Read the secrets to which the inventory refers, only when a client needs them.

A message says what is wrong with a reference, and never contains what a file, a variable or a command's
output contains. A secret is UTF-8 text without control characters; one newline at its end is removed.
"""

from __future__ import annotations

import ctypes
import os
import resource
import signal
import stat
import subprocess
import threading
from contextlib import suppress
from functools import cache

from zkmigrate import input_file
from zkmigrate.errors import UsageError
from zkmigrate.inventory import login
from zkmigrate.inventory.login import Secret

LARGEST = 4096
"""The largest secret in bytes."""
COMMAND_S = 10.0
"""Seconds within which a command must print its secret and end."""

_PRIVATE = 0o077
_PR_SET_DUMPABLE = 4
"""From ``linux/prctl.h``."""
_RUNNING = threading.Lock()


class SecretError(UsageError):
    """A secret cannot be read. The message names the inventory's key, never the secret."""


def read(secret: Secret, key: str) -> str:
    """Return the secret. key: its key in the inventory, for messages. Raises SecretError.

    From the first secret on, the process writes no core dump.
    """
    _forbid_core_dumps()
    if secret.file is not None:
        where, content = f"the file {secret.file}", _content(secret.file, key)
    elif secret.env is not None:
        where, content = f"the variable {secret.env}", _variable(secret.env, key)
    else:
        assert secret.command is not None
        where = f"the output of {secret.command[0]}"
        with _RUNNING:
            content = _output(secret.command, key)
    if len(content) > LARGEST:
        raise _wrong(key, f"{where} has more than {LARGEST} bytes", "the password alone")
    try:
        text = content.decode().removesuffix("\n")
    except UnicodeDecodeError:
        text = "\0"
    if any(ord(one) < 32 or ord(one) == 127 for one in text):
        raise _wrong(
            key,
            f"{where} has control characters, several lines or bytes that are not UTF-8",
            "the password as one line of text",
        )
    if not text:
        raise _wrong(key, f"{where} is empty", "the password as one line of text")
    return text


def check_private(path: str, key: str) -> None:
    """Check that only its owner can read a file and that the owner is this account. Raises SecretError.

    key: the file's key in the inventory, for messages. From then on, the process writes no core dump.
    """
    _forbid_core_dumps()
    _content(path, key, 0)


def _forbid_core_dumps() -> None:
    """Forbid core dumps of this process and, by its limit, of the commands that print secrets."""
    resource.setrlimit(resource.RLIMIT_CORE, (0, resource.getrlimit(resource.RLIMIT_CORE)[1]))
    # The kernel does not apply that limit where it pipes core dumps to a program: core(5).
    ctypes.CDLL(None).prctl(_PR_SET_DUMPABLE, 0, 0, 0, 0)


def _content(path: str, key: str, most: int = LARGEST + 1) -> bytes:
    try:
        with input_file.opened(path) as file:
            found = os.fstat(file.fileno())
            if found.st_uid != os.geteuid():
                raise _wrong(
                    key,
                    f"the file {path} belongs to the account with number {found.st_uid}",
                    "a file that belongs to the account that runs zkmigrate",
                )
            if found.st_mode & _PRIVATE:
                raise _wrong(
                    key,
                    f"other accounts may use the file {path}: its mode is {stat.S_IMODE(found.st_mode):04o}",
                    f"mode 0600. Next: run `chmod 600 {path}`",
                )
            return file.read(most)
    except OSError as error:
        raise _wrong(key, f"the file {path} cannot be read: {error.strerror}", "a readable file") from None


def _variable(name: str, key: str) -> bytes:
    value = os.environ.get(name, login.hidden_variable(name))
    if value is None:
        raise _wrong(
            key,
            f"the environment has no variable {name}",
            "that variable. A program that zkmigrate starts, such as a hook, does not inherit it",
        )
    return os.fsencode(value)


@cache
def _output(command: tuple[str, ...], key: str) -> bytes:
    """Return the output of a command, which runs once in the life of this process. Raises SecretError."""
    where = f"the command {command[0]}"
    try:
        child = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,  # it may print the secret
            start_new_session=True,
        )
    except (OSError, ValueError) as error:
        why = getattr(error, "strerror", None) or type(error).__name__
        raise _wrong(key, f"{where} cannot be started: {why}", "a program on this machine") from None
    late = threading.Timer(COMMAND_S, _end, [child])
    late.start()
    try:
        assert child.stdout is not None
        with child.stdout as pipe:
            content = pipe.read(LARGEST + 2)
        if len(content) > LARGEST + 1:
            _end(child)
        code = child.wait()
    finally:
        in_time = late.is_alive()
        late.cancel()
        _end(child)
    if not in_time:
        raise _wrong(key, f"{where} did not end within {COMMAND_S:g} s", "a command that ends by itself")
    if code and len(content) <= LARGEST + 1:
        raise _wrong(
            key,
            f"{where} ended with exit code {code}",
            "exit code 0. Next: run it by hand to see why",
        )
    return content


def _end(child: subprocess.Popen[bytes]) -> None:
    """Kill a command with all processes of its session, unless it has ended."""
    if child.returncode is None:
        with suppress(ProcessLookupError):
            os.killpg(child.pid, signal.SIGKILL)


def _wrong(key: str, seen: str, needed: str) -> SecretError:
    return SecretError(f"{key}: {seen}. Needed: {needed}")
