"""Parser for the start commands of a systemd unit, as ``systemctl show`` prints them.

The result is the programs that the commands start. systemd has already parsed quotes, continued lines and
specifiers, and prints the words of a command separated by single blanks. This module resolves variables,
wrappers such as ``env``, and scripts for ``sh -c``.
"""

from __future__ import annotations

import posixpath
import re
import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

EXEC_KEYS = ("ExecCondition", "ExecStartPre", "ExecStart", "ExecStartPost")
"""The properties of a systemd unit that hold the commands of a start."""

SEARCH_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
"""The directories that systemd and a shell search for a program (systemd.exec(5), ExecSearchPath)."""

_COMMAND = re.compile(
    r"(?:path=(?P<path>/[^;]*?) ; )?argv\[\]=(?P<words>.*?) ; (?:ignore_errors=(?:yes|no)|flags=[^;]*) ;",
    re.DOTALL,
)
_FILE = re.compile(r"(?P<path>/.*?)(?: \(ignore_errors=(?:yes|no)\))?")
_ASSIGNMENT = re.compile(r"(?P<name>[A-Za-z_][A-Za-z0-9_]*)=(?P<value>.*)", re.DOTALL)
_VARIABLE = re.compile(r"\$(?:(?P<name>[A-Za-z_]\w*)|\{(?P<braced>[A-Za-z_]\w*)(?::?-(?P<default>[^}]*))?\})")
_DYNAMIC = re.compile(r"[$`]")
_SEPARATOR = re.compile(r"[;&|()\n]+")
_REDIRECTION = re.compile(r"[0-9]*[<>]+&?")
_SHELLS = frozenset({"sh", "bash", "dash", "ash", "ksh", "zsh"})
_TAKE_SCRIPT = frozenset({"su", "runuser", "flock"})
"""Wrappers that pass the text after ``-c`` to a shell."""
_WRAPPERS = frozenset({
    "env", "exec", "nohup", "nice", "ionice", "chrt", "taskset", "numactl", "sudo", "su", "runuser",
    "setpriv", "setsid", "stdbuf", "timeout", "time", "command", "flock", "chpst", "gosu", "su-exec",
    "authbind", "prlimit",
})  # fmt: skip
_DIRECTORY_OPTIONS = {"env": ("-C", "--chdir"), "sudo": ("-D", "--chdir")}
_PATH_OPTIONS = {"su": ("-s", "--shell"), "runuser": ("-s", "--shell"), "chpst": ("-e", "-/")}
"""Options of wrappers whose value is a path but not the started program."""
_VALUE_OPTION = re.compile(r"[-+][a-z]*[oO]|--(?:rcfile|init-file)")
"""A regular expression for an option of a shell whose value is the next word."""
_KEYWORDS = frozenset({"if", "then", "else", "elif", "while", "until", "do", "!", "{"})
_ENDS = frozenset({"fi", "done", "esac", "}"})


@dataclass(frozen=True)
class Program:
    """A program that a command starts.

    words: its name and its arguments. directory: the directory in which it starts, "" if unknown. sourced:
    whether a shell reads it with ``.`` or ``source``.
    """

    words: tuple[str, ...]
    directory: str = ""
    sourced: bool = False

    @property
    def name(self) -> str:
        """The base name of the program's file."""
        return posixpath.basename(self.words[0])

    def path(self, word: str) -> str:
        """Return a word as a path. A relative path is below the directory in which the program starts."""
        return posixpath.join(self.directory, word) if self.directory else word


@dataclass(frozen=True)
class Started:
    """The programs that a command starts.

    programs: in the order in which they start. unread: words that only the shell on the host could resolve.
    """

    programs: tuple[Program, ...]
    unread: tuple[str, ...] = ()


@dataclass(frozen=True)
class StartCommands:
    """How a unit starts, according to systemd.

    commands: the program and words of each. files: its environment files. variables: its Environment=.
    directory: its WorkingDirectory=; empty if only systemd knows it.
    """

    commands: tuple[tuple[str, ...], ...] = ()
    files: tuple[str, ...] = ()
    variables: Mapping[str, str] = field(default_factory=dict)
    directory: str = "/"


