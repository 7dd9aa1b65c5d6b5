"""The only place where values become words of a remote shell."""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence

from zkmigrate.errors import UsageError

_PLAIN = re.compile(r"[A-Za-z0-9._:/,=@+%-]+\Z")


def plain(words: Sequence[str]) -> None:
    """Raise UsageError for a word with a character that is special to a shell, a line or a terminal."""
    for word in words:
        if not _PLAIN.match(word):
            raise UsageError(f"{word[:80]!r} cannot be sent to a host: words of [A-Za-z0-9._:/,=@+%-] only")


def command(argv: Sequence[str]) -> str:
    """Return the command line with which a POSIX shell runs exactly ``argv``.

    Raises UsageError for an empty argv, a program name that is empty or starts with a dash, or a NUL.
    """
    if not argv or not argv[0] or argv[0].startswith("-"):
        raise UsageError(f"no program to run in {list(argv)!r}: the first word must be a program's name")
    if any("\0" in word for word in argv):
        raise UsageError(f"a NUL byte in the arguments of {argv[0]}: no command can carry one")
    return shlex.join(argv)
