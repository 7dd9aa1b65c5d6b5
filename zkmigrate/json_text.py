"""Read JSON, and refuse text that different parsers understand in different ways."""

from __future__ import annotations

import json
import math
from collections import Counter
from typing import Any

_SEEN_CHARS = 60


class Doubtful(ValueError):
    """JSON that different parsers read in different ways."""


class TooDeep(ValueError):
    """Lists or objects nested deeper than Python can read."""


def loads(content: bytes | str) -> Any:
    """Read JSON in UTF-8.

    Raises ValueError if the content is not JSON, and also for NaN and infinite numbers, numbers of thousands
    of digits, a key that occurs twice in an object, and lists or objects that are nested too deeply.
    """
    text = content if isinstance(content, str) else content.decode("utf-8-sig")
    try:
        return json.loads(text, object_pairs_hook=_once, parse_constant=_constant, parse_float=_float)
    except RecursionError:
        raise TooDeep("seen lists or objects nested too deep") from None


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    made = dict(pairs)
    if len(made) != len(pairs):
        [(key, times)] = Counter(key for key, _ in pairs).most_common(1)
        raise Doubtful(f"key {_seen(key)} {times} times in {_seen(made)}; needed: each key once")
    return made


def _constant(text: str) -> float:
    raise Doubtful(f"seen {text}; needed: numbers that JSON allows")


def _float(text: str) -> float:
    if not math.isfinite(number := float(text)):
        raise Doubtful(f"seen {text[:_SEEN_CHARS]}; needed: numbers below 1e308")
    return number


def _seen(value: object) -> str:
    text = json.dumps(value)
    return text if len(text) <= _SEEN_CHARS else f"{text[: _SEEN_CHARS - 1]}…"
