"""Recognition of ZooKeeper and Kafka servers by their main class or by their start scripts."""

from __future__ import annotations

import posixpath
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from zkmigrate.hosts.facts.start_command import Program


@dataclass(frozen=True)
class Server:
    """A kind of server.

    mains: its main classes, which take the config as their first argument. scripts: the start scripts of its
    releases and packages, which also take the config first. word: a word in the names of its systemd units.
    """

    mains: tuple[str, ...]
    scripts: tuple[str, ...]
    word: str

    def arguments(self, words: Sequence[str]) -> tuple[str, ...] | None:
        """Return the arguments after the main class in the words of a JVM; None for another program."""
        at = next((at for at, word in enumerate(words) if word in self.mains), None)
        return None if at is None else tuple(words[at + 1 :])


KAFKA = Server(
    ("kafka.Kafka", "io.confluent.support.metrics.SupportedKafka"),
    ("kafka-server-start.sh", "kafka-server-start"),
    "kafka",
)
ZOOKEEPER = Server(
    (
        "org.apache.zookeeper.server.quorum.QuorumPeerMain",
        "org.apache.zookeeper.server.ZooKeeperServerMain",
    ),
    ("zookeeper-server-start.sh", "zookeeper-server-start"),
    "zookeeper",
)
SERVERS = (ZOOKEEPER, KAFKA)

_ZK_SERVER = ("zkServer.sh", "zookeeper-server")
_ZK_ACTIONS = ("start", "start-foreground", "restart")


def starts(server: Server, programs: Iterable[Program]) -> bool:
    """Return whether one of these programs is this kind of server or a script that starts it."""
    return any(_words_for(server, program) is not None for program in programs)


def config_of(server: Server, programs: Iterable[Program]) -> str:
    """Return the path of the config in a server's start command, or an empty string if there is none."""
    for program in programs:
        words = _words_for(server, program)
        for word in words or ():
            if not word.startswith("-"):
                path = program.path(word)
                return path if path.startswith("/") and "$" not in path else ""
    return ""


def works_in(server: Server, programs: Iterable[Program]) -> str:
    """Return the directory in which a command starts this kind of server, or an empty string if unknown."""
    return next((p.directory for p in programs if _words_for(server, p) is not None), "")


def _words_for(server: Server, program: Program) -> tuple[str, ...] | None:
    """Return the words that follow the server's main class or script; None if the program is another one.

    The first of these words without a leading dash is the path of the config.
    """
    arguments = server.arguments(program.words)
    if arguments is not None:
        return arguments
    if program.name in server.scripts:
        return program.words[1:]
    if server is ZOOKEEPER and program.name in _ZK_SERVER:
        return _of_zk_server(program)
    return None


def _of_zk_server(program: Program) -> tuple[str, ...] | None:
    """Return the config of ``zkServer.sh [--config DIRECTORY] start|start-foreground|restart [FILE]``.

    FILE may be a name in DIRECTORY. Returns None for another action of the script.
    """
    words = program.words[1:]
    directory = f"{posixpath.dirname(program.words[0])}/../conf"
    if words[:1] == ("--config",) and len(words) > 1:
        directory, words = words[1], words[2:]
    if not words or words[0] not in _ZK_ACTIONS:
        return None
    file = words[1] if len(words) > 1 else "zoo.cfg"
    return (file if "/" in file else f"{directory}/{file}",)
