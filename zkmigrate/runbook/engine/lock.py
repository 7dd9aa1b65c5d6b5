"""Lock a run: on this machine with flock, on the playbook's witnesses through ``zkm-host lock``.

Each witness keeps owner, heartbeat and the highest fencing number it has seen, and refuses calls with a lower
number. The run has the lock when a majority of the witnesses have granted it. The run's fencing number is the
highest number in the witnesses' answers; the first heartbeat sends it to all witnesses that granted the lock.
Without witnesses only this machine has a lock.
"""

from __future__ import annotations

import fcntl
import os
import re
import threading
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

from zkmigrate.errors import HostError, JournalError, LockedError
from zkmigrate.hosts.parallel import together
from zkmigrate.runbook.engine import process
from zkmigrate.runbook.engine.apply import FENCED_OFF
from zkmigrate.runbook.model.change import Outcome
from zkmigrate.runbook.model.step import Way

TTL_MS = 30_000
BEAT_S = 5.0

UNWITNESSED = (
    "no host keeps a lock or a copy of the journal. The run does not notice a second operator on another "
    "machine. The run's directory is the only record of its changes, so keep it"
)
"""The warning for a run without witnesses."""

Ask = Callable[[str, tuple[str, ...], int], Outcome]
"""``ask(host, words, fencing)``: one zkm-host call. Raises HostError without an answer."""


