"""Read a YAML file that a person wrote as plain values with their line numbers.

It accepts a strict part of YAML 1.2: one document of mappings with text keys, sequences, text, decimal
integers, floats, booleans and null. A date is text and a merge key is an ordinary key. Duplicate keys,
anchors, aliases, tags and other numbers (octal, hexadecimal, inf) are mistakes. One reading finds all
mistakes. Size and nesting are bounded.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from ruamel.yaml import YAML
from ruamel.yaml.error import MarkedYAMLError, YAMLError
from ruamel.yaml.events import (
    AliasEvent,
    DocumentStartEvent,
    Event,
    MappingEndEvent,
    MappingStartEvent,
    NodeEvent,
    ScalarEvent,
    SequenceEndEvent,
    SequenceStartEvent,
)

MAX_BYTES = 256 * 1024
MAX_DEPTH = 16

Path: TypeAlias = tuple[str | int, ...]
"""The keys and list positions from the top of the document to a value; ``()`` is the top."""

_PLAIN_KEY = re.compile(r"[A-Za-z0-9_.-]{1,64}")
_TAG_HANDLE = re.compile(r"(undefined tag handle) '.*'")
_INTEGER = re.compile(r"[-+]?[0-9]{1,18}")
_FLOAT = re.compile(r"[-+]?[0-9]{1,18}\.[0-9]{1,18}")
_ODD_NUMBER = re.compile(
    r"[-+]?(?:0o[0-7_]+|0x[0-9a-fA-F_]+|[0-9][0-9_]*|[0-9_]*\.[0-9_]*|\.inf|\.Inf|\.INF)(?:[eE][-+]?[0-9]+)?"
    r"|\.nan|\.NaN|\.NAN"
)
_WORDS: dict[str, bool | None] = {
    "true": True, "True": True, "TRUE": True, "false": False, "False": False, "FALSE": False,
    "null": None, "Null": None, "NULL": None, "~": None, "": None,
}  # fmt: skip


@dataclass(frozen=True, order=True)
class Mark:
    """A place in the file, counted from 1."""

    line: int
    column: int


@dataclass(frozen=True)
class Mistake:
    """One mistake at one place.

    path: the key, as the file spells it.
    """

    mark: Mark
    path: Path
    reason: str


@dataclass
class Document:
    """A document with its plain values, their places and the mistakes in its YAML.

    keys: the mark of the key or list item at each path. texts: each scalar as typed.
    """

    value: Any = None
    keys: dict[Path, Mark] = field(default_factory=dict)
    texts: dict[Path, str] = field(default_factory=dict)
    mistakes: list[Mistake] = field(default_factory=list)

    def mark(self, path: Path) -> Mark:
        """Return the place of ``path``; for a missing key, the place of the nearest key around it."""
        while path and path not in self.keys:
            path = path[:-1]
        return self.keys.get(path, Mark(1, 1))


def dotted(path: Path) -> str:
    """Return a path as one line of text, such as ``dest.hosts[0].myid``; odd keys are quoted."""
    text = ""
    for part in path:
        if isinstance(part, int):
            text += f"[{part}]"
        else:
            shown = part if _PLAIN_KEY.fullmatch(part) else repr(part[:40])
            text += f".{shown}" if text else shown
    return text


def parse(text: str) -> Document:
    """Read one document; ``mistakes`` of the result lists what is wrong. It raises nothing."""
    document = Document()
    try:
        # The pure parser: its events carry marks, and it builds no object from the file.
        reader = _Reader(YAML(typ="safe", pure=True).parse(text), document)
        reader.document()
    except MarkedYAMLError as error:
        at = error.problem_mark or error.context_mark
        where = Mark(at.line + 1, at.column + 1) if at is not None else Mark(1, 1)
        said = " ".join(", ".join(str(part) for part in (error.context, error.problem) if part).split())
        said = _TAG_HANDLE.sub(r"\1", said)  # it may be part of a password without quotes
        document.mistakes.append(Mistake(where, (), f"not YAML: {said}"))
    except (YAMLError, ValueError, ArithmeticError, LookupError, TypeError, AttributeError) as error:
        # The parser itself fails on some malformed input (a character out of range, a bad directive).
        said = " ".join(str(error).split()) or type(error).__name__
        document.mistakes.append(Mistake(Mark(1, 1), (), f"not YAML: {said[:200]}"))
    return document


class _TooDeepError(YAMLError):
    pass


class _Reader:
    """A reader of the parser's events, for one use. The depth limit also bounds its recursion."""

    def __init__(self, events: Iterator[Event], document: Document) -> None:
        self._events = events
        self._document = document

    def document(self) -> None:
        seen = 0
        for event in self._events:
            if isinstance(event, DocumentStartEvent):
                seen += 1
                if seen > 1:
                    self._wrong(_mark(event), (), "a second document starts here (needed: one document)")
                    return
            elif isinstance(event, NodeEvent):
                self._document.keys[()] = _mark(event)
                self._document.value = self._node(event, (), 0)

    def _node(self, event: Event, path: Path, depth: int) -> Any:
        mark = _mark(event)
        if depth > MAX_DEPTH:
            raise _TooDeepError(f"nested more than {MAX_DEPTH} levels deep at line {mark.line}")
        if isinstance(event, AliasEvent):
            self._wrong(mark, path, "aliases are not allowed (needed: the value itself)")
            return None
        if isinstance(event, NodeEvent) and event.anchor is not None:
            self._wrong(
                mark, path, f"anchors are not allowed (seen {event.anchor!r}, needed: the plain value)"
            )
        if tag := getattr(event, "tag", None):
            self._wrong(mark, path, f"tags are not allowed (seen {str(tag)!r}, needed: the plain value)")
        if isinstance(event, MappingStartEvent):
            return self._mapping(path, depth)
        if isinstance(event, SequenceStartEvent):
            return self._sequence(path, depth)
        assert isinstance(event, ScalarEvent)
        return self._scalar(event, path)

    def _mapping(self, path: Path, depth: int) -> dict[str, Any]:
        found: dict[str, Any] = {}
        for event in self._events:
            if isinstance(event, MappingEndEvent):
                break
            mark = _mark(event)
            if not isinstance(event, ScalarEvent):
                self._node(event, path, depth + 1)
                self._wrong(mark, path, "a key must be plain text")
                self._node(next(self._events), path, depth + 1)
                continue
            key = str(event.value)
            below = (*path, key)
            if key in found:
                first = self._document.keys[below].line
                self._wrong(mark, below, f"the key occurs twice (first on line {first}; needed: once)")
                # Keep the first value, so that its marks stay valid, and read on.
                shadow = _Reader(self._events, Document())
                shadow._node(next(self._events), below, depth + 1)
                continue
            self._document.keys[below] = mark
            found[key] = self._node(next(self._events), below, depth + 1)
        return found

    def _sequence(self, path: Path, depth: int) -> list[Any]:
        found: list[Any] = []
        for event in self._events:
            if isinstance(event, SequenceEndEvent):
                break
            below = (*path, len(found))
            self._document.keys[below] = _mark(event)
            found.append(self._node(event, below, depth + 1))
        return found

    def _scalar(self, event: ScalarEvent, path: Path) -> Any:
        text = str(event.value)
        self._document.texts[path] = text
        # implicit[0]: plain and untagged. Only then YAML's rules for numbers and words apply.
        if not event.implicit[0]:
            return text
        if text in _WORDS:
            return _WORDS[text]
        if _INTEGER.fullmatch(text):
            return int(text)
        if _FLOAT.fullmatch(text):
            return float(text)
        if _ODD_NUMBER.fullmatch(text):
            self._wrong(
                _mark(event),
                path,
                f"not a plain number (seen {text[:40]!r}, needed: decimal digits, or quotes)",
            )
            return None
        return text

    def _wrong(self, mark: Mark, path: Path, reason: str) -> None:
        self._document.mistakes.append(Mistake(mark, path, reason))


def _mark(event: Event) -> Mark:
    at = event.start_mark
    return Mark(at.line + 1, at.column + 1)
