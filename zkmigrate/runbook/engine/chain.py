"""The journal's lines: one JSON object each, chained by hash.

A line is ``{"at":…,"body":{…},"kind":…,"seq":…,"sum":"…"}`` in ASCII with a newline. ``sum`` is the SHA-256
of two parts: the ``sum`` of the line before (``START`` on the first line), and this line up to the comma
before ``sum``. A proper prefix of a line, left by a tool that died, is *torn* and is cut off. Anything else
that does not read is *damage*: nothing after it can be trusted.

Earlier versions began their first line's sum with nothing. Their journals are refused.

A part of a body larger than ``LARGE`` stands once, in a ``content`` line. That body and later ones name it as
``{"content-sha256":"…"}``; parsed entries have it in place.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, get_args

from zkmigrate.errors import JournalError, LostJournalError
from zkmigrate.runbook.model.entry import Entry, Kind

_KINDS = frozenset(get_args(Kind))
_END = len(',"sum":""}') + 64
_NAMES = "content-sha256"
_NAMED = f'{{"{_NAMES}":'

START = "zkmigrate journal 2"
"""What the sum of the first line covers before the line. Another format of lines needs another text."""
LARGE = 4096
"""Bytes of JSON up to which a part of a body stays in place."""


@dataclass(frozen=True)
class Parsed:
    """What a journal's bytes say. length: bytes of the whole lines. last: the sum of the last line, which the
    next one's covers. torn: the cut-off rest. damage: why line ``len(entries) + 1`` cannot be read, else
    empty. unended: the last line is whole but lacks its newline. earlier: an earlier version wrote it."""

    entries: tuple[Entry, ...] = ()
    length: int = 0
    last: str = START
    torn: bytes = b""
    damage: str = ""
    unended: bool = False
    earlier: bool = False

    def intact(self, file: Path) -> Parsed:
        """Return self. Raises LostJournalError, which names the damaged line and what is possible, and
        JournalError for a journal of an earlier version.

        file: the journal, in the directory of its run.
        """
        self.refuse_earlier(file.parent.name)
        if self.damage:
            line = len(self.entries) + 1
            intact = f"lines 1 to {line - 1} are intact" if self.entries else "no line is intact"
            seen = f"journal line {line} {self.damage}; {intact} ({file})"
            raise LostJournalError(seen, file.parent.name, str(file))
        return self

    def refuse_earlier(self, run: str) -> None:
        """Raise JournalError if an earlier version wrote the journal of this run."""
        if self.earlier:
            raise JournalError(
                f"the journal of run {run} was written by an earlier version, and this version does not read "
                "it. Next: finish such a run with the version that began it"
            )


def render(entry: Entry) -> bytes:
    """One entry as a line without its newline."""
    told = {key: value for key, value in vars(entry).items() if key != "previous"}
    head = _json(told)[:-1].encode("ascii")
    return head + _end(_sum(entry.previous, head))


def _sum(previous: str, head: bytes) -> str:
    return hashlib.sha256(previous.encode("ascii") + head).hexdigest()


def _end(sum: str) -> bytes:
    return b',"sum":"' + sum.encode("ascii") + b'"}'


def sum_of(line: bytes) -> str:
    """Return the sum that a whole line carries."""
    return line[-66:-2].decode("ascii")


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
    known: dict[str, Any] = {}
    last, length = START, 0
    for line in lines:
        entry = _entry(line, len(entries) + 1, last, known)
        if isinstance(entry, str):
            earlier = not entries and _is_earlier(line)
            return Parsed(tuple(entries), length, last, damage=entry, earlier=earlier)
        entries.append(entry)
        last, length = sum_of(line), length + len(line) + 1
    if not rest:
        return Parsed(tuple(entries), length, last)
    entry = _entry(rest, len(entries) + 1, last, known)
    if isinstance(entry, Entry):
        entries.append(entry)
        return Parsed(tuple(entries), length + len(rest), sum_of(rest), unended=True)
    if _is_prefix(rest):
        return Parsed(tuple(entries), length, last, torn=rest)
    return Parsed(tuple(entries), length, last, damage=entry)


def _json(value: Any) -> str:
    return json.dumps(value, sort_keys=True, separators=(",", ":"), allow_nan=False)


def _entry(line: bytes, seq: int, previous: str, known: dict[str, Any]) -> Entry | str:
    """Return the entry of a line, or what is wrong with it. known: contents so far; this adds its own."""
    head = line[:-_END]
    if line[-_END:] != _end(_sum(previous, head)):
        return "does not match its sum, or does not follow the line before it (the chain is broken)"
    value: dict[str, Any] = json.loads(head.decode("ascii") + "}")
    if value["seq"] != seq:
        return f"carries number {value['seq']}"
    if value["kind"] not in _KINDS:
        return f"is of kind {value['kind']}, which this version does not know"
    kind, body = value["kind"], value["body"]
    if kind == "content":
        known[content_name(body["value"])] = body["value"]
    elif _NAMED.encode("ascii") in head:
        try:
            body = _whole(body, known)
        except KeyError as error:
            return f"names the content {error.args[0]}, which no line before it holds"
    return Entry(seq, value["at"], kind, body, previous)


def _is_earlier(line: bytes) -> bool:
    """Return whether an earlier version wrote this first line of a journal."""
    head = line[:-_END]
    return line[-_END:] == _end(_sum("", head))


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
