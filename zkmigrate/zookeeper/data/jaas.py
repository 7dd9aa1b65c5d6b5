"""Parse JAAS files, which name the users and passwords of ZooKeeper's SASL.

Grammar: javax.security.auth.login.Configuration, as the JDK's ConfigFile reads it with a StreamTokenizer. A
word consists of letters, digits and ``_ $ * . -`` and does not begin with a digit, dot or hyphen. Other text
needs double quotes. ``//`` and ``/* */`` are comments; so is the rest of a line after a single ``/``.
Messages name lines and never contain text of the file, because it may be a password.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from zkmigrate.keyed_digest import keyed_digest
from zkmigrate.zookeeper.data.errors import ZkDataError

FLAGS = frozenset({"required", "requisite", "sufficient", "optional"})

_TOKEN = re.compile(
    r"(?P<blank>[\x00-\x20]+)"
    r"|(?P<comment>/\*.*?\*/|/(?!\*)[^\r\n]*)"
    r'|"(?P<quoted>(?:\\[^\r\n]|[^"\\\r\n])*)"'
    r"|(?P<word>[A-Za-z_$*\xa0-\U0010ffff][A-Za-z0-9_$*.\-\xa0-\U0010ffff]*)"
    r"|(?P<mark>[{};=])",
    re.DOTALL,
)
_ESCAPE = re.compile(r"\\([0-3][0-7]{2}|[0-7]{1,2}|.)", re.DOTALL)
_CONTROLS = {"a": "\a", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v"}


class JaasError(ZkDataError):
    """A text that Java's login configuration refuses. The message names the line, never its text."""


@dataclass(frozen=True, slots=True)
class Module:
    """One login module of a section, with its options as they are in the file."""

    name: str
    flag: str
    options: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Section:
    """A section without its secrets.

    modules: the class names of its login modules. users: the keyed digest of each user's password, by the
    user's name (``user_NAME``). user, password: those with which this side logs in; the password as keyed
    digest; None if the section has none. expanded: options whose value contains ``${...}``, which Java
    replaces by a system property.
    """

    modules: tuple[str, ...]
    users: Mapping[str, str]
    user: str | None = None
    password: str | None = None
    expanded: tuple[str, ...] = ()


def sections(text: str, file: str = "jaas.conf") -> dict[str, Section]:
    """Return the sections of a JAAS file by name, without their secrets. Raises JaasError."""
    return {name: _without_secrets(modules) for name, modules in parse(text, file).items()}


def _without_secrets(modules: tuple[Module, ...]) -> Section:
    options = [(key, value) for module in modules for key, value in module.options.items()]
    given = dict(options)
    password = given.get("password")
    return Section(
        tuple(module.name for module in modules),
        {key.removeprefix("user_"): keyed_digest(value) for key, value in options if key.startswith("user_")},
        given.get("username"),
        None if password is None else keyed_digest(password),
        tuple(key for key, value in options if "${" in value),
    )


def parse(text: str, file: str = "jaas.conf") -> dict[str, tuple[Module, ...]]:
    """Return the login modules of each section of a JAAS file, by the section's name. Raises JaasError."""
    found: dict[str, tuple[Module, ...]] = {}
    reader = _Reader(text, file)
    while not reader.at_end:
        line = reader.line
        name = reader.text("the name of a section")
        reader.mark("{")
        modules = []
        while not reader.next_is("}"):
            modules.append(_module(reader))
        reader.mark("}")
        reader.mark(";")
        if name in found:
            raise reader.wrong("a section of this name is already there", line)
        found[name] = tuple(modules)
    return found


def _module(reader: _Reader) -> Module:
    name, line = reader.text("the class of a login module"), reader.line
    flag = reader.text("required, requisite, sufficient or optional").lower()
    if flag not in FLAGS:
        raise reader.wrong("the word after a login module is not a control flag, such as required", line)
    options: dict[str, str] = {}
    while not reader.next_is(";"):
        key = reader.text("the key of an option, or a semicolon")
        reader.mark("=")
        options[key] = reader.text("the value of an option, in double quotes unless it is a plain word")
    reader.mark(";")
    return Module(name, flag, options)


class _Reader:
    """The tokens of a text, one after the other."""

    def __init__(self, text: str, file: str) -> None:
        self._file = file
        self._tokens = list(self._split(text))
        self._at = 0

    def _split(self, text: str) -> Iterator[tuple[str, str, int]]:
        at, line = 0, 1
        while at < len(text):
            match = _TOKEN.match(text, at)
            if match is None:
                raise self._unfit(text, at, line)
            kind = match.lastgroup or ""
            if kind in ("quoted", "word", "mark"):
                value = match[kind]
                yield kind, _ESCAPE.sub(_plain, value) if kind == "quoted" else value, line
            line += len(re.findall(r"\r\n|\r|\n", match[0]))
            at = match.end()
        yield "end", "", line

    def _unfit(self, text: str, at: int, line: int) -> JaasError:
        if text[at] == '"':
            return self.wrong("a double quote is not closed on its line", line)
        if text[at : at + 2] == "/*":
            return self.wrong("a comment is not closed", line)
        return self.wrong("a number or character has no double quotes around it", line)

    @property
    def at_end(self) -> bool:
        return self._tokens[self._at][0] == "end"

    @property
    def line(self) -> int:
        return self._tokens[self._at][2]

    def next_is(self, mark: str) -> bool:
        return self._tokens[self._at][:2] == ("mark", mark)

    def text(self, needed: str) -> str:
        kind, value, line = self._tokens[self._at]
        if kind not in ("quoted", "word"):
            raise self._missing(needed, kind, line)
        self._at += 1
        return value

    def mark(self, mark: str) -> None:
        kind, value, line = self._tokens[self._at]
        if (kind, value) != ("mark", mark):
            raise self._missing(f"{mark!r}", kind, line)
        self._at += 1

    def _missing(self, needed: str, kind: str, line: int) -> JaasError:
        seen = "the file ends too early" if kind == "end" else "something else is there"
        return self.wrong(f"{seen}; needed: {needed}", line)

    def wrong(self, reason: str, line: int) -> JaasError:
        return JaasError(f"line {line}: {reason}", self._file)


def _plain(match: re.Match[str]) -> str:
    escaped = match[1]
    return chr(int(escaped, 8)) if escaped.isdigit() and escaped[0] < "8" else _CONTROLS.get(escaped, escaped)
