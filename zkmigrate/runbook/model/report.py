"""Define the content of a report; :class:`Reporting` adds the parts that are specific to one runbook.

Times are seconds since the epoch. An end of None means that there was no end until the last known time.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from itertools import pairwise
from typing import Any, TypeAlias

from zkmigrate.runbook.model.change import Change
from zkmigrate.runbook.model.finding import Finding

Rows: TypeAlias = Sequence[tuple[float, Mapping[str, Any]]]
"""Samples with their times, in order."""

Spans: TypeAlias = Sequence[tuple[float, float]]


@dataclass(frozen=True)
class Span:
    """A stretch of time in one state. note: an explanation shown on demand."""

    start: float
    end: float | None
    state: str
    note: str = ""


@dataclass(frozen=True)
class Lane:
    """One row of the timeline. kind: the noun for such a row."""

    name: str
    kind: str
    spans: tuple[Span, ...]


@dataclass(frozen=True)
class Op:
    """One change that was sent.

    ended, status: None and ``open`` while no outcome is journaled.
    """

    id: str
    step: str
    target: str
    back: bool
    leg: int
    change: Change
    sent: float
    ended: float | None
    status: str
    output: str


@dataclass(frozen=True)
class Visit:
    """One walk of a step.

    seconds: the journaled duration, by the monotonic clock. outcome: ``done``, ``blocked``, or ``left`` if
    the journal stops inside the walk. tries: how many times in a row the step was blocked for the same
    reasons.
    """

    step: str
    back: bool
    start: float
    end: float | None
    seconds: float | None
    outcome: str
    findings: tuple[Finding, ...]
    ops: tuple[Op, ...]
    tries: int = 1


@dataclass(frozen=True)
class Decision:
    """One decision during the run.

    kind: ``begin``, ``consent`` (go or skip to a stage's question), ``answer`` (any other answer), ``hold``,
    ``turn``, ``rehearsed`` (a rehearsal's own turns), ``alarm``, ``hook`` (one that could stop the run, or
    failed), ``lost``, ``end``. by: the person or program that decided, empty if the journal does not say.
    findings: those in doubt when a question was answered.
    """

    at: float
    kind: str
    where: str
    what: str
    answer: str
    by: str = ""
    findings: tuple[Finding, ...] = ()


@dataclass(frozen=True)
class Story:
    """The content of a journal.

    hosts: host names by kind, as the run began with them. records: step → the time and content of its last
    record.
    """

    run: str
    visits: tuple[Visit, ...]
    ops: tuple[Op, ...]
    decisions: tuple[Decision, ...]
    hosts: Mapping[str, tuple[str, ...]]
    records: Mapping[str, tuple[float, Mapping[str, Any]]]
    last: float


@dataclass(frozen=True)
class Part:
    """The part of a window that was spent in one step."""

    step: str
    back: bool
    start: float
    end: float | None

    @property
    def name(self) -> str:
        return f"{self.step}{' back' if self.back else ''}"

    @property
    def seconds(self) -> float | None:
        return None if self.end is None else self.end - self.start


@dataclass(frozen=True)
class Window:
    """The time from the first FENCE sent until clients can connect again.

    outcome: ``opened``, ``turned back``, ``rehearsed`` or ``not over``. deadline: when the way back had to
    start, as the run calculated it. gone_s: seconds in which no process of the tool was working. held_s:
    seconds in which the run was held.
    """

    stage: str
    rehearsal: bool
    start: float
    end: float | None
    outcome: str
    parts: tuple[Part, ...]
    deadline: float | None
    opened_by: Mapping[str, str]
    gone_s: float = 0.0
    held_s: float = 0.0

    @property
    def seconds(self) -> float | None:
        return None if self.end is None else self.end - self.start


@dataclass(frozen=True)
class Gap:
    """A time in which a client got no answer.

    during: the steps that it overlaps.
    """

    client: str
    start: float
    end: float | None
    why: str
    during: tuple[str, ...]
    seconds: float


@dataclass(frozen=True)
class Latency:
    """One broker's answers to the canary, in milliseconds.

    longest: the longest time between two answers.
    """

    broker: str
    asked: int
    answered: int
    p50_ms: float | None
    p99_ms: float | None
    max_ms: float | None
    longest: Gap | None


@dataclass(frozen=True)
class Beat:
    """One question to a broker. ms: the time until the answer in milliseconds, None without an answer."""

    at: float
    broker: str
    ms: float | None
    why: str = ""


@dataclass(frozen=True)
class Lag:
    """The number of transactions that a dest host was behind source's leader.

    behind: None if the host and the leader are in different epochs.
    """

    at: float
    host: str
    behind: int | None


@dataclass(frozen=True)
class Curve:
    """One figure over time.

    plot: the name of the figure with its unit; curves of one plot share a scale. name: what the curve is
    about, such as a broker. points: (time, value) in order; values are 0 or more.
    """

    plot: str
    name: str
    points: tuple[tuple[float, float], ...]


@dataclass(frozen=True)
class Acks:
    """The acknowledgements that a real client recorded.

    count: their number. gaps: the gaps between them, longest first. times: the time of each. took: (time of
    acknowledgement, milliseconds since sent) in order, if the client recorded both.
    """

    client: str
    count: int
    gaps: tuple[Gap, ...]
    times: tuple[float, ...]
    took: tuple[tuple[float, float], ...] = ()


@dataclass(frozen=True)
class Produced:
    """One partition's records of the produce canary.

    - partition: TOPIC-NUMBER.
    - by: broker → the number of records it acknowledged.
    - took: (time of acknowledgement, milliseconds since first sent) in order.
    - gaps: the longest times without an acknowledgement while records were sent.
    - roll, window: the longest gap in the paced stage and in the window, at full length.
    """

    partition: str
    by: Mapping[str, int]
    took: tuple[tuple[float, float], ...]
    gaps: tuple[Gap, ...]
    roll: Gap | None
    window: Gap | None


@dataclass(frozen=True)
class Sync:
    """A step's observation of the cluster."""

    at: float
    controller: int
    registered: int
    partitions: int
    under: int
    offline: int


@dataclass(frozen=True)
class Proof:
    """The figures of the last proof, as journaled.

    Zxids are integers, None if not recorded.
    """

    at: float | None
    stage: str
    z: int | None
    needed: int | None
    tails: Mapping[str, int]
    delta_after: int | None
    delta_last: int | None
    delta_records: int | None


@dataclass(frozen=True)
class Chain:
    """The state of the journal's hash chain.

    state: ``intact``, ``torn`` (the last line is cut off) or ``damaged``. lines: the number of intact lines.
    head: the checksum of the last intact line. file: SHA-256 of the whole file.
    """

    state: str
    lines: int
    head: str
    file: str
    why: str = ""


@dataclass(frozen=True)
class Process:
    """One call of the tool and how it ended. ended: None for a process that was killed."""

    start: float
    ended: float | None
    way: str
    code: int | None
    message: str


@dataclass(frozen=True)
class Table:
    """A section's table.

    intro: a sentence before it. wide: numbers of the columns with long text.
    """

    id: str
    title: str
    head: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    intro: str = ""
    wide: tuple[int, ...] = ()


@dataclass(frozen=True)
class Report:
    """The content of a report.

    - state: ``complete``, ``back`` (at the beginning), ``turned`` (back at the start of a stage), ``open`` or
      ``damaged``. headline: the state as one sentence.
    - silences: times from a broker's last answer before an unanswered question to its next answer.
    - left: the remaining work, as text for the reader.
    - remarks: notes for the reader about gaps in the journal and the samples.
    - shown: how the report is shown.
    """

    run: str
    name: str
    playbook: str
    state: str
    headline: str
    start: float
    end: float
    chain: Chain
    inventory_digest: str
    plan_digest: str
    plan_matches: str
    processes: tuple[Process, ...]
    lanes: tuple[Lane, ...]
    visits: tuple[Visit, ...]
    decisions: tuple[Decision, ...]
    windows: tuple[Window, ...]
    beats: tuple[Beat, ...]
    beat_every_s: float | None
    latencies: tuple[Latency, ...]
    silences: tuple[Gap, ...]
    acks: tuple[Acks, ...]
    produced: tuple[Produced, ...]
    lags: tuple[Lag, ...]
    syncs: tuple[Sync, ...]
    proof: Proof | None
    way_back: str
    left: tuple[str, ...]
    remarks: tuple[str, ...]
    active: tuple[tuple[float, float], ...]
    shown: Shown
    curves: tuple[Curve, ...] = ()


@dataclass(frozen=True)
class Sampled:
    """The part of a report that comes from its samples; the fields match those of :class:`Report`.

    felt: tables that need samples only, shown before those of ``SampleReport.felt``.
    """

    beats: tuple[Beat, ...] = ()
    beat_every_s: float | None = None
    latencies: tuple[Latency, ...] = ()
    silences: tuple[Gap, ...] = ()
    produced: tuple[Produced, ...] = ()
    syncs: tuple[Sync, ...] = ()
    felt: tuple[Table, ...] = ()


@dataclass(frozen=True)
class SampleReport:
    """The presentation of one system's samples in a report: pure functions, and the labels of its plots.

    - sampled: computes the report's part from the samples, the walks of steps, the window that counts and the
      paced stage.
    - figures: (name, value, small print) for the head of the report.
    - felt, sections: tables before and after those of real clients.
    - answering: the noun for the sampled servers. canary: the name of the canary.
    """

    sampled: Callable[[Rows, Sequence[Visit], Window | None, str], Sampled] = lambda *_: Sampled()
    figures: Callable[[Report], tuple[tuple[str, str, str], ...]] = lambda _: ()
    felt: tuple[Callable[[Report], Table], ...] = ()
    sections: tuple[Callable[[Report], Table], ...] = ()
    answering: str = ""
    canary: str = ""


@dataclass(frozen=True)
class Reporting:
    """The runbook's own part of a report: pure functions, and the labels of its pictures.

    - rows: the rows of the timeline, from the story, the samples, the run's first moment, the times in which
      no process was working, and whether the journal is damaged.
    - colours: the colour of each state of a row. legends: name and states of each list of colours below the
      timeline; the first is also shown below each window.
    - opened: the kind of the rows that a window closes, and the state in which such a host lets clients in
      permanently.
    - caption: the text below the timeline. behind: heading, name and caption of the picture of lags.
    - lags / proof: return the :class:`Lag` and :class:`Proof` values. sections: the runbook's own tables,
      computed from the report.
    - curves / curved: returns the :class:`Curve` values; heading and caption of their picture.
    - unsampled: what the report lacks without samples. afterwards: the remaining work after a complete run.
    """

    rows: Callable[[Story, Rows, float, Spans, bool], tuple[Lane, ...]] = lambda *_: ()
    colours: Mapping[str, str] = field(default_factory=dict, hash=False)
    legends: tuple[tuple[str, tuple[str, ...]], ...] = ()
    opened: tuple[str, str] = ("", "")
    caption: str = "Grey stretch: the tool did not run."
    lags: Callable[[Story, Rows], tuple[Lag, ...]] = lambda *_: ()
    proof: Callable[[Story], Proof | None] = lambda _: None
    behind: tuple[str, str, str] = ("", "", "")
    curves: Callable[[Rows], tuple[Curve, ...]] = lambda _: ()
    curved: tuple[str, str] = ("", "")
    sections: tuple[Callable[[Report], Table], ...] = ()
    unsampled: str = ""
    afterwards: str = "nothing"


@dataclass(frozen=True)
class Shown:
    """The presentation of a report.

    - begins / opens: the names of the steps between which clients are refused, empty without a window.
    - paced: the stage whose progress is shown.
    - samples: how the samples are shown.
    - felt, sections: the tables of samples before those of real clients; the tables after them, including the
      runbook's own.
    """

    reporting: Reporting = field(default_factory=Reporting)
    begins: str = ""
    opens: str = ""
    paced: str = ""
    samples: SampleReport = field(default_factory=SampleReport)
    felt: tuple[Table, ...] = ()
    sections: tuple[Table, ...] = ()


def move_of(windows: Sequence[Window]) -> Window | None:
    """Return the last window that was not a rehearsal, or None without such a window."""
    return next((window for window in reversed(windows) if not window.rehearsal), None)


def day(at: float) -> str:
    """Return date and time of day in UTC."""
    return datetime.fromtimestamp(round(at), UTC).strftime("%Y-%m-%d %H:%M:%S UTC")


def clock(at: float, step: float = 1.0) -> str:
    """Return the time of day in UTC, with the precision of the step (seconds)."""
    moment = datetime.fromtimestamp(round(at, 1) if step < 1 else round(at), UTC)
    if step >= 86400:
        return moment.strftime("%d %b")
    if step < 1:
        return moment.strftime("%H:%M:%S.") + str(moment.microsecond // 100000)
    return moment.strftime("%H:%M:%S" if step < 60 else "%H:%M")


def length(seconds: float | None, absent: str = "-") -> str:
    """Return a duration as text, or ``absent`` for None."""
    if seconds is None:
        return absent
    if seconds < 1:
        return f"{seconds * 1000:.0f} ms"
    if seconds < 120:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    if minutes < 120:
        return f"{minutes} min {rest} s"
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes} min" if hours < 48 else f"{hours // 24} d {hours % 24} h"


def counted(number: int, what: str) -> str:
    """Return a number with the noun it counts, in the singular or plural."""
    return f"{number:,} {what}" if number == 1 else f"{number:,} {what}s"


_UNITS = ("B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB")


def size(count: float) -> str:
    """Return a number of bytes as text, such as ``1.5 GiB``."""
    sign, left = "-" if count < 0 else "", float(abs(count))
    for unit in _UNITS:
        if left < 1024 or unit == _UNITS[-1]:
            break
        left /= 1024
    return f"{sign}{left:.0f} B" if unit == "B" else f"{sign}{left:.1f} {unit}"


def of_kind(rows: Rows, kind: str) -> Rows:
    """Return the samples of one kind."""
    return [(at, row) for at, row in rows if row.get("kind") == kind]


def spacing_s(rows: Rows) -> float | None:
    """Return the median time between two samples in seconds, or None for fewer than two."""
    steps = sorted(b - a for (a, _), (b, _) in pairwise(rows))
    return steps[len(steps) // 2] if steps else None
