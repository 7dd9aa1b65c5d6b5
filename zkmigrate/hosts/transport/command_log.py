"""Debug log ``zkmigrate.hosts`` of each command sent to a host and of the host's answer.

Contents of files are never logged: long words and lines are replaced by their length, and only the first
lines of an answer are kept. The value of a key that may be a secret is left out.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Sequence

from zkmigrate.keyed_digest import SECRET_NAME

LOG = logging.getLogger("zkmigrate.hosts")

_LONGEST = 200
_WORD = 48
"""The longest word that is logged, in characters. A longer one that is not a path may be a file's content."""
_LINES = 40
_SECRET = re.compile(rf"(?i)((?:{SECRET_NAME}|jaas|token|digest)[\w.-]*\s*[=:]).*")


def sent(host: str, words: Sequence[str], stdin: bytes = b"") -> None:
    """Log a command before it is sent. Only the length of ``stdin`` is logged."""
    if LOG.isEnabledFor(logging.DEBUG):
        given = f" (and {len(stdin)} bytes of input)" if stdin else ""
        LOG.debug("%s <- %s%s", host, " ".join(map(_short, words)), given)


def answered(host: str, rc: int, text: str, words: Sequence[str] = ()) -> None:
    """Log the exit code and the first lines of a host's answer. words: the command.

    Of a file that zkm-host read only the length is logged: a short one may be a password.
    """
    if LOG.isEnabledFor(logging.DEBUG):
        content = rc == 0 and "read" in words
        lines = [f"({len(text)} characters of a file)"] if content else text.splitlines()
        shown = [_short(_SECRET.sub(r"\1 (left out)", line)) for line in lines[:_LINES]]
        shown += [f"({len(lines) - _LINES} more lines)"] * (len(lines) > _LINES)
        LOG.debug("%s -> exit code %d%s", host, rc, "".join(f"\n    {line}" for line in shown))


def failed(host: str, error: Exception) -> None:
    """Log why a host gave no complete answer to a command."""
    LOG.debug("%s -> %s", host, error)


def _short(text: str) -> str:
    most = _LONGEST if text.startswith("/") or " " in text else _WORD
    return text if len(text) <= most else f"({len(text)} characters)"
