"""Read and write lab.json, the record of a lab (written before each effect), and find abandoned labs.

Layout below the base directory (ZKMIGRATE_LAB_DIR, else /var/lib/zkmigrate-lab):

    .lock                    held while a lab is created and while labs are listed
    zkm-lab-ID/lab.json      this record; removed last
    zkm-lab-ID/lock          held while the record is changed and during the whole of a teardown
    zkm-lab-ID/keys/         operator (private key), known_hosts
    zkm-lab-ID/hosts/NAME/   upper, work, root (overlay), console.log, disk1.img …

The names of all resources (namespaces, cgroups, mounts) follow from the lab's id, so a record with the id
alone is enough to take a lab down.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import secrets
from collections.abc import Callable, Collection, Iterator
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from zkmigrate.lab.failure import LabError
from zkmigrate.lab.processes import ProcessId
from zkmigrate.lab.spec import LabSpec

FORMAT = 1
PREFIX = "zkm-lab-"
DEFAULT_BASE = Path("/var/lib/zkmigrate-lab")


@dataclass(frozen=True)
class HostRecord:
    """The processes of one host: systemd-nspawn, and the container's PID 1 as seen from this machine."""

    supervisor: ProcessId | None = None
    leader: ProcessId | None = None


@dataclass(frozen=True)
class LabRecord:
    """The content of lab.json.

    owner: the process that built the lab. kept: whether the lab outlives its owner and is removed only by
    `lab down`.
    """

    id: str
    owner: ProcessId
    kept: bool
    spec: LabSpec
    backend: str = "nspawn"
    ready: bool = False
    hosts: dict[str, HostRecord] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        """Return the record as JSON values."""
        return {
            "format": FORMAT,
            "id": self.id,
            "backend": self.backend,
            "kept": self.kept,
            "ready": self.ready,
            "owner": asdict(self.owner),
            "spec": self.spec.to_json(),
            "hosts": {name: asdict(host) for name, host in self.hosts.items()},
        }

    @classmethod
    def from_json(cls, value: dict[str, Any]) -> LabRecord:
        """Return the record from the JSON values that `to_json` returned.

        Raises LabError for another format number.
        """
        if value.get("format") != FORMAT:
            raise LabError(f"lab.json has format {value.get('format')!r}; this program reads format {FORMAT}")
        return cls(
            id=value["id"],
            owner=ProcessId(**value["owner"]),
            kept=value["kept"],
            spec=LabSpec.from_json(value["spec"]),
            backend=value["backend"],
            ready=value["ready"],
            hosts={
                name: HostRecord(_process(host["supervisor"]), _process(host["leader"]))
                for name, host in value["hosts"].items()
            },
        )

    def with_host(self, name: str, host: HostRecord) -> LabRecord:
        """Return the record with one host's processes replaced."""
        return replace(self, hosts={**self.hosts, name: host})


def _process(value: dict[str, int] | None) -> ProcessId | None:
    return None if value is None else ProcessId(**value)


def sweepable(record: LabRecord, alive: Callable[[ProcessId], bool]) -> bool:
    """Return whether a lab is abandoned: its owner is dead, and it is not a kept lab that was ready."""
    return not alive(record.owner) and not (record.kept and record.ready)


def base_directory() -> Path:
    """Return the directory that contains all labs."""
    named = os.environ.get("ZKMIGRATE_LAB_DIR")
    return Path(named).absolute() if named else DEFAULT_BASE


@contextlib.contextmanager
def locked(path: Path, *, wait: bool = True) -> Iterator[bool]:
    """Hold an exclusive lock on a file during the block, and yield True.

    If `wait` is off and another process holds the lock, yield False at once.
    """
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
        except BlockingIOError:
            yield False
            return
        yield True
    finally:
        os.close(descriptor)


def write(directory: Path, record: LabRecord) -> None:
    """Replace lab.json by this record, durably and atomically."""
    fresh = directory / "lab.json.new"
    with fresh.open("w") as out:
        json.dump(record.to_json(), out, indent=1)
        out.flush()
        os.fsync(out.fileno())
    fresh.rename(directory / "lab.json")


def read(directory: Path) -> LabRecord:
    """Read the record of the lab in this directory. Raises LabError if there is no lab."""
    try:
        return LabRecord.from_json(json.loads((directory / "lab.json").read_text()))
    except FileNotFoundError:
        raise LabError(f"there is no lab in {directory}") from None


def update(directory: Path, change: Callable[[LabRecord], LabRecord]) -> LabRecord:
    """Change the record in lab.json under the lab's lock, and return the new record."""
    with locked(directory / "lock"):
        record = change(read(directory))
        write(directory, record)
        return record


def create(spec: LabSpec, *, kept: bool) -> Path:
    """Create the directory of a new lab that this process owns, with the lab's record.

    Return the directory.
    """
    base = base_directory()
    base.mkdir(parents=True, exist_ok=True)
    with locked(base / ".lock"):
        while True:
            lab_id = secrets.token_hex(3)
            directory = base / f"{PREFIX}{lab_id}"
            try:
                directory.mkdir(mode=0o755)
            except FileExistsError:
                continue
            write(directory, LabRecord(lab_id, ProcessId.mine(), kept, spec))
            return directory


def directories() -> tuple[Path, ...]:
    """Return the directories of all labs, including incomplete labs."""
    return tuple(sorted(base_directory().glob(f"{PREFIX}*")))


def own(others: Collection[Path]) -> tuple[Path, ...]:
    """Return the directories of this process's labs, including those that a crash left without a record.

    others: the directories that existed before this process created a lab.
    """
    if not base_directory().exists():
        return ()
    with locked(base_directory() / ".lock"):  # a lab that is being created has no record yet
        fresh = [path for path in directories() if path not in others]
        return tuple(path for path in fresh if not _of_another(path))


def _of_another(directory: Path) -> bool:
    try:
        return read(directory).owner != ProcessId.mine()
    except LabError:
        return False
