"""The command ``collect``: copy logs and snapshots of servers into a folder.

Each log is copied up to its last complete record, and each record is checked when it is received. A later run
continues after the last copied record if the source still holds that record. Because only one transaction
ever has the zxid of that record, everything before it is the same too.

A snapshot is checked by its seal once it has been copied. Servers write and purge files in the meantime.
Files that a server removes or has not finished are reported and not copied.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path

from zkmigrate.errors import HostError
from zkmigrate.runbook.engine.clock import Clock
from zkmigrate.token_bucket import TokenBucket
from zkmigrate.zookeeper.data.errors import ZkDataError
from zkmigrate.zookeeper.data.logdir import LogFile, log_files
from zkmigrate.zookeeper.data.reader import Directory, FileReader, Listed, RandomReader
from zkmigrate.zookeeper.data.seal import check_snapshot
from zkmigrate.zookeeper.data.snapname import SnapshotFile, snapshot_files, snapshot_zxid
from zkmigrate.zookeeper.data.tail import newest as newest_of
from zkmigrate.zookeeper.data.txnlog import FILE_HEADER_SIZE, log_zxid
from zkmigrate.zookeeper.data.zxid import format_zxid
from zkmigrate.zookeeper.disks.collect_log import Copy, LogCopy
from zkmigrate.zookeeper.disks.collect_outcome import Note, Outcome, Request, Server
from zkmigrate.zookeeper.disks.download import (
    BLOCK,
    FileRemoved,
    FileUnreadable,
    PartFile,
    Progress,
    Source,
    Stopped,
)
from zkmigrate.zookeeper.disks.location import Disks, Place
from zkmigrate.zookeeper.disks.manifest import PART, Manifest, Unfinished, locked_manifest, size_of

_HOUR_MS = 3_600_000
_TIME_AT = 12 + 20
"""The offset of the time in a record: after its frame, session, cxid and zxid."""


class Collector:
    """A run that copies the files of several servers, one after the other.

    stop: returns whether the operator wants to stop. hint: receives lines of progress.
    """

    def __init__(
        self,
        disks: Disks,
        request: Request,
        manifest: Manifest,
        clock: Clock,
        stop: Callable[[], bool],
        hint: Callable[[str], None],
    ) -> None:
        self._disks = disks
        self._request = request
        self._manifest = manifest
        self._clock = clock
        self._stop = stop
        self._bucket = TokenBucket(request.rate, BLOCK, clock.now, clock.pause)
        self._progress = Progress(clock, hint)
        self._outcome = Outcome(manifest, tuple(server.name for server in request.servers))

    def collect(self) -> Outcome:
        """Copy the logs and snapshots that are new or have grown.

        Raises UsageError for a directory that is not ZooKeeper's, or for a server name that an earlier run
        used for other directories. Raises OSError if this machine cannot write.
        """
        began = self._clock.now()
        self._manifest.claim({server.name: server.place for server in self._request.servers})
        try:
            reached = [
                one for one in self._request.servers if self._try_server(one, partial(self._plan, one))
            ]
            self._manifest.servers |= {server.name: server.place for server in reached}
            self._manifest.save()
            for server in reached:
                self._try_server(server, partial(self._server, server))
        except Stopped:
            self._outcome.stopped = True
        self._outcome.bytes_read = self._progress.done
        self._outcome.seconds = self._clock.now() - began
        return self._outcome

    def source(self, directory: Directory, name: str) -> Source:
        """Return a file of a server, read at the limited rate."""
        return Source(directory.open(name), self._bucket, self._progress, self._stop)

    def _plan(self, server: Server) -> None:
        """Estimate how many bytes of a server are still to copy.

        The estimate is an upper bound, because padding is included but not read.
        """
        snapshots = self._directory(server.data)
        logs = snapshots if server.log is None else self._directory(server.log)
        newest: tuple[SnapshotFile | LogFile, ...] = snapshot_files(snapshots)[: self._request.snapshots]
        for file in (*newest, *log_files(logs)):
            copy = self._copy(server, file.name)
            have = max(0, size_of(copy.part))
            if entry := copy.entry:
                have = file.size if copy.has(file.size) else max(have, entry.bytes)
            self._progress.plan(str(copy), file.size - have)

    def _try_server(self, server: Server, do: Callable[[], None]) -> bool:
        """Run `do`, and return whether the host was reached.

        If a host fails, the run continues with other hosts.
        """
        try:
            do()
        except HostError as error:
            why = f"{error}. The files copied so far are kept; the next run continues"
            self._outcome.notes.append(Note(server.name, "", "unreached", why))
            return False
        return True

    def _directory(self, place: Place) -> Listed:
        """Return the result of `Disks.directory`. Raises HostError instead of OSError."""
        try:
            return self._disks.directory(place)
        except OSError as error:
            raise HostError(f"{place}: {error.strerror or error}") from error

    def _server(self, server: Server) -> None:
        """Copy the files of a server, snapshots first.

        Logs are copied later, because a snapshot is complete only with the log that was written while it was
        saved.
        """
        self._manifest.path(server.name, "").mkdir(parents=True, exist_ok=True)
        self._manifest.recover(server.name)
        self._snapshots(server, self._directory(server.data))
        logs = self._directory(server.log or server.data)
        files = log_files(logs)
        if not files:
            hint = "" if server.log else ". If the server has a dataLogDir, name it with --log-dir"
            self._outcome.notes.append(Note(server.name, "", "left", f"the directory has no log{hint}"))
        self._removed_logs(server, files)
        first = self._first(server, logs, files)
        for file in files:
            copy = self._copy(server, file.name)
            if file.zxid >= first:
                with self._reading(copy):
                    if not (copy.intact and copy.has(file.size)):
                        source = self.source(logs, file.name)
                        self._log(copy).update(source, file, newest=file is files[-1])
            else:
                self._progress.plan(str(copy), 0)

    @contextmanager
    def _reading(self, copy: Copy) -> Iterator[None]:
        """Convert an error of one file, raised in the block that copies the file, into a note."""
        with self._progress.reading(str(copy)):
            try:
                yield
            except FileRemoved:
                self._handle_removed(copy)
            except FileUnreadable as error:
                copy.note("unread", f"cannot be read: {error}")

    def _copy(self, server: Server, name: str) -> Copy:
        place = server.data if log_zxid(name) is None else server.log or server.data
        return Copy(self._outcome, self._clock, server, name, place)

    def _log(self, copy: Copy) -> LogCopy:
        return LogCopy(copy, self._request.max_record)

    # -- snapshots -----------------------------------------------------------------------------------------

    def _snapshots(self, server: Server, directory: Directory) -> None:
        """Copy the newest complete snapshots, as many as requested."""
        listed = directory.names_with_sizes()
        for name in self._parts(server):
            if snapshot_zxid(name) is not None and name not in listed:
                self._copy(server, name).part.unlink()
        for key in [key for key in self._manifest.left if key[0] == server.name and key[1] not in listed]:
            del self._manifest.left[key]
        found = 0
        for file in snapshot_files(directory):
            if found == self._request.snapshots:
                break
            copy = self._copy(server, file.name)
            with self._reading(copy):
                found += self._snapshot(copy, directory, file)

    def _snapshot(self, copy: Copy, directory: Directory, file: SnapshotFile) -> bool:
        """Copy a snapshot if it is not copied yet, and return whether a complete copy exists."""
        entry, left = copy.entry, self._manifest.left.get(copy.key)
        if entry is not None and entry.source_size == file.size and copy.intact:
            return True
        if left is not None and left.source_size == file.size:
            why = left.why
        else:
            if entry is not None:
                had = f"the source has {file.size} bytes (before: {entry.source_size})"
                why = f"{had}, or the copy is missing; the file is copied again"
                copy.note("again", why)
            why = self._download(self.source(directory, file.name), copy)
        if why:
            self._manifest.left[copy.key] = Unfinished(file.size, why)
            self._manifest.save()
            copy.note("left", f"is not complete ({why}); the next run copies it")
            return False
        self._manifest.left.pop(copy.key, None)
        copy.commit(file.size, "whole", None)
        return True

    def _download(self, source: RandomReader, copy: Copy) -> str:
        """Download a snapshot into its part file. Return why the snapshot is not complete, or "".

        The part file of an earlier run is continued. If the result is not complete, the download starts
        again.
        """
        if why := check_snapshot(source, copy.name, whole=False):
            return why
        continued = size_of(copy.part) > 0
        self._fetch(source, copy.part)
        why = check_snapshot(FileReader(copy.part), copy.name)
        if why and continued:
            copy.part.unlink()
            self._fetch(source, copy.part)
            why = check_snapshot(FileReader(copy.part), copy.name)
        return why

    def _fetch(self, source: RandomReader, part: Path) -> None:
        part.touch()
        offset = size_of(part)
        if offset > source.size():
            offset = 0
        target = PartFile(part, offset)
        try:
            while block := source.read(offset, BLOCK):
                target.add(block)
                offset += len(block)
        finally:
            target.close()

    # -- logs ----------------------------------------------------------------------------------------------

    def _first(self, server: Server, directory: Directory, files: Sequence[LogFile]) -> int:
        """Return the zxid in the name of the oldest requested log."""
        request = self._request
        if request.since_zxid is not None:
            return max((file.zxid for file in files if file.zxid <= request.since_zxid), default=0)
        if request.since_hours is None:
            return 0
        try:
            newest = newest_of(_Logs(self, directory, files), max_record=request.max_record)
            last = _time_at(self.source(directory, newest.file), newest.offset) or 0
        except (ZkDataError, FileRemoved, FileUnreadable) as error:
            why = f"the time of the newest transaction is unknown ({error}); every log is copied"
            self._outcome.notes.append(Note(server.name, "", "left", why))
            return 0
        since = last - request.since_hours * _HOUR_MS
        for file in reversed(files):
            try:
                began = _time_at(self.source(directory, file.name), FILE_HEADER_SIZE)
            except (FileRemoved, FileUnreadable):
                continue  # noted when this file is copied
            if began is not None and began <= since:
                return file.zxid
        return 0

    def _removed_logs(self, server: Server, files: Sequence[LogFile]) -> None:
        """Handle logs that were copied and are no longer at the source.

        Either a purge removed these logs, or the server took their transactions back (TRUNC). Transactions
        that were taken back are no longer part of the history.
        """
        listed = {file.name for file in files}
        here = {entry.name for entry in self._manifest.of_server(server.name)} | self._parts(server)
        for name in sorted(here - listed):
            zxid = log_zxid(name)
            if zxid is None:
                continue
            copy = self._copy(server, name)
            if self._was_truncated(server, zxid, files):
                copy.part.unlink(missing_ok=True)
                if copy.entry is not None:
                    copy.set_aside()
            elif copy.entry is None or copy.entry.state not in ("whole", "cut"):
                self._handle_removed(copy)

    def _was_truncated(self, server: Server, zxid: int, files: Sequence[LogFile]) -> bool:
        """Return whether a TRUNC removed a log.

        TRUNC removes all logs after some transaction, and shortens the log that holds this transaction,
        padding included. A purge removes older logs, in any order, and shortens no log.
        """
        older = [file for file in files if file.zxid < zxid]
        if not older:
            return False
        entry = self._copy(server, older[-1].name).entry
        return entry is None or older[-1].size < entry.source_size

    def _parts(self, server: Server) -> set[str]:
        """Return the names of the unfinished files, without the suffix of part files."""
        folder = self._manifest.path(server.name, "")
        return {path.name.removesuffix(PART) for path in folder.glob(f"*{PART}")}

    def _handle_removed(self, copy: Copy) -> None:
        """Handle a file that the server removed before its end was read.

        The copied records of a log are kept, including those in the part file of an interrupted run.
        """
        if log_zxid(copy.name) is None or not self._log(copy).keep_part():
            copy.part.unlink(missing_ok=True)
            if copy.entry is not None and copy.entry.state != "whole":
                copy.change(copy.entry, state="cut")
        entry = copy.entry
        upto = (
            f" to its end; the copy up to {format_zxid(entry.cut.zxid)} is kept"
            if entry and entry.cut
            else ""
        )
        why = f"the server removed the file before it was read{upto}"
        copy.note("purged", why)


class _Logs:
    """A directory that contains only these logs, each read at the limited rate."""

    def __init__(self, collector: Collector, directory: Directory, files: Sequence[LogFile]) -> None:
        self._collector = collector
        self._directory = directory
        self._files = files

    def names_with_sizes(self) -> dict[str, int]:
        return {file.name: file.size for file in self._files}

    def open(self, name: str) -> RandomReader:
        return self._collector.source(self._directory, name)


def _time_at(source: RandomReader, offset: int) -> int | None:
    """Return the time of the record that begins at `offset`, in ms since 1970; None if there is none."""
    data = source.read(offset, _TIME_AT + 8)
    if len(data) < _TIME_AT + 8 or not any(data[8:12]):
        return None
    return int.from_bytes(data[_TIME_AT:], "big", signed=True)


def collect(
    disks: Disks, request: Request, clock: Clock, stop: Callable[[], bool], hint: Callable[[str], None]
) -> Outcome:
    """Copy the logs and snapshots that are new or have grown.

    stop: returns whether the operator wants to stop; it is called before each read. hint: receives lines of
    progress.

    Raises UsageError for a wrong request, LockedError if another process copies into the folder,
    ManifestError if the manifest cannot be read, and OSError if this machine cannot write. Failures of hosts
    are reported in the outcome.
    """
    with locked_manifest(request.out) as manifest:
        return Collector(disks, request, manifest, clock, stop, hint).collect()
