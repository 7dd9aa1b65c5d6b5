"""Keep the gateway's record on disk, and a lock so that no second process uses the same record."""

from __future__ import annotations

import asyncio
import fcntl
import json
import os
from pathlib import Path
from typing import Any

from zkmigrate import json_text
from zkmigrate.errors import HostError, LockedError

SOCKET = "gateway.sock"
_MOST_BYTES = 1 << 23


class Record:
    """The file ``record.json`` in a folder of mode 0700, which only one process at a time can lock.

    again: whether an earlier process has used the folder. Raises LockedError if another process holds the
    lock.
    """

    def __init__(self, folder: Path) -> None:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._folder, self.path = folder, folder / "record.json"
        self.again = (folder / "lock").exists()
        self._lock = os.open(folder / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(self._lock)
            raise LockedError(
                f"another gateway uses the folder {folder}. Next: find the other gateway's process"
            ) from None

    def close(self) -> None:
        os.close(self._lock)

    def read(self) -> Any:
        """Return the content of the record, or None before the first order. Raises HostError."""
        try:
            with open(self.path, "rb") as file:
                content = file.read(_MOST_BYTES + 1)
            if len(content) > _MOST_BYTES:
                raise ValueError(f"the file has more than {_MOST_BYTES:,} bytes")
            return json_text.loads(content)
        except FileNotFoundError:
            return None
        except (OSError, ValueError) as error:
            raise HostError(
                f"{self.path}: {error}. The route is unknown, so the gateway does not start. Next: look at "
                "the status of the other gateways, then restore the file or remove it"
            ) from None

    async def write(self, body: Any) -> None:
        """Replace the record on disk.

        The file is written in a thread, because a disk may be slow. Raises OSError if the former record is
        still in place. Raises HostError if it is not known which of the two records a restart would find; the
        process must then end.
        """
        await asyncio.to_thread(self._replace, body)

    def _replace(self, body: Any) -> None:
        new = self.path.with_suffix(".new")
        with open(new, "wb", opener=lambda path, flags: os.open(path, flags, 0o600)) as file:
            file.write(json.dumps(body).encode())
            file.flush()
            os.fsync(file.fileno())
        new.replace(self.path)
        try:
            folder = os.open(self._folder, os.O_RDONLY | os.O_DIRECTORY)
            try:
                os.fsync(folder)
            finally:
                os.close(folder)
        except OSError as error:
            raise HostError(
                f"{self._folder}: {error}. Next: repair the disk, then start the gateway again"
            ) from None
