"""Files that a verb writes: each whole, those that belong together all or none, over no other unasked."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterable, Mapping
from pathlib import Path

from zkmigrate.errors import UsageError


def refuse_taken(path: Path, *, force: bool) -> None:
    """UsageError when ``path`` cannot be written, as far as that can be told before any host is asked."""
    if path.is_dir():
        raise UsageError(f"{path} is a directory; needed: the name of a file")
    if not path.parent.is_dir():
        raise UsageError(f"{path}: no directory {path.parent}. Next: make it, or another FILE")
    if not force and os.path.lexists(path):
        raise UsageError(f"{path} exists already and stays as it is. Next: another FILE, or --force")


def refuse_all_taken(paths: Iterable[Path], stale: Iterable[Path], *, force: bool) -> None:
    """UsageError when one of them cannot be written. stale: files of an earlier plan, which nobody may take
    for this one's."""
    for path in paths:
        refuse_taken(path, force=force)
    for path in stale:
        if not force:
            raise UsageError(f"{path} belongs to an earlier plan. Next: another FILE, or --force")


def write_all(contents: Mapping[Path, str], stale: Iterable[Path] = (), *, force: bool = False) -> None:
    """Write files (0600), the last one last; over others, and without the stale ones, only with ``force``.

    Every content is on disk before the first file gets its name. After an error no file of this call is left,
    but for those that replaced another. Raises UsageError, OSError.
    """
    stale = [path for path in stale if path not in contents]
    refuse_all_taken(contents, stale, force=force)
    waiting: dict[Path, Path] = {}
    made: list[Path] = []
    try:
        for path, text in contents.items():
            fd, name = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
            waiting[path] = Path(name)
            with os.fdopen(fd, "w", encoding="utf-8", newline="") as file:
                file.write(text)
                file.flush()
                os.fsync(file.fileno())
        for path in stale:
            path.unlink(missing_ok=True)
        for path, written in waiting.items():
            if force and os.path.lexists(path):
                written.replace(path)
                continue
            os.link(written, path)  # unlike a rename this takes no other file's place
            made.append(path)
    except BaseException as error:
        for path in made:
            path.unlink(missing_ok=True)
        if isinstance(error, FileExistsError):
            appeared = f"{error.filename2} appeared meanwhile and stays as it is"
            raise UsageError(f"{appeared}. Next: another FILE, or --force") from error
        raise
    finally:
        for written in waiting.values():
            written.unlink(missing_ok=True)
