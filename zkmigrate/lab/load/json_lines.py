"""Write and read append-only files of JSON lines; each line has the monotonic and the wall clock."""

from __future__ import annotations

import json
import os
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any

FORMAT = 1


class Recorder:
    """A file ``DIR/KIND.jsonl`` to which events are appended, one per line.

    Each line is one unbuffered write. A killed process loses no written line; only a full disk can leave an
    incomplete last line. Threads may share a recorder, because client libraries call back on their own
    threads. Raises FileExistsError if the file exists.
    """

    def __init__(self, out: Path, kind: str, config: dict[str, Any]) -> None:
        self._fd = os.open(out / f"{kind}.jsonl", os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_EXCL, 0o644)
        self._lock = threading.Lock()
        self._closed = False
        self.write("opened", kind=kind, pid=os.getpid(), format=FORMAT, config=config)

    def write(self, event: str, *, mono_ns: int | None = None, **fields: Any) -> None:
        """Append one event.

        mono_ns: when the event happened, by CLOCK_MONOTONIC; now by default. Raises ValueError after the
        closing line.
        """
        now = time.monotonic_ns()
        epoch_ns = time.time_ns()
        at = now if mono_ns is None else mono_ns
        line = {"event": event, "mono_ns": at, "epoch_ms": (epoch_ns - (now - at)) // 1_000_000, **fields}
        data = (json.dumps(line, separators=(",", ":")) + "\n").encode()
        with self._lock:
            if self._closed:
                raise ValueError(f"event {event!r} after the closing line")
            self._closed = event == "closed"
            _write_all(self._fd, data)

    def close(self, reason: str, **counters: Any) -> None:
        """Write the closing line and flush the file to disk."""
        self.write("closed", reason=reason, **counters)
        os.fsync(self._fd)
        os.close(self._fd)

    def __enter__(self) -> Recorder:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Write the closing line with the exception, if one ended the load."""
        if error is not None and not self._closed:
            self.close(f"error: {type(error).__name__}: {error}")


def _write_all(fd: int, data: bytes) -> None:
    while data:
        data = data[os.write(fd, data) :]


Event = dict[str, Any]


@dataclass(frozen=True)
class Recording:
    """The events of one recording.

    torn: 1 if the last line was incomplete, otherwise 0. problem: why the file may not be complete; "" if it
    is complete.
    """

    name: str
    events: Sequence[Event] = ()
    torn: int = 0
    problem: str = ""

    def of(self, *names: str) -> list[Event]:
        return [event for event in self.events if event["event"] in names]

    @property
    def closing(self) -> Event | None:
        """The closing line as an event; None if the recording has no closing line."""
        last = self.events[-1] if self.events else None
        return last if last is not None and last["event"] == "closed" else None


def read_recording(name: str, data: bytes | None) -> Recording:
    """Parse the bytes of one recording; None means that the file does not exist.

    A last line without a newline is dropped and counted as torn. Any other line that does not parse means
    that the file is damaged.
    """
    if data is None:
        return Recording(name, problem="missing")
    whole, _, rest = data.rpartition(b"\n")
    torn = 1 if rest else 0
    events: list[Event] = []
    for number, line in enumerate(whole.split(b"\n") if whole else [], start=1):
        event = _parse(line)
        if event is None:
            return Recording(name, events, torn, f"line {number} is not an event")
        events.append(event)
    if not events or events[0]["event"] != "opened":
        return Recording(name, events, torn, "no opening line")
    if events[0].get("format") != FORMAT:
        return Recording(name, events, torn, f"format {events[0].get('format')!r}, needed {FORMAT}")
    if events[-1]["event"] != "closed":
        return Recording(name, events, torn, "no closing line")
    if events[-1].get("reason") != "ordered":
        return Recording(name, events, torn, f"ended by {events[-1].get('reason')}")
    return Recording(name, events, torn, "torn after the closing line" if torn else "")


def _parse(line: bytes) -> Event | None:
    try:
        event = json.loads(line)
    except ValueError:
        return None
    if not isinstance(event, dict) or not isinstance(event.get("event"), str):
        return None
    return event if isinstance(event.get("mono_ns"), int) else None


class Follower:
    """A reader of a recording that is still being written. It returns each line once.

    newest: begin at most ``TAIL`` bytes before the current end, if only new lines matter, because reading a
    long file takes seconds.
    """

    TAIL = 1 << 16

    def __init__(self, directory: Path, kind: str, *, newest: bool = False) -> None:
        self._path = directory / f"{kind}.jsonl"
        self._offset = 0
        if newest and self._path.exists() and (size := self._path.stat().st_size) > self.TAIL:
            with open(self._path, "rb") as file:
                file.seek(size - self.TAIL)
                self._offset = size - self.TAIL + len(file.readline())

    def more(self) -> list[Event]:
        """Return the events of the complete lines written since the last call.

        The list is empty while the file does not exist. Lines that are not events are skipped.
        """
        try:
            with open(self._path, "rb") as file:
                file.seek(self._offset)
                whole, newline, _ = file.read().rpartition(b"\n")
        except FileNotFoundError:
            return []
        self._offset += len(whole) + len(newline)
        parsed = [_parse(line) for line in whole.split(b"\n")]
        return [event for event in parsed if event is not None]


def load_recording(directory: Path, kind: str) -> Recording:
    """Read ``DIR/KIND.jsonl``. If the file cannot be read, the recording's ``problem`` says why."""
    try:
        data = (directory / f"{kind}.jsonl").read_bytes()
    except FileNotFoundError:
        data = None
    except OSError as error:
        return Recording(kind, problem=f"unreadable: {error.strerror}")
    return read_recording(kind, data)
