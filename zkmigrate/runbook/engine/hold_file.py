"""The hold file, by which a person at another terminal makes a run wait.

``runs/RUN/hold`` is a JSON object {at, why, by, place, since}. ``zkmigrate hold`` creates it; ``zkmigrate
release`` removes it and records in ``runs/RUN/hold.released`` who did so. An empty file made by hand is a
hold too. An unreadable file never fails the run: outside the window the run holds and reports what is wrong,
in the window it ignores the file.
"""

from __future__ import annotations

import contextlib
import os
import pwd
import stat
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from zkmigrate.errors import LockedError
from zkmigrate.runbook.engine import run_file

NAME = "hold"
RELEASED = "hold.released"


@dataclass(frozen=True)
class Hold:
    """A request to hold.

    - at: stage, or ``stage.step``, empty for the next possible place.
    - by: ``user@machine``. place: the terminal, and the address from which its user came.
    - since: seconds since the epoch.
    - wrong: why the file cannot be read, else empty.
    - mark: distinguishes this file from another of the same name.
    """

    at: str = ""
    why: str = ""
    by: str = ""
    place: str = ""
    since: float = 0.0
    wrong: str = ""
    mark: str = ""

    def body(self) -> dict[str, Any]:
        """Return the hold for the journal and ``--json``."""
        said = asdict(self)
        del said["mark"]
        if not self.wrong:
            del said["wrong"]
        return said

    def words(self) -> str:
        """Return who holds and why, as one clause."""
        if self.wrong:
            return f"the hold file cannot be read: {self.wrong}"
        return f"{self.by}: {self.why}" if self.why else self.by


def where_held(held: Mapping[str, Any]) -> str:
    """Return where the walk holds, from the hold's journal line: before, in or after which step."""
    return f"{held['place']} {held['stage']}.{held['step']}"


class HoldPort:
    """The walk's interface to the hold of one run. Reading never raises; this base class has no hold."""

    def wanted(self) -> Hold | None:
        """Return the hold that is requested now."""
        return None

    def answered(self) -> None:
        """Remove the hold, because it was answered at the run's own terminal."""

    def released_by(self) -> str:
        """Return who made the last release from another terminal, or empty."""
        return ""


class HoldFile(HoldPort):
    """The hold file of one run directory."""

    def __init__(self, run_dir: Path) -> None:
        self._path = run_dir / NAME
        self._released = run_dir / RELEASED

    def wanted(self) -> Hold | None:
        try:
            status = os.lstat(self._path)
        except FileNotFoundError:
            return None
        except OSError as error:
            return Hold(wrong=str(error.strerror))
        return _read(self._path, status)

    def answered(self) -> None:
        with contextlib.suppress(OSError):  # the walk remembers that this one was answered
            self._path.unlink()

    def released_by(self) -> str:
        try:
            return run_file.line(run_file.json_object(run_file.content(self._released)).get("by", ""))
        except (OSError, ValueError):
            return ""

    def place(self, hold: Hold) -> Hold | None:
        """Write a hold. Return the hold of the same person that it replaces, if any.

        Raises LockedError while a hold of another person exists, and OSError if the file cannot be written.
        """
        before = self.wanted()
        if before is not None and (before.by != hold.by or before.wrong):
            raise LockedError(f"a hold exists already ({before.words()}). Next: zkmigrate release, then hold")
        new = self._path.with_name(f"{NAME}.new-{os.getpid()}")
        run_file.write(new, hold.body())
        try:
            if before is None:
                self._path.hardlink_to(new)  # never replaces a hold made meanwhile
            else:
                new.replace(self._path)
        except FileExistsError:
            raise LockedError(
                "somebody else has just made a hold. Next: zkmigrate status, then hold again"
            ) from None
        finally:
            new.unlink(missing_ok=True)
        return before

    def release(self, by: str, place: str, since: float) -> Hold | None:
        """Record a release and remove the hold. Return the hold, or None if there was none.

        Raises OSError if the files cannot be changed.
        """
        hold = self.wanted()
        run_file.write(self._released, {"by": by, "place": place, "since": since})
        self._path.unlink(missing_ok=True)
        return hold


def _read(path: Path, status: os.stat_result) -> Hold:
    mark = f"{status.st_ino}.{status.st_mtime_ns}"
    made = Hold(by=_owner(status.st_uid), since=status.st_mtime, mark=mark)
    try:
        if not stat.S_ISREG(status.st_mode):
            raise ValueError("not a plain file")
        content = run_file.content(path)
        if not content.strip():
            return made
        said = run_file.json_object(content)
        words = {key: run_file.line(said.get(key, "")) for key in ("at", "why", "by", "place")}
        since = run_file.moment(said.get("since", status.st_mtime))
    except OSError as error:
        return replace(made, wrong=str(error.strerror))
    except ValueError as error:
        return replace(made, wrong=str(error))
    return replace(made, **{key: value for key, value in words.items() if value}, since=since)


def _owner(uid: int) -> str:
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return str(uid)
