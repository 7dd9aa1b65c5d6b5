"""Four-letter answers of a host, parsed."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from zkmigrate.model.fact import Absent, Reading, Seen, Unknown
from zkmigrate.model.look import Look
from zkmigrate.zookeeper.data.errors import ZkDataError
from zkmigrate.zookeeper.data.four_letter_words import NotServingError, NotWhitelistedError

T = TypeVar("T")

NOT_SERVING = "the server runs but does not serve: no quorum, or still syncing"


def answer(look: Look, host: str, word: str, parse: Callable[[str], T]) -> Reading[T]:
    """The parsed answer. Absent: the server is up but does not serve. Unknown: ``denied`` for a word that is
    not in ``4lw.commands.whitelist``, ``garbled`` for an answer that does not parse."""
    reading = look.word(host, word)
    if not isinstance(reading, Seen):
        return reading
    try:
        return Seen(parse(reading.value))
    except NotServingError:
        return Absent(NOT_SERVING)
    except NotWhitelistedError as error:
        return Unknown("denied", str(error))
    except ZkDataError as error:
        return Unknown("garbled", str(error))
