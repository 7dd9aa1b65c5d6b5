"""Parsers for the answers to ZooKeeper's four-letter words, 3.4 to 3.9.

Four failures have an error each. EmptyAnswerError: nothing was received. NotServingError: the server runs
without a quorum. NotWhitelistedError: the server does not allow the word. GarbledAnswerError: the text is
foreign or cut. "imok" and `isro` do not say whether a server serves.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from zkmigrate.zookeeper.data.errors import MalformedError, ZkDataError
from zkmigrate.zookeeper.data.session import parse_session
from zkmigrate.zookeeper.data.zxid import Zxid, parse_zxid


class WordError(ZkDataError):
    """A four-letter word without a usable answer."""


class EmptyAnswerError(WordError):
    """The connection was closed without a byte."""


class NotServingError(WordError):
    """The server runs but does not serve: it has no quorum, or is still syncing."""


class NotWhitelistedError(WordError):
    """The server refuses this word because `4lw.commands.whitelist` does not name it."""


class GarbledAnswerError(WordError):
    """The text is not a complete answer to this word."""


_NOT_SERVING = "This ZooKeeper instance is not currently serving requests"
_NOT_WHITELISTED = "is not executed because it is not in the whitelist"


def check_answer(word: str, text: str) -> None:
    """Raise an error if `text` does not answer the four-letter word.

    Raises EmptyAnswerError, NotServingError or NotWhitelistedError.
    """
    if not text.strip():
        raise EmptyAnswerError(f"{word}: the answer is empty")
    if _NOT_SERVING in text:
        raise NotServingError(f"{word}: the server is not currently serving requests")
    if not_allowed(text):
        raise NotWhitelistedError(f"{word} is not in the server's 4lw.commands.whitelist")


def not_allowed(text: str) -> bool:
    """Return whether the answer says that the server does not allow the word."""
    return _NOT_WHITELISTED in text


def _garbled(word: str, what: str, seen: str) -> GarbledAnswerError:
    return GarbledAnswerError(f"{word}: {what}; saw {seen[:120]!r}")


@dataclass(frozen=True, slots=True)
class Version:
    """The version of a server. text: as printed ("3.8.4-9316…, built on …"). numbers: such as (3, 8, 4)."""

    text: str
    numbers: tuple[int, ...]

    @property
    def number(self) -> str:
        """The version without the build, such as ``3.8.4``."""
        return ".".join(map(str, self.numbers))


def _version(word: str, text: str) -> Version:
    match = re.match(r"(\d+)\.(\d+)\.(\d+)", text)
    if not match:
        raise _garbled(word, "the version has no number", text)
    return Version(text.strip(), tuple(int(part) for part in match.groups()))


@dataclass(frozen=True, slots=True)
class Srvr:
    """The values of `srvr`, and of the server part of `stat`.

    mode: leader, follower, observer, standalone or read-only. zxid: the last processed zxid. A newly elected
    leader that has written nothing yet reports epoch << 32, which is above every transaction. latency_ms:
    minimum, average and maximum.
    """

    version: Version
    mode: str
    zxid: Zxid
    connections: int
    outstanding: int
    received: int
    sent: int
    node_count: int
    latency_ms: tuple[float, float, float]


_MODES = frozenset({"leader", "follower", "observer", "standalone", "read-only"})


def parse_srvr(text: str, word: str = "srvr") -> Srvr:
    """Parse the answer to `srvr`, or to `stat` without its list of clients. Raises WordError."""
    check_answer(word, text)
    values: dict[str, str] = {}
    for line in text.splitlines():
        key, colon, value = line.partition(":")
        if colon and not line.startswith((" ", "/")):
            values[key.strip()] = value.strip()
    try:
        low, mean, high = (float(part) for part in values["Latency min/avg/max"].split("/"))
        mode = values["Mode"]
        if mode not in _MODES:
            raise _garbled(word, "the mode is unknown", mode)
        return Srvr(
            _version(word, values["Zookeeper version"]),
            mode,
            parse_zxid(values["Zxid"]),
            int(values["Connections"]),
            int(values["Outstanding"]),
            int(values["Received"]),
            int(values["Sent"]),
            int(values["Node count"]),
            (low, mean, high),
        )
    except KeyError as missing:
        raise _garbled(word, f"the answer has no line {missing.args[0]!r}", text) from None
    except (ValueError, MalformedError) as error:
        if isinstance(error, WordError):
            raise
        raise _garbled(word, "a number in the answer cannot be parsed", text) from None


@dataclass(frozen=True, slots=True)
class Mntr:
    """The values of `mntr` as printed, by name. The properties convert those that decisions use."""

    values: Mapping[str, str]

    @property
    def state(self) -> str:
        """The value of zk_server_state: leader, follower, observer, standalone or read-only."""
        return self._text("zk_server_state")

    @property
    def version(self) -> Version:
        return _version("mntr", self._text("zk_version"))

    def number(self, name: str) -> float | None:
        """Return a value as a number; None if the server does not print the value, or prints "NaN" (3.6+)."""
        text = self.values.get(name)
        if text is None:
            return None
        try:
            value = float(text)
        except ValueError:
            raise _garbled("mntr", f"{name} is not a number", text) from None
        return None if value != value else value

    def _count(self, *names: str) -> int | None:
        found = next((value for name in names if (value := self.number(name)) is not None), None)
        return None if found is None else int(found)

    def _text(self, name: str) -> str:
        if name not in self.values:
            raise _garbled("mntr", f"the answer has no {name}", " ".join(self.values))
        return self.values[name]

    @property
    def outstanding(self) -> int:
        """The value of zk_outstanding_requests: how many requests were received and not answered yet."""
        if (found := self._count("zk_outstanding_requests")) is None:
            raise _garbled("mntr", "the answer has no zk_outstanding_requests", " ".join(self.values))
        return found

    @property
    def synced_followers(self) -> int | None:
        """The number of voting followers in sync; None unless the server is a leader."""
        return self._count("zk_synced_followers")

    @property
    def learners(self) -> int | None:
        """The number of connected followers and observers; None unless the server is a leader."""
        return self._count("zk_learners", "zk_followers")


def parse_mntr(text: str) -> Mntr:
    """Parse the answer to `mntr`. Raises WordError."""
    check_answer("mntr", text)
    values: dict[str, str] = {}
    for line in text.splitlines():
        name, tab, value = line.partition("\t")
        if not tab or not name.startswith("zk_"):
            raise _garbled("mntr", "a line is not a name, a tab and a value", line)
        values[name] = value.strip()
    if "zk_server_state" not in values:
        raise _garbled("mntr", "the answer has no zk_server_state", text)
    return Mntr(values)


@dataclass(frozen=True, slots=True)
class Connection:
    """One line of the answer to `cons`.

    address: the client's address, IPv6 in its short form. session, timeout_ms: None if the connection has no
    session (it sent a four-letter word, or is still connecting).
    """

    address: str
    port: int
    queued: int
    received: int
    sent: int
    session: int | None = None
    timeout_ms: int | None = None


_CONNECTION = re.compile(r" ?(?P<peer>.*)\[(?P<ops>[0-9a-f]+)\]\((?P<fields>[^()]*)\)")


def split_peer(text: str) -> tuple[str, int]:
    """Split Java's text of a socket address into address and port. Raises MalformedError.

    Java writes "/10.0.0.1:4711", "host/10.0.0.1:4711" or "/[0:0:0:0:0:0:0:1]:4711" (without brackets in older
    versions).
    """
    host, colon, port = text.rpartition("/")[2].rpartition(":")
    host = host.strip("[]").partition("%")[0]
    if not colon or not port.isdigit():
        raise MalformedError(f"not an address with a port: {text!r}")
    try:
        return str(ipaddress.ip_address(host)), int(port)
    except ValueError:
        raise MalformedError(f"not an address: {host!r}") from None


def parse_cons(text: str) -> tuple[Connection, ...]:
    """Parse the answer to `cons`. Raises WordError.

    The result includes the connection that sent the word, which has no session.
    """
    check_answer("cons", text)
    return tuple(_connection(line) for line in text.splitlines() if line.strip())


def _connection(line: str) -> Connection:
    match = _CONNECTION.fullmatch(line.rstrip())
    if not match:
        raise _garbled("cons", "a line does not describe a connection", line)
    pairs = dict(part.partition("=")[::2] for part in match["fields"].split(","))

    try:
        address, port = split_peer(match["peer"])
        return Connection(
            address,
            port,
            int(pairs["queued"]),
            int(pairs["recved"]),
            int(pairs["sent"]),
            parse_session(pairs["sid"]) if "sid" in pairs else None,
            int(pairs["to"]) if "to" in pairs else None,
        )
    except (KeyError, ValueError):
        raise _garbled("cons", "the fields of a connection cannot be parsed", line) from None


@dataclass(frozen=True, slots=True)
class Dump:
    """The values of `dump`.

    sessions: the timeout in ms of each session id. A timeout is None from a leader or standalone server,
    which lists only the ids. The whole field is None if the server does not list sessions (learners of 3.4).
    ephemerals: the paths of each session's ephemerals, which every server lists completely.
    """

    sessions: Mapping[int, int | None] | None
    ephemerals: Mapping[int, tuple[str, ...]] = field(default_factory=dict)

    def owner(self, path: str) -> int | None:
        """Return the session that owns an ephemeral path; None if the path is not in the dump."""
        return next((session for session, paths in self.ephemerals.items() if path in paths), None)


_SESSIONS_HEAD = re.compile(r"(Local |Global )*Session(s| Sets )\s*\(\d+\)(/\(\d+\))?:")
_EXPIRE_HEAD = re.compile(r"\d+ expire at .*:")
_SESSION_LINE = re.compile(r"\t?(0x[0-9a-f]+)(?:\t(\d+)ms)?")
_OPAQUE = re.compile(r"[\w.$]+@[0-9a-f]+")
_EPHEMERALS_HEAD = re.compile(r"Sessions with Ephemerals \((\d+)\):")


def parse_dump(text: str) -> Dump:
    """Parse the answer to `dump` of a leader, a learner or a standalone server. Raises WordError."""
    check_answer("dump", text)
    head, cut, rest = text.partition("ephemeral nodes dump:\n")
    if not cut or not head.startswith("SessionTracker dump:"):
        raise _garbled("dump", "a section of the answer is missing", text)
    return Dump(_dumped_sessions(head), _dumped_ephemerals(rest.partition("Connections dump:")[0]))


def _dumped_sessions(text: str) -> dict[int, int | None] | None:
    sessions: dict[int, int | None] = {}
    for line in text.splitlines()[1:]:
        if _OPAQUE.fullmatch(line):
            return None
        if _SESSIONS_HEAD.fullmatch(line) or _EXPIRE_HEAD.fullmatch(line):
            continue
        match = _SESSION_LINE.fullmatch(line)
        if not match:
            raise _garbled("dump", "a line of the session list cannot be parsed", line)
        sessions[parse_session(match[1])] = int(match[2]) if match[2] else None
    return sessions


def _dumped_ephemerals(text: str) -> dict[int, tuple[str, ...]]:
    lines = text.splitlines()
    match = _EPHEMERALS_HEAD.fullmatch(lines[0]) if lines else None
    if not match:
        raise _garbled("dump", "the head line of the ephemerals is missing", text)
    found: dict[int, list[str]] = {}
    owner: list[str] | None = None
    for line in lines[1:]:
        if line.startswith("\t/") and owner is not None:
            owner.append(line[1:])
        elif line.startswith("0x") and line.endswith(":"):
            owner = found.setdefault(parse_session(line[:-1]), [])
        else:
            raise _garbled("dump", "a line of the ephemerals cannot be parsed", line)
    if len(found) < int(match[1]):
        raise _garbled(
            "dump", f"the answer announces {match[1]} owners, but lists {len(found)}; read it again", text
        )
    return {session: tuple(paths) for session, paths in found.items()}


@dataclass(frozen=True, slots=True)
class Conf:
    """The values of `conf` as printed.

    values: the value of each key; dataDir and dataLogDir end in `/version-2`. servers: the membership lines
    (3.5+), such as "server.1" → "host:2888:3888:participant".
    """

    values: Mapping[str, str]
    servers: Mapping[str, str]

    def number(self, name: str) -> int | None:
        """Return a value as an integer; None if the server does not print the value."""
        text = self.values.get(name)
        if text is None:
            return None
        try:
            return int(text)
        except ValueError:
            raise _garbled("conf", f"{name} is not a number", text) from None


def parse_wchp(text: str) -> dict[str, tuple[int, ...]]:
    """Return the signed ids of the sessions that watch the data or existence of each path. Raises WordError.

    text: the answer to `wchp`, which omits watches of children and watches of sessions on another server.
    """
    if text == "\n":
        return {}
    check_answer("wchp", text)
    if not text.endswith("\n\n"):
        raise _garbled("wchp", "the end of the answer is missing", text[-120:])
    found: dict[str, list[int]] = {}
    sessions: list[int] | None = None
    for line in text.splitlines():
        if line.startswith("/"):
            sessions = found.setdefault(line, [])
        elif line.startswith("\t") and sessions is not None:
            try:
                sessions.append(parse_session(line.strip()))
            except MalformedError as error:
                raise _garbled("wchp", "a line is not a session", line) from error
        elif line:
            raise _garbled("wchp", "a line is neither a path nor a session", line)
    return {path: tuple(watching) for path, watching in found.items()}


def parse_works_in(text: str) -> str:
    """Return the server's working directory from the answer to `envi`. Raises WordError."""
    check_answer("envi", text)
    found = re.search(r"^user\.dir=(/.*)$", text, re.MULTILINE)
    if found is None:
        raise _garbled("envi", "the answer has no line user.dir= with a path", text)
    return found[1]


def parse_conf(text: str) -> Conf:
    """Parse the answer to `conf`. Raises WordError."""
    check_answer("conf", text)
    lines = [line for line in text.splitlines() if line.strip() not in ("", "membership:")]
    values = dict(line.partition("=")[::2] for line in lines)
    if not all("=" in line for line in lines) or "clientPort" not in values:
        raise _garbled("conf", "a line is not key=value, or there is no clientPort", text)
    servers = {key: values.pop(key) for key in list(values) if key.startswith("server.")}
    return Conf(values, servers)