def shown_properties(lines: Iterable[str]) -> dict[str, str]:
    """Parse the output of ``systemctl show`` into properties.

    A repeated property has one line for each value; the values are joined by line feeds. A value that begins
    with ``{`` continues until a line ends with ``}``, because an argument may contain line feeds.
    """
    found: dict[str, str] = {}
    name, within = "", False
    for line in lines:
        key, equals, value = line.partition("=")
        if within or not equals:
            value = line
        else:
            name, within = key, value.startswith("{")
        found[name] = f"{found[name]}\n{value}" if name in found else value
        within = within and not value.endswith("}")
    return found


def start_commands(shown: Mapping[str, str]) -> StartCommands:
    """Parse systemd's properties of a unit. Several values of one property are separated by line feeds."""
    files = [_FILE.fullmatch(line.strip()) for line in shown.get("EnvironmentFiles", "").split("\n")]
    directory = shown.get("WorkingDirectory", "").lstrip("!-") or "/"
    return StartCommands(
        tuple(_words(m) for key in EXEC_KEYS for m in _COMMAND.finditer(shown.get(key, ""))),
        tuple(m["path"] for m in files if m is not None),
        _assignments(_split(shown.get("Environment", ""))),
        directory if directory.startswith("/") else "",  # ~ is the home of the account
    )


def _words(command: re.Match[str]) -> tuple[str, ...]:
    """Return the program and the arguments of a command.

    The first argument that systemd shows may be another name for the program; it is left out.
    """
    path, words = command["path"], command["words"]
    if path is None:
        return tuple(words.split(" "))
    rest = words.removeprefix(path) if words.startswith(path) else words.partition(" ")[2]
    return (path, *(word for word in rest.split(" ") if word))


def environment_of(text: str) -> dict[str, str]:
    """Parse the variables of an environment file (systemd.exec(5), EnvironmentFile=)."""
    found: dict[str, str] = {}
    for line in text.replace("\\\n", "").splitlines():
        match = _ASSIGNMENT.fullmatch(line.strip())
        if match is not None:
            value = match["value"].strip()
            quoted = len(value) > 1 and value[0] == value[-1] and value[0] in "\"'"
            found[match["name"]] = value[1:-1] if quoted else value
    return found


def started(command: Iterable[str], variables: Mapping[str, str], directory: str = "/") -> Started:
    """Return the programs that one command starts.

    command: its program and words, without systemd's quotes. variables: the environment. directory: the
    working directory, "" if unknown.
    """
    reader = _Reader(dict(variables), directory)
    reader.plain([word.replace("$$", "$") for word in command])
    return Started(tuple(reader.programs), tuple(dict.fromkeys(reader.unread)))


