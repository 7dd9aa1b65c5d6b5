"""The verb run, which creates the topics on target and copies records until it is stopped."""

from __future__ import annotations

import gc
import json
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace

from zkmigrate.errors import LockedError, UsageError, ZkmigrateError
from zkmigrate.json_stamp import stamped
from zkmigrate.runbook.engine.clock import Interrupt
from zkmigrate.topics.mirror.clients.cluster import Cluster
from zkmigrate.topics.mirror.clients.codecs import KafkaCodecs
from zkmigrate.topics.mirror.clients.copier import Copier
from zkmigrate.topics.mirror.clients.follow import SOON_S, Finding, Follower, Told
from zkmigrate.topics.mirror.clients.partition import Partition
from zkmigrate.topics.mirror.clients.permitted import missing_rights
from zkmigrate.topics.mirror.clients.survey import Mirrored, fenced_off, topics
from zkmigrate.topics.mirror.clients.topics import New, RefusedError, grow, make
from zkmigrate.topics.mirror.rules.commits import Committed
from zkmigrate.topics.mirror.rules.follow import Grow
from zkmigrate.topics.mirror.rules.needed import not_copied
from zkmigrate.topics.mirror.rules.share import WHOLE, Share
from zkmigrate.topics.mirror.rules.topic import deletes
from zkmigrate.topics.mirror.verbs.follow import told
from zkmigrate.topics.mirror.verbs.request import Request, both

EVERY_S = 10.0
"""Seconds between two lines that report the progress."""
_FAILED, _UNREAD, _INTERRUPTED = 8, 11, 130
_MADE_S = 30.0
GC_THRESHOLD = 5_000
"""The number of new objects between two garbage collections.

kafka-python (3.0.12) does not close the sockets of refused connections. About 200 such sockets at most stay
open until the next collection.
"""


class Printer:
    """A printer of the copier's events: lines of text, or JSON events with ``as_json``."""

    def __init__(self, say: Callable[[str], None], *, as_json: bool) -> None:
        self._say, self._as_json = say, as_json
        self._printed, self._bytes = time.monotonic(), 0
        self.partitions: Collection[Partition] = ()

    def line(self, event: str, text: str, **body: object) -> None:
        at = round(time.time(), 3)
        self._say(json.dumps(stamped({"at": at, "event": event, **body}, at)) if self._as_json else text)

    def stopped(self, p: Partition) -> None:
        """Print that a partition has failed, or that this copier may no longer write it."""
        topic, number = p.part
        event, word = ("PartitionTaken", "TAKEN") if p.taken else ("PartitionFailed", "FAILED")
        why = p.failed or p.why
        self.line(event, f"{word} {topic}-{number}: {why}", topic=topic, partition=number, why=why)

    def followed(self, what: Told) -> None:
        """Print a change of anything other than records, or a finding.

        Commits, which are repeated at every comparison, are printed only as JSON events.
        """
        event, text, body = told(what)
        if self._as_json or not isinstance(what, Committed):
            self.line(event, text, **body)

    def progress(self, partitions: Collection[Partition], findings: Mapping[str, str]) -> None:
        """Print the progress, at most every ``EVERY_S`` seconds.

        findings: reasons by subject.
        """
        now = time.monotonic()
        if now - self._printed < EVERY_S:
            return
        copied = sum(p.bytes for p in partitions)
        rate = (copied - self._bytes) / (now - self._printed)
        self._printed, self._bytes = now, copied
        waits = {f"{p.part[0]}-{p.part[1]}": p.why for p in partitions if p.why and p.left}
        text = f"lag: {_lag(partitions)} offsets, {rate / 1e6:.1f} MB/s, waiting: {len(waits)}"
        first = next((f" ({name}: {why})" for name, why in waits.items()), "")
        text += f"{first}, findings: {len(findings)}"
        body = {"waiting": waits, "findings": dict(findings)}
        self.line("Progress", text, lag=_lag(partitions), bytes_s=round(rate), **body)

    @contextmanager
    def reporting_errors(self) -> Iterator[None]:
        """Print a JSON event when an error ends the run. Without JSON, the caller prints the error."""
        try:
            yield
        except ZkmigrateError as error:
            if self._as_json:
                self.ended(self.partitions, (), error.exit_code, str(error))
            raise

    def ended(
        self, partitions: Collection[Partition], refused: Sequence[str], code: int, message: str = ""
    ) -> None:
        """Print the result of the run.

        refused: the topics that could not be mirrored. code: the exit code. message: the error that ended the
        run, or an empty text.
        """
        failed = [f"{p.part[0]}-{p.part[1]}" for p in partitions if p.failed]
        text = f"ended, lag: {_lag(partitions)} offsets, failed: {', '.join(failed) or 'none'}"
        taken = [f"{p.part[0]}-{p.part[1]}" for p in partitions if p.taken]
        text += f", refused: {', '.join(refused)}" if refused else ""
        waits = {f"{p.part[0]}-{p.part[1]}": p.why for p in partitions if p.left and p.position is None}
        unknown = "; ".join(f"{name}: {why}" for name, why in waits.items())
        text += f", lag not known: {unknown}" if waits else ""
        body = {
            "lag": _lag(partitions),
            "failed": failed,
            "taken": taken,
            "refused": list(refused),
            "waiting": waits,
        }
        self.line("RunEnded", text, code=code, message=message or text, **body)


def _lag(partitions: Collection[Partition]) -> int:
    """Return the number of offsets that target does not have yet, as far as source has reported."""
    return sum(max(0, p.stable - p.position) for p in partitions if p.position is not None and not p.taken)


