"""Answer requests for facts about the inventory's ZooKeeper hosts."""

from __future__ import annotations

from collections.abc import Mapping

from zkmigrate import deadline
from zkmigrate.inventory.inventory import Inventory
from zkmigrate.runbook.model.fact import Reading, Seen, Unknown
from zkmigrate.runbook.model.look import Look
from zkmigrate.zookeeper.clients.admin import word_refused
from zkmigrate.zookeeper.clients.four_letter_client import four_letter_word
from zkmigrate.zookeeper.clients.login import credentials_of
from zkmigrate.zookeeper.clients.zookeeper import ZnodeReader
from zkmigrate.zookeeper.data.four_letter_words import not_allowed
from zkmigrate.zookeeper.questions import ReadAcls, ReadModified, ReadZnode, Rights, SendWord, Znode

_WORD_S = 3.0
_SILENT_WORD_S = 0.3
"""The time limit in seconds for a server that did not answer the previous four-letter word.

It applies only while a deadline runs. A healthy server answers within milliseconds.
"""


class ZooKeeperAnswers:
    """A source of facts from the client ports of the ZooKeeper hosts. It keeps client sessions open."""

    def __init__(self, inventory: Inventory, _look: Look) -> None:
        self._doors = inventory.doors
        self._credentials = credentials_of(inventory)
        self._znodes = ZnodeReader(
            {host: (door.address, door.port) for host, door in self._doors.items()},
            credentials=self._credentials,
        )
        self._silent: set[str] = set()
        self._not_allowed: set[tuple[str, str]] = set()

    def close(self) -> None:
        self._znodes.close()

    def word(self, request: SendWord) -> Reading[str]:
        host = request.host
        if host not in self._doors:
            return Unknown("failed", f"{host} is not a ZooKeeper host, so it has no four-letter words")
        most_s = _SILENT_WORD_S if deadline.bounded() and host in self._silent else _WORD_S
        answer = self._word(host, request.word, most_s)
        if isinstance(answer, Unknown) and answer.cause in ("timeout", "unreachable"):
            self._silent.add(host)
        else:
            self._silent.discard(host)
        return answer

    def _word(self, host: str, word: str, most_s: float) -> Reading[str]:
        """Send a four-letter word, or query AdminServer (if its port is known) for a word not allowed.

        Later requests for this word then go to AdminServer directly.
        """
        door = self._doors[host]
        if door.admin_port is None or (host, word) not in self._not_allowed:
            answer = four_letter_word(
                door.address, door.port, word, deadline.remaining(most_s), self._credentials
            )
            if door.admin_port is None or not isinstance(answer, Seen) or not not_allowed(answer.value):
                return answer
            self._not_allowed.add((host, word))
        answer = word_refused(door.address, door.admin_port, word, deadline.remaining(most_s))
        if isinstance(answer, Unknown):
            # The server may have been restarted with another whitelist: ask it again next time.
            self._not_allowed.discard((host, word))
        return answer

    def znode(self, request: ReadZnode) -> Reading[Znode]:
        host = request.host
        if host not in self._doors:
            return _not_zookeeper(host)
        if deadline.bounded() and host in self._silent:
            return Unknown("timeout", f"{host} did not answer the last request; it is not queried again yet")
        answer = self._znodes.read(host, request.path)
        if isinstance(answer, Unknown) and answer.cause == "timeout":
            self._silent.add(host)
        return answer

    def modified(self, request: ReadModified) -> Reading[Mapping[str, int]]:
        if request.host not in self._doors:
            return _not_zookeeper(request.host)
        return self._znodes.modified(request.host, request.paths)

    def acls(self, request: ReadAcls) -> Reading[Mapping[str, Rights]]:
        if request.host not in self._doors:
            return _not_zookeeper(request.host)
        return self._znodes.acls(request.host, request.paths)


def _not_zookeeper(host: str) -> Unknown:
    return Unknown("failed", f"{host} is not a ZooKeeper host, so it has no znodes")
