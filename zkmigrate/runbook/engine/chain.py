"""The journal's lines: one JSON object each, chained by hash.

A line is ``{"at":…,"body":{…},"kind":…,"seq":…,"sum":"…"}`` in ASCII with a newline. ``sum`` is the SHA-256
of two parts: the SHA-256 of the line before without its newline, as hexadecimal text (none on the first
line), and this line up to the comma before ``sum``. So damage to the last line is seen too. A proper prefix
of a line, left by a tool that died, is *torn* and is cut off. Anything else that does not read is *damage*:
nothing after it can be trusted.

In lines of earlier versions the first part stands as ``previous``, and ``sum`` covers the line alone.

A part of a body larger than ``LARGE`` stands once, in a ``content`` line. That body and later ones name it as
``{"content-sha256":"…"}``; parsed entries have it in place. Journals of earlier versions have no such lines.
Changes on clusters have short lines (``runbook/engine/change_lines.py``); parsed entries have all of them in
place.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple, get_args

from zkmigrate.errors import LostJournalError
from zkmigrate.runbook.engine.change_lines import ChangeLines
from zkmigrate.runbook.model.entry import Entry, Kind

_KINDS = frozenset(get_args(Kind))
_NAMES = "content-sha256"
_NAMED = f'{{"{_NAMES}":'

LARGE = 4096
"""Bytes of JSON up to which a part of a body stays in place."""


@dataclass(frozen=True)
class Parsed:
    """What a journal's bytes say. length: bytes of the whole lines. last: hash that the next line must carry.
    torn: the cut-off rest. damage: why line ``len(entries) + 1`` cannot be read, else empty. unended: the
    last line is whole but lacks its newline. lines: for those that follow."""

    entries: tuple[Entry, ...]
    length: int
    last: str
    torn: bytes = b""
    damage: str = ""
    unended: bool = False
    lines: ChangeLines = field(default_factory=ChangeLines, compare=False)

    def intact(self, file: Path) -> Parsed:
        """Return self. Raises LostJournalError, which names the damaged line and what is possible.

        file: the journal, in the directory of its run.
        """
        if self.damage:
            line = len(self.entries) + 1
            intact = f"lines 1 to {line - 1} are intact" if self.entries else "no line is intact"
            seen = f"journal line {line} {self.damage}; {intact} ({file})"
            raise LostJournalError(seen, file.parent.name, str(file))
        return self


def render(entry: Entry) -> bytes:
    """One entry as a line without its newline."""
    told = {key: value for key, value in vars(entry).items() if key != "previous"}
    head = _json(told)[:-1].encode("ascii")
    return head + b',"sum":"' + _sum(entry.previous, head) + b'"}'


def _sum(previous: str, head: bytes) -> bytes:
    return hashlib.sha256(previous.encode("ascii") + head).hexdigest().encode("ascii")


def digest(line: bytes) -> str:
    """The hash that the sum of the line after this one covers."""
    return hashlib.sha256(line).hexdigest()


def thin(body: Mapping[str, Any]) -> tuple[Mapping[str, Any], Mapping[str, Any]]:
    """A body as its line holds it, and the contents that it names, by name."""
    contents: dict[str, Any] = {}

    def walk(value: Any) -> Any:
        text = _json(value)
        if len(text) <= LARGE and _NAMED not in text:
            return value
        inner = value
        if text.startswith(_NAMED):
            pass  # it looks like a name: as a content, which holds no names, it is itself
        elif isinstance(value, Mapping):
            inner = {key: walk(part) for key, part in value.items()}
        elif isinstance(value, list | tuple):
            inner = [walk(part) for part in value]
        if _json(inner) != text:
            return inner
        contents[name := content_name(value)] = value
        return {_NAMES: name}

    return {key: walk(part) for key, part in body.items()}, contents


def content_name(value: Any) -> str:
    """The SHA-256 of a content's JSON."""
    return hashlib.sha256(_json(value).encode("ascii")).hexdigest()


def parse(data: bytes) -> Parsed:
    """Read as many lines as are intact; never raises."""
    *lines, rest = data.split(b"\n")
    entries: list[Entry] = []
    known = _Known({}, ChangeLines())
    last, length = "", 0
    for line in lines:
        entry = _entry(line, len(entries) + 1, last, known)
        if isinstance(entry, str):
            return Parsed(tuple(entries), length, last, damage=entry)
        entries.append(entry)
        last, length = digest(line), length + len(line) + 1
    if not rest:
        return Parsed(tuple(entries), length, last, lines=known.changes)
    entry = _entry(rest, len(entries) + 1, last, known)
    if isinstance(entry, Entry):
        entries.append(entry)
        whole = length + len(rest)
        return Parsed(tuple(entries), whole, digest(rest), unended=True, lines=known.changes)
    if _is_prefix(rest):
        return Parsed(tuple(entries), length, last, torn=rest, lines=known.changes)
    return Parsed(tuple(entries), length, last, damage=entry)


class _Known(NamedTuple):
    """What the lines so far hold: contents by name, and changes."""

    contents: dict[str, Any]
    changes: ChangeLines


def _json(value: Any) -> str:
    return json.dumps(value, sort_keys=True, separators=(",", ":"), allow_nan=False)


def _entry(line: bytes, seq: int, previous: str, known: _Known) -> Entry | str:
    """The entry of a line, or what is wrong with it. known: of the lines before; this adds its own."""
    head, mark, tail = line.rpartition(b',"sum":"')
    chained, alone = (_sum(first, head) + b'"}' for first in (previous, ""))
    if not mark or tail not in (chained, alone):
        return "does not match its sum, or does not follow the line before it (the chain is broken)"
    value: dict[str, Any] = json.loads(head + b"}")
    if tail != chained and value.get("previous") != previous:
        return "does not follow the line before it (the chain is broken)"
    if value["seq"] != seq:
        return f"carries number {value['seq']}"
    if value["kind"] not in _KINDS:
        return f"is of kind {value['kind']}, which this version does not know"
    kind, body = value["kind"], value["body"]
    if kind == "content":
        known.contents[content_name(body["value"])] = body["value"]
    elif _NAMED.encode("ascii") in head:
        try:
            body = _whole(body, known.contents)
        except KeyError as error:
            return f"names the content {error.args[0]}, which no line before it holds"
    try:
        body = known.changes.whole(kind, body)
    except KeyError as error:
        return f"leaves out {error.args[0]}, which no line before it holds"
    entry = Entry(seq, value["at"], kind, body, previous)
    known.changes.take(entry)
    return entry


def _whole(value: Any, contents: Mapping[str, Any]) -> Any:
    """A body with its contents in place; KeyError with the name of a missing one."""
    if isinstance(value, dict):
        if value.keys() == {_NAMES}:
            return contents[str(value[_NAMES])]
        return {key: _whole(part, contents) for key, part in value.items()}
    if isinstance(value, list):
        return [_whole(part, contents) for part in value]
    return value


def _is_prefix(rest: bytes) -> bool:
    """Whether ``rest`` can be the beginning of a line (or padding)."""
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
