"""Read files that an operator names, without waiting for a pipe's writer and without reading endlessly."""

from __future__ import annotations

import errno
import os
import stat
from io import BufferedReader
from pathlib import Path

MOST_BYTES = 1 << 30
"""The largest input, in bytes, unless its reader allows less."""


def opened(path: Path | str) -> BufferedReader:
    """Open a plain file for reading.

    Raises OSError, also for a pipe, a device or a directory. Its ``strerror`` says why.
    """
    fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    mode = os.fstat(fd).st_mode
    if stat.S_ISREG(mode):
        return os.fdopen(fd, "rb")
    os.close(fd)
    if stat.S_ISDIR(mode):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
    raise OSError(errno.EINVAL, "it is a pipe or a device, and a plain file is needed", str(path))


def content(path: Path | str, most: int = MOST_BYTES) -> bytes:
    """Return the content of a plain file in bytes.

    Raises OSError as ``opened`` does, and also if the file has more than ``most`` bytes.
    """
    with opened(path) as file:
        if os.fstat(file.fileno()).st_size > most:
            raise OSError(errno.EFBIG, f"it has more than {most >> 20} MiB", str(path))
        return file.read()