def run(
    request: Request,
    say: Callable[[str], None],
    hint: Callable[[str], None],
    *,
    once: bool,
    refresh_s: float,
    rate: float = 0.0,
    share: Share = WHOLE,
) -> int:
    """Copy until Ctrl-C; with ``once``, only up to where source's logs end at the start.

    say, hint: functions that print a line of output, and a line for the operator. refresh_s: the most seconds
    until a change of partitions, settings, group offsets or ACLs on source is on target. rate: the highest
    rate in bytes per second; 0 for no limit. share: the partitions to copy, if there are several copiers.
    Topics that source does not lead are left out.

    Returns an exit code: 0 if everything was copied; 8 if a partition failed or a topic was refused; 11 if
    source has records that cannot be read yet; 130 after Ctrl-C. Raises UsageError. Raises LockedError if
    another copier took over or a topic was left out.
    """
    # Thousands of batches wait, none of them in a reference cycle, so frequent collections are useless.
    gc.set_threshold(GC_THRESHOLD)
    stop = Interrupt()
    tell = Printer(say, as_json=request.as_json)
    hinted = stop.answered(lambda: hint("ending; the next run continues from here"))
    with tell.reporting_errors(), stop.listening(), hinted:
        with both(request) as (here, there):
            fenced = fenced_off(here, there, request.topics)
            for topic, why in fenced.items():
                tell.line("TopicFenced", f"FENCED {topic}: {why}", topic=topic, why=why)
            names = [name for name in request.topics if name not in fenced]
            if not names:
                raise LockedError(_fenced_message(fenced))
            found = _refuse_without_rights(here, there, topics(here, there, names), request.groups, tell)
            mirrored, refused = _create_topics(there, found, tell)
            names = [one.topic for one in mirrored]
            parts = share.of((one.topic, n) for one in mirrored for n in range(one.partitions))
            if not parts:
                raise UsageError(f"share {share} has no partition of these topics. Next: run fewer copiers")
            clears = {one.topic for one in mirrored if deletes(one.values)}
            copier = Copier(here, there, parts, clears, KafkaCodecs(), tell.stopped, rate)
            tell.partitions = copier.partitions.values()
            follower = Follower(here, there, names, request.groups, clears, refresh_s, tell.followed, share)

            def tick() -> None:
                follower.tick(copier)
                tell.progress(tell.partitions, follower.findings)

            copier.copy(lambda: stop.wanted, tick, once=once)
            if once:
                _finish(follower, copier, stop)
        interrupted = stop.wanted
        failed = any(p.failed for p in tell.partitions)
        if fenced and not (failed or refused or interrupted):
            raise LockedError(_fenced_message(fenced))
        unread = bool(once and follower.unread)
        code = _FAILED if failed or refused else _INTERRUPTED if interrupted else _UNREAD if unread else 0
        tell.ended(tell.partitions, refused, code)
        return code


def _refuse_without_rights(
    here: Cluster, there: Cluster, mirrored: Iterable[Mirrored], groups: Collection[str], tell: Printer
) -> list[Mirrored]:
    """Report the rights that this account lacks, and refuse the topics that cannot be copied without them."""
    found = list(mirrored)
    lacking = missing_rights(here, there, "mirror", {one.topic: one.partitions for one in found}, groups)
    for one in lacking:
        tell.followed(Finding("missing right", f"{one.words}. Next: {one.command}"))
    why = not_copied(lacking)
    return [replace(one, refused=one.refused or why.get(one.topic, "")) for one in found]


def _create_topics(
    there: Cluster, mirrored: Iterable[Mirrored], tell: Printer
) -> tuple[list[Mirrored], list[str]]:
    """Create missing topics and partitions on target, and wait until all partitions have leaders.

    The wait lasts at most ``_MADE_S`` seconds. Returns the topics that target has now, and the names of the
    topics that were refused. Raises UsageError if all topics were refused.
    """
    ready, refused = list[Mirrored](), dict[str, str]()
    for one in mirrored:
        why = one.refused
        try:
            if not why:
                _create(there, one, tell)
        except RefusedError as error:
            why = str(error)
        if why:
            refused[one.topic] = why
            tell.line("TopicRefused", f"REFUSED {one.topic}: {why}", topic=one.topic, why=why)
        else:
            ready.append(one)
    if not ready:
        raise UsageError("; ".join(f"{topic}: {why}" for topic, why in refused.items()))
    needed = {one.topic: one.partitions for one in ready if one.found < one.partitions}
    end = time.monotonic() + _MADE_S
    while needed and time.monotonic() < end:
        led = there.leaders(needed)
        for topic, own in led.items():
            if len(own) >= needed[topic] and -1 not in own.values():
                del needed[topic]
        if needed:
            time.sleep(0.1)
    return ready, list(refused)


def _fenced_message(fenced: Mapping[str, str]) -> str:
    return f"{'; '.join(fenced.values())}. Next: look at zkmigrate mirror status"


def _create(there: Cluster, one: Mirrored, tell: Printer) -> None:
    """Create a topic on target, or the partitions that target's topic lacks.

    Raises RefusedError.
    """
    growth = Grow(one.topic, one.partitions)
    if one.found == one.partitions:
        return
    if one.exists:
        grow(there, growth)
        tell.followed(growth)
    else:
        make(there, New(one.topic, one.partitions, one.replicas, one.settings))
        tell.line("TopicMade", f"created topic {one.topic}, partitions: {one.partitions}", topic=one.topic)


def _finish(follower: Follower, copier: Copier, stop: Interrupt) -> None:
    """Copy the last group offsets and changes, after the last record.

    This takes at most ``_MADE_S`` seconds.
    """
    end = time.monotonic() + _MADE_S
    while not stop.wanted and follower.look(copier) and time.monotonic() < end:
        time.sleep(SOON_S)
