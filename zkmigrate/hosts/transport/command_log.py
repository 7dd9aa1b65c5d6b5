"""Write each command to a host, and its answer, to the log ``zkmigrate.hosts``, if somebody reads it.

Contents of files never enter it: they are long words or lines, which are counted, and the value of a key that
may be a secret is left out.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Sequence

LOG = logging.getLogger("zkmigrate.hosts")

_LONGEST = 200
_WORD = 48
"""A longer word that is no path may hold the content of a file."""
_LINES = 40
_SECRET = re.compile(r"(?i)((?:password|passphrase|secret|jaas|credential|token|digest)[\w.-]*\s*[=:]).*")


def sent(host: str, words: Sequence[str], stdin: bytes = b"") -> None:
    """Log a command before it is sent. stdin: only its length is logged."""
    if LOG.isEnabledFor(logging.DEBUG):
        given = f" (and {len(stdin)} bytes of input)" if stdin else ""
        LOG.debug("%s <- %s%s", host, " ".join(map(_short, words)), given)


def answered(host: str, rc: int, text: str) -> None:
    """Log what a host answered, at most its first lines."""
    if LOG.isEnabledFor(logging.DEBUG):
        lines = text.splitlines()
        shown = [_short(_SECRET.sub(r"\1 (left out)", line)) for line in lines[:_LINES]]
        shown += [f"({len(lines) - _LINES} more lines)"] * (len(lines) > _LINES)
        LOG.debug("%s -> exit code %d%s", host, rc, "".join(f"\n    {line}" for line in shown))


def failed(host: str, error: Exception) -> None:
    """Log why no whole answer to a command came from a host."""
    LOG.debug("%s -> %s", host, error)


def _short(text: str) -> str:
    most = _LONGEST if text.startswith("/") or " " in text else _WORD
    return text if len(text) <= most else f"({len(text)} characters)"