class LocalLock:
    """A flock on a run directory: one process at a time on this machine, released when the process ends.

    verb: what this process does, shown to other terminals.
    """

    def __init__(self, run_dir: Path, verb: str = "") -> None:
        self._run_dir = run_dir
        try:
            self._fd = os.open(run_dir, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
        except OSError as error:
            raise JournalError(
                f"{run_dir} cannot be opened: {error.strerror}; needed: a directory of this user, not a link"
            ) from None
        try:
            fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(self._fd)
            other = process.at_work(run_dir)
            who = f" (process {other.pid}, {other.verb} by {other.by})" if other and other.pid else ""
            raise LockedError(
                f"another zkmigrate process on this machine works on {run_dir.name}{who}. Next: zkmigrate "
                "status, or wait until that process ends; Ctrl-C at its terminal stops it, and zkmigrate "
                "resume then continues the run"
            ) from None
        try:
            place = process.terminal(os.environ)
            made = process.Process(os.getpid(), verb, process.user(), place, round(time.time(), 3))
            self._said = process.announce(run_dir, made)
        except BaseException:
            os.close(self._fd)
            raise

    def leave(self) -> None:
        """Remove the record of the process that works on the run.

        This process keeps the lock until ``close``.
        """
        if self._said >= 0:
            (self._run_dir / process.NAME).unlink(missing_ok=True)
            os.close(self._said)
            self._said = -1

    def close(self) -> None:
        self.leave()
        os.close(self._fd)


class HostLock:
    """The lock on the witnesses, taken when the first step needs it and kept by heartbeats.

    - owner: ``user@machine``.
    - nonce: makes this process's lock operations unique.
    - before: stages that are walked forward without the lock, because zkm-host is not installed yet.
    - many: the plural noun for the witnesses.
    - least: returns the highest fencing number that hosts without the lock have seen; called when the lock is
      taken.
    """

    def __init__(
        self,
        hosts: tuple[str, ...],
        owner: str,
        ask: Ask,
        nonce: int,
        *,
        steal: bool = False,
        before: tuple[str, ...] = (),
        beat_s: float = BEAT_S,
        many: str = "hosts",
        least: Callable[[], int] = int,
    ) -> None:
        self._hosts, self._many, self._least = hosts, many, least
        self._owner = re.sub(r"[^A-Za-z0-9._-]", "-", owner)
        self._ask, self._nonce, self._steal = ask, nonce, steal
        self._before, self._beat_s = before, beat_s
        self._number = 0
        self._held: tuple[str, ...] = ()
        self._lost = ""
        self._over = threading.Event()
        self._beater: threading.Thread | None = None

    @property
    def hosts(self) -> tuple[str, ...]:
        return self._hosts

    @property
    def held(self) -> tuple[str, ...]:
        """The witnesses that granted the lock."""
        return self._held

    @property
    def number(self) -> int:
        """The fencing number; 0 before the lock was first taken, or without witnesses."""
        return self._number

    @property
    def lost(self) -> bool:
        """Whether a host answered that another operator has the lock now."""
        return bool(self._lost)

    def fencing(self, stage: str, way: Way) -> int:
        """Return the fencing number for a step of ``stage``; 0 while only the local lock exists.

        Raises LockedError if the lock is lost or another operator holds it, and HostError without a majority.
        """
        if self._lost:
            raise LockedError(
                f"{self._lost}. Next: zkmigrate status; or pass --steal if that process is dead"
            )
        if self._hosts and not self._held and not (way is Way.FORWARD and stage in self._before):
            self._take(needed=stage not in self._before)
        return self._number

    def close(self) -> None:
        """Release the lock. On a host that does not answer, the lock expires with its TTL."""
        self._over.set()
        if self._beater is not None:
            self._beater.join(timeout=2 * self._beat_s)
        if self._held and not self._lost:
            self._all(self._held, ("lock", f"lock.release.{self._nonce}", "release"), self._number)
        self._held = ()

    def _take(self, needed: bool) -> None:
        """Take the lock on a majority of the witnesses.

        needed: whether to raise an error without a majority. It is False on the way back through ``install``,
        where some witnesses may already lack zkm-host; the lock is then taken on those that have it.
        """
        words: tuple[str, ...] = ("lock", f"lock.take.{self._nonce}", "take", self._owner, str(TTL_MS))
        if self._steal:
            words = ("lock", f"lock.steal.{self._nonce}", "steal", self._owner)
        # A witness answers a higher number than it receives, even after its own record is lost.
        answers = self._all(self._hosts, words, max(self._number, self._least()))
        given = {h: a for h, a in answers.items() if isinstance(a, Outcome) and a.rc == 0}
        refused = {h: a.output for h, a in answers.items() if isinstance(a, Outcome) and a.rc == FENCED_OFF}
        short = len(given) <= len(self._hosts) // 2
        if short and (needed or refused):
            self._all(tuple(given), ("lock", f"lock.release.{self._nonce}", "release"), _highest(given))
            raise self._refusal(answers, refused)
        if not given:
            return
        self._number = _highest(given)
        self._held = tuple(given)
        self._beat()
        self._beater = threading.Thread(target=self._keep, name="lock-beat", daemon=True)
        self._beater.start()

    def _refusal(self, answers: dict[str, Outcome | HostError], refused: dict[str, str]) -> Exception:
        if refused:
            host, said = next(iter(refused.items()))
            return LockedError(
                f"{host} keeps the lock for another process: {said.strip()}. Next: wait until that process "
                "ends; or pass --steal if it no longer runs"
            )
        said_all = "; ".join(
            f"{host}: {answer if isinstance(answer, HostError) else answer.output.strip()}"
            for host, answer in answers.items()
            if isinstance(answer, HostError) or answer.rc
        )
        return HostError(f"no majority of the {self._many} granted the lock: {said_all}. Nothing was changed")

    def _keep(self) -> None:
        while not self._over.wait(self._beat_s) and not self._lost:
            self._beat()

    def _beat(self) -> None:
        answers = self._all(self._held, ("lock", f"lock.beat.{self._nonce}", "beat"), self._number)
        for host, answer in answers.items():
            if isinstance(answer, Outcome) and answer.rc == FENCED_OFF:
                self._lost = f"the lock on {host} was taken over: {answer.output.strip()}"

    def _all(
        self, hosts: tuple[str, ...], words: tuple[str, ...], fencing: int
    ) -> dict[str, Outcome | HostError]:
        return together({host: partial(self._one, host, words, fencing) for host in hosts})

    def _one(self, host: str, words: tuple[str, ...], fencing: int) -> Outcome | HostError:
        try:
            return self._ask(host, words, fencing)
        except HostError as error:
            return error


def _highest(given: dict[str, Outcome]) -> int:
    """Return the highest ``fencing N`` that the hosts printed."""
    found = [re.search(r"^fencing (\d+)$", answer.output, re.MULTILINE) for answer in given.values()]
    return max((int(match[1]) for match in found if match), default=0)
