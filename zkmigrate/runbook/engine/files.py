"""Write one or several files of a verb: all of them completely, or none.

Files that exist already are replaced only with ``force``.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterable, Mapping
from pathlib import Path

from zkmigrate.errors import UsageError


def refuse_taken(path: Path, *, force: bool) -> None:
    """Raise UsageError if ``path`` cannot be written, as far as that is known before any host is queried."""
    if path.is_dir():
        raise UsageError(f"{path} is a directory; needed: the name of a file")
    if not path.parent.is_dir():
        raise UsageError(
            f"cannot write {path}: no directory {path.parent}. Next: create it, or name another FILE"
        )
    if not force and os.path.lexists(path):
        raise UsageError(
            f"{path} already exists and was not replaced. Next: name another FILE, or pass --force"
        )


def refuse_all_taken(paths: Iterable[Path], stale: Iterable[Path], *, force: bool) -> None:
    """Raise UsageError if a path cannot be written, or if there are stale files and no ``force``.

    stale: files of an earlier plan, which could be mistaken for files of this one.
    """
    for path in paths:
        refuse_taken(path, force=force)
    for path in stale:
        if not force:
            raise UsageError(f"{path} belongs to an earlier plan. Next: name another FILE, or pass --force")


def write_all(contents: Mapping[Path, str], stale: Iterable[Path] = (), *, force: bool = False) -> None:
    """Write files (0600) in their order; replace others and remove stale ones only with ``force``.

    Every content is on disk before the first file gets its name. After an error no file of this call is left,
    except files that replaced another. Raises UsageError and OSError.
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
            os.link(written, path)  # unlike a rename, this never replaces a file
            made.append(path)
    except BaseException as error:
        for path in made:
            path.unlink(missing_ok=True)
        if isinstance(error, FileExistsError):
            appeared = f"{error.filename2} was created meanwhile by another process and was not replaced"
            raise UsageError(f"{appeared}. Next: another FILE, or --force") from error
        raise
    finally:
        for written in waiting.values():
            written.unlink(missing_ok=True)
