"""What ``watch`` keeps between looks: how far source's log was read, and the writes found there."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from zkmigrate.errors import UsageError
from zkmigrate.moves.facts.after_move import LogPosition, NewWrites, position_from_json, position_to_json

MOST = 100
_VERSION = 1


@dataclass(frozen=True)
class Memory:
    """position: None before the first look. writes: in words, the first ``MOST`` of them. name: of the
    migration; a file is not taken for another one's."""

    name: str
    position: LogPosition | None = None
    writes: tuple[str, ...] = field(default=())

    def after(self, written: NewWrites, words: Sequence[str]) -> Memory:
        """What is kept after a look. A hole in the log does not go away, so the position stays before it."""
        if written.unproved:
            return self
        return replace(self, position=written.upto, writes=(*self.writes, *words)[:MOST])


def load(path: Path, name: str) -> Memory | None:
    """What was kept; None when there is no file. Raises UsageError when it is not one of ours."""
    try:
        body: Any = json.loads(path.read_text(encoding="utf-8"))
        if body["version"] != _VERSION or body["name"] != name:
            raise ValueError(f"it is of {body['name']!r}")
        kept = body["position"]
        position = None if kept is None else position_from_json(kept)
        return Memory(name, position, tuple(str(line) for line in body["writes"]))
    except FileNotFoundError:
        return None
    except OSError as error:
        raise UsageError(f"{path} cannot be read: {error.strerror}. Next: --state another") from error
    except (ValueError, KeyError, TypeError) as error:
        raise UsageError(
            f"{path} is not what watch keeps for {name} ({error}). Next: --state another; or "
            "--from-now, which begins it anew"
        ) from error


def save(path: Path, memory: Memory) -> None:
    """Keep it, whole or not at all. Raises UsageError."""
    position = None if memory.position is None else position_to_json(memory.position)
    body = {"version": _VERSION, "name": memory.name, "position": position, "writes": list(memory.writes)}
    beside = path.with_name(f".{path.name}.new")
    try:
        fd = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, 0o600)
        with os.fdopen(fd, "w", encoding="utf-8") as file:
            json.dump(body, file, ensure_ascii=False, indent=1)
            file.flush()
            os.fsync(file.fileno())
        beside.replace(path)
    except OSError as error:
        raise UsageError(f"{path} cannot be written: {error.strerror}. Next: --state another") from error
