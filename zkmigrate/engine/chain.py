"""The journal's lines: one JSON object each, chained by hash, each with a sum of its own.

A line is ``{"at":…,"body":{…},"kind":…,"previous":…,"seq":…,"sum":"…"}`` in ASCII, closed by a newline.
``previous`` is the SHA-256 of the bytes of the line before (without its newline), empty on the first line.
``sum`` is the SHA-256 of this line's bytes up to the comma before it, so that damage to the last line is
seen too. A line that was being written when the tool died is a proper prefix of a line: it is *torn*, and is
cut off. Anything else that does not read is *damage*: nothing after it can be trusted.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from typing import Any, get_args

from zkmigrate.errors import JournalError
from zkmigrate.model.entry import Entry, Kind

_KINDS = frozenset(get_args(Kind))


@dataclass(frozen=True)
class Parsed:
    """What a journal's bytes say.

    length: bytes of the whole lines. last: hash that the next line must carry. torn: the cut-off rest.
    damage: why line ``len(entries) + 1`` cannot be read, empty when all of it can.
    unended: the last line is whole but lacks its newline.
    """

    entries: tuple[Entry, ...]
    length: int
    last: str
    torn: bytes = b""
    damage: str = ""
    unended: bool = False

    def intact(self) -> Parsed:
        """Self; JournalError naming the line and what is possible when the journal is damaged."""
        if self.damage:
            line = len(self.entries) + 1
            raise JournalError(
                f"journal line {line} {self.damage}; lines 1 to {line - 1} are intact. "
                "Needed: an unbroken chain. Possible now: put an intact copy in its place (the dest hosts "
                "keep one), or give the direction, resume --journal-lost forward|back: the intact lines are "
                "kept and the position is taken from the hosts"
            )
        return self


def render(entry: Entry) -> bytes:
    """One entry as a line without its newline."""
    value = {
        "at": entry.at,
        "body": entry.body,
        "kind": entry.kind,
        "previous": entry.previous,
        "seq": entry.seq,
    }
    head = json.dumps(value, sort_keys=True, separators=(",", ":"), allow_nan=False)[:-1].encode("ascii")
    return head + b',"sum":"' + hashlib.sha256(head).hexdigest().encode("ascii") + b'"}'


def digest(line: bytes) -> str:
    """The hash that the line after this one carries as ``previous``."""
    return hashlib.sha256(line).hexdigest()


def parse(data: bytes) -> Parsed:
    """Read as many lines as are intact; never raises."""
    *lines, rest = data.split(b"\n")
    entries: list[Entry] = []
    last, length = "", 0
    for line in lines:
        entry = _entry(line, len(entries) + 1, last)
        if isinstance(entry, str):
            return Parsed(tuple(entries), length, last, damage=entry)
        entries.append(entry)
        last, length = digest(line), length + len(line) + 1
    if not rest:
        return Parsed(tuple(entries), length, last)
    entry = _entry(rest, len(entries) + 1, last)
    if isinstance(entry, Entry):
        return Parsed((*entries, entry), length + len(rest), digest(rest), unended=True)
    if _is_prefix(rest):
        return Parsed(tuple(entries), length, last, torn=rest)
    return Parsed(tuple(entries), length, last, damage=entry)


def _entry(line: bytes, seq: int, previous: str) -> Entry | str:
    """The entry of one line, or what is wrong with it."""
    head, mark, tail = line.rpartition(b',"sum":"')
    if not mark or tail != hashlib.sha256(head).hexdigest().encode("ascii") + b'"}':
        return "does not match its own sum"
    value: dict[str, Any] = json.loads(head + b"}")
    if value["previous"] != previous:
        return "does not follow the line before it (the chain is broken)"
    if value["seq"] != seq:
        return f"carries number {value['seq']}"
    if value["kind"] not in _KINDS:
        return f"is of kind {value['kind']}, which this version does not know"
    return Entry(value["seq"], value["at"], value["kind"], value["body"], value["previous"])


def _is_prefix(rest: bytes) -> bool:
    """True when ``rest`` can be the beginning of a line (or padding), not a whole one plus more."""
    rest = rest.rstrip(b"\0")
    if not rest:
        return True
    if not rest.startswith(b'{"at":'[: len(rest)]):
        return False
    try:
        json.JSONDecoder().raw_decode(rest.decode("ascii"))
    except UnicodeDecodeError:
        return False
    except ValueError:
        return True
    return False
