"""Small JSON files in a run's directory, by which another terminal sends a run a request.

A file may have been edited or torn, so its content is checked: ValueError says what is wrong.
"""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from zkmigrate import json_text

_LIMIT = 1 << 16
_WORDS = 200


def content(path: Path) -> bytes:
    """Return a file's content up to a limit, without following a link. Raises OSError."""
    fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    try:
        return os.read(fd, _LIMIT)
    finally:
        os.close(fd)


def json_object(body: bytes) -> Mapping[str, Any]:
    """Return the JSON object in a file's content. Raises ValueError for any other content."""
    try:
        said = json_text.loads(body)
    except ValueError:
        raise ValueError("not JSON") from None
    if not isinstance(said, dict):
        raise ValueError("not a JSON object")
    return said


def line(value: object) -> str:
    """Return a text as one short line that is safe to show on a terminal.

    Raises ValueError for a value that is not text.
    """
    if not isinstance(value, str):
        raise ValueError("it has a value of another type than text")
    return " ".join("".join(c if c.isprintable() else " " for c in value).split())[:_WORDS]


def moment(value: object) -> float:
    """Return a value as seconds since the epoch. Raises ValueError for any other value."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < 1e11:
        raise ValueError("its time is not a number of seconds")
    return float(value)


@contextlib.contextmanager
def named(path: Path) -> Iterator[None]:
    """Add this path to an OSError of the block that does not name a file, such as that of a full disk."""
    try:
        yield
    except OSError as error:
        error.filename = error.filename or str(path)
        raise


def write(path: Path, body: Mapping[str, Any]) -> None:
    """Write a private file, whole or not at all. Raises OSError."""
    new = path.with_name(f"{path.name}.part-{os.getpid()}")
    fd = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, 0o600)
    try:
        with named(path), os.fdopen(fd, "w", encoding="utf-8") as file:
            file.write(json.dumps(body, ensure_ascii=False, sort_keys=True) + "\n")
        new.replace(path)
    except BaseException:
        with contextlib.suppress(OSError):
            new.unlink()
        raise