class _Reader:
    """A reader of one command that collects the programs that the command starts."""

    def __init__(self, variables: dict[str, str], directory: str) -> None:
        self.variables, self.directory = variables, directory
        self.programs: list[Program] = []
        self.unread: list[str] = []

    def plain(self, words: Sequence[str]) -> None:
        """Read a command that runs without a shell, so none of its words separates commands."""
        expanded = [part for word in words if word for part in self._of_systemd(word)]
        self._command(expanded, list(words))

    def script(self, text: str) -> None:
        """Read the text of ``sh -c``."""
        for command in _commands(self._expand(text)):
            self._command(command, command)

    def _of_systemd(self, word: str) -> list[str]:
        """Expand one word as systemd does.

        systemd splits a variable's value at blanks if the word consists only of the variable
        (systemd.service(5)).
        """
        whole = re.fullmatch(r"\$[A-Za-z_]\w*", word)
        expanded = self._expand(word)
        return expanded.split() if whole is not None else [expanded]

    def _expand(self, text: str) -> str:
        def value(match: re.Match[str]) -> str:
            name = match["name"] or match["braced"]
            return self.variables.get(name, match[0] if match["default"] is None else match["default"])

        return _VARIABLE.sub(value, text)

    def _command(self, words: list[str], written: list[str]) -> None:
        words = words[:]
        while words and (words[0] in _KEYWORDS or _ASSIGNMENT.fullmatch(words[0])):
            self.variables |= _assignments(words[:1])
            del words[0]
        if not words or words[0] in _ENDS:
            return
        name, rest = posixpath.basename(words[0]), words[1:]
        if name == "export":
            self.variables |= _assignments(rest)
        elif name == "cd":
            self._change_directory(rest[0] if rest else "")
        elif name in (".", "source"):
            self._add(rest, sourced=True)
        elif name in _TAKE_SCRIPT and "-c" in rest:
            self.script(" ".join(rest[rest.index("-c") + 1 :]))
        elif name in _WRAPPERS:
            self._wrapped(name, rest, written)
        elif name in _SHELLS:
            self._shell(rest)
        else:
            self._add(words)

    def _change_directory(self, path: str) -> None:
        known = path and not _DYNAMIC.search(path) and (self.directory or path.startswith("/"))
        self.directory = posixpath.join(self.directory, path) if known else ""

    def _shell(self, rest: list[str]) -> None:
        value = False
        for at, word in enumerate(rest):
            if value:
                value = False
            elif re.fullmatch(r"-[a-z]*c", word):
                return self.script(" ".join(rest[at + 1 :]))
            elif _VALUE_OPTION.fullmatch(word):
                value = True
            elif not word.startswith(("-", "+")):
                return self._add(rest[at:])
        return None

    def _wrapped(self, name: str, rest: list[str], written: list[str]) -> None:
        """Read the program that a wrapper starts.

        It is the first word after the wrapper's options that can be a program. name: the wrapper.
        """
        folder, other = _DIRECTORY_OPTIONS.get(name, ()), _PATH_OPTIONS.get(name, ())
        before, lock = "", name == "flock"  # the first word of flock is a file
        for at, word in enumerate(rest):
            option, equals, value = word.partition("=")
            if before in folder or (option in folder and equals):
                self._change_directory(value if equals and option in folder else word)
            elif before in other:
                pass
            elif _ASSIGNMENT.fullmatch(word):
                self.variables |= _assignments([word])
            elif not word.startswith("-") and lock:
                lock = False
            elif not word.startswith("-") and _can_start(word):
                return self._command(rest[at:], rest[at:])
            before = word
        self.unread.append(" ".join(written))
        return None

    def _add(self, words: list[str], *, sourced: bool = False) -> None:
        if not words:
            return
        relative = "/" in words[0] and not words[0].startswith("/") and not self.directory
        if relative or (_DYNAMIC.search(words[0]) and posixpath.basename(words[0]) != "java"):
            self.unread.append(words[0])
            return
        self.programs.append(Program(tuple(words), self.directory, sourced))


def _can_start(word: str) -> bool:
    name = posixpath.basename(word)
    known = name in _SHELLS or name in _WRAPPERS or name == "java" or name.endswith(".sh")
    return "/" in word or known or _DYNAMIC.search(word) is not None


def _commands(script: str) -> Iterator[list[str]]:
    """Yield the simple commands in a shell script, without redirections."""
    lexer = shlex.shlex(script.replace("\n", ";"), posix=True, punctuation_chars=True)
    lexer.commenters, lexer.whitespace_split = "", True
    try:
        tokens = list(lexer)
    except ValueError:  # an unclosed quote: systemd prints words without their bounds
        tokens = script.replace("'", " ").replace('"', " ").split()
    command: list[str] = []
    skip = False
    for at, token in enumerate(tokens):
        if skip:
            skip = False
        elif _SEPARATOR.fullmatch(token):
            yield command
            command = []
        elif _REDIRECTION.fullmatch(token):
            skip = True
        elif not (token.isdigit() and at + 1 < len(tokens) and _REDIRECTION.fullmatch(tokens[at + 1])):
            command.append(token)
    yield command


def _assignments(words: Sequence[str]) -> dict[str, str]:
    return {m["name"]: m["value"] for word in words if (m := _ASSIGNMENT.fullmatch(word)) is not None}


def _split(text: str) -> list[str]:
    try:
        return shlex.split(text)
    except ValueError:
        return text.split()
