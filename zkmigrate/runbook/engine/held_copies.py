"""Compare a run's journal with the copies that hosts keep, before anything is added to it.

The operator's journal may have been restored from a backup. It then ends with a whole line, and only the
hosts have the later lines.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from zkmigrate.errors import LostJournalError
from zkmigrate.runbook.engine import chain
from zkmigrate.runbook.model.look import RandomReader

_TAIL = 1 << 20
"""How many bytes before the end of the shorter file are compared.

Each line's sum covers all lines before it, so equal last lines mean equal files.
"""


def beyond(content: bytes, copy: RandomReader) -> bytes | None:
    """Return the part of a copy after the last whole line of the journal; None if the copy has other lines.

    content: the bytes of the journal. Raises HostError if the copy cannot be read.
    """
    ours, size = _whole(content), copy.size()
    upto = min(size, len(ours))
    begin = max(0, upto - _TAIL)
    theirs = copy.read(begin, size - begin)
    same = theirs[: upto - begin] == ours[begin:upto]
    return theirs[upto - begin :] if same else None


def longest(file: Path, content: bytes, copies: Mapping[str, bytes | None]) -> bytes:
    """Return the journal, with the lines appended that only copies have.

    file: the path of the journal. content: its bytes. copies: the results of ``beyond`` by host. A copy may
    differ if this journal was recovered without some of its lines. Raises LostJournalError for any other
    difference, and for a damaged journal.
    """
    ours = _whole(content)
    best = max((one for one in copies.values() if one is not None), key=len, default=b"")
    other = [host for host, one in copies.items() if one is None or not best.startswith(one)]
    if not other and not best:
        return content
    parsed = chain.parse(content).intact(file)
    if parsed.unended and best and not best.startswith(content[len(ours) :]):
        other = list(copies)
    if other and not any(entry.body.get("lost") for entry in parsed.entries):
        seen = (
            f"the journal {file} has {len(parsed.entries):,} lines, and the copy on {', '.join(other)} has "
            "other lines"
        )
        raise LostJournalError(seen, file.parent.name, str(file), "Or remove the wrong copies.")
    whole = chain.parse(ours + best)
    return (ours + best)[: whole.length] if whole.length > len(ours) else content


def _whole(content: bytes) -> bytes:
    """Return the lines that end in a newline."""
    return content[: content.rfind(b"\n") + 1]
