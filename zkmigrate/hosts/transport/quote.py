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
            raise UsageError(
                f"{word[:80]!r} cannot be sent to a host. Needed: only characters of [A-Za-z0-9._:/,=@+%-]"
            )


def command(argv: Sequence[str]) -> str:
    """Return the command line with which a POSIX shell runs exactly ``argv``.

    Raises UsageError for an empty argv, a program name that is empty or starts with a dash, or a NUL.
    """
    if not argv or not argv[0] or argv[0].startswith("-"):
        raise UsageError(
            f"no program to run in {list(argv)!r}. Needed: the name of a program as the first word"
        )
    if any("\0" in word for word in argv):
        raise UsageError(f"the arguments of {argv[0]} contain a NUL byte, which no command can have")
    return shlex.join(argv)
