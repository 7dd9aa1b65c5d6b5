"""Random access to a file over SFTP, for the readers of ZooKeeper's formats."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TypeVar

import paramiko

from zkmigrate.hosts.transport.connection import Connection
from zkmigrate.hosts.transport.failure import TransportError
from zkmigrate.hosts.transport.ssh import Transport
from zkmigrate.runbook.model.fact import Cause

T = TypeVar("T")


class SftpReader:
    """One remote file, opened at first use and reopened after a broken connection.

    ``size`` and ``read`` raise TransportError, with cause ``denied`` if the account may not read the file and
    ``failed`` if the file is missing. The file is closed when the last reference to the reader is dropped.
    """

    def __init__(self, transport: Transport, host: str, path: str) -> None:
        self._transport = transport
        self._host = host
        self._path = path
        self._lock = threading.Lock()
        self._opened: tuple[Connection, paramiko.SFTPFile] | None = None

    def size(self) -> int:
        """Return the current length in bytes."""
        limit = self._transport.file_s
        return self._ask(lambda connection, file: connection.size_of(file, limit))

    def read(self, offset: int, length: int) -> bytes:
        """Return ``length`` bytes from ``offset``; fewer at the end of the file."""
        limit = self._transport.file_s
        return self._ask(lambda connection, file: connection.read_at(file, offset, length, limit))

    def _ask(self, question: Callable[[Connection, paramiko.SFTPFile], T]) -> T:
        with self._lock:
            try:
                connection = self._transport.connection(self._host)
                if self._opened is None or self._opened[0] is not connection:
                    self._opened = connection, connection.open_file(self._path, self._transport.file_s)
                return question(*self._opened)
            except TransportError:
                self._opened = None
                raise
            except OSError as error:
                self._opened = None
                cause: Cause = "denied" if isinstance(error, PermissionError) else "failed"
                raise TransportError(self._host, cause, f"{self._path}: {error.strerror or error}") from error
