"""What a report holds, as frozen values. Times are seconds since the epoch, by :mod:`.timebase`.

``None`` as the end of anything: it had not ended by the last that is known.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from zkmigrate.model.change import Change
from zkmigrate.model.finding import Finding


@dataclass(frozen=True)
class Span:
    """A stretch in one state; ``note`` is for the reader who asks."""

    start: float
    end: float | None
    state: str
    note: str = ""


@dataclass(frozen=True)
class Lane:
    """One row of the timeline. kind: ``dest``, ``broker``, ``ensemble``."""

    name: str
    kind: str
    spans: tuple[Span, ...]


@dataclass(frozen=True)
class Op:
    """One change that was sent. ended, status: None and ``open`` while no outcome is journaled."""

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
    """One walk of a step. outcome: ``done``, ``blocked``, or ``left`` where the journal stops inside it.

    seconds: as journaled, by the monotonic clock. tries: how often it was refused for the same reasons in a
    row.
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
    """Something that was decided. kind: ``begin``, ``consent`` (go or skip to a stage's question), ``answer``
    (any other to a question), ``hold``, ``turn``, ``rehearsed`` (a
    rehearsal's own turns), ``alarm``, ``hook`` (one that could stop the run, or failed), ``lost``, ``end``.

    by: who or what decided, empty where the journal does not say. findings: those in doubt when a question
    was answered.
    """

    at: float
    kind: str
    where: str
    what: str
    answer: str
    by: str = ""
    findings: tuple[Finding, ...] = ()


@dataclass(frozen=True)
class Part:
    """A step's share of a window."""

    step: str
    back: bool
    start: float
    end: float | None

    @property
    def seconds(self) -> float | None:
        return None if self.end is None else self.end - self.start


@dataclass(frozen=True)
class Window:
    """From the first FENCE sent to the open door. outcome: ``opened``, ``turned back``, ``rehearsed``,
    ``not over``. deadline: when the way back had to start at the latest, as the run counted it. gone_s: how
    long no process of the tool was at work in it. held_s: how long somebody held it."""

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
    """A client went so long without an answer; ``during``: steps that it overlaps."""

    client: str
    start: float
    end: float | None
    why: str
    during: tuple[str, ...]
    seconds: float


@dataclass(frozen=True)
class Latency:
    """Answers of one broker to the canary, milliseconds. longest: the longest time between two answers."""

    broker: str
    asked: int
    answered: int
    p50_ms: float | None
    p99_ms: float | None
    max_ms: float | None
    longest: Gap | None


@dataclass(frozen=True)
class Beat:
    """One question to a broker: when, and how long it took, None where no answer came."""

    at: float
    broker: str
    ms: float | None
    why: str = ""


@dataclass(frozen=True)
class Lag:
    """How many transactions a dest host was behind source's leader; None across an epoch's end."""

    at: float
    host: str
    behind: int | None


@dataclass(frozen=True)
class Acks:
    """Acknowledgements of a real client: how many, the longest gaps first, the times.

    took: (when acknowledged, milliseconds since it was sent), where the client recorded both, in order.
    """

    client: str
    count: int
    gaps: tuple[Gap, ...]
    times: tuple[float, ...]
    took: tuple[tuple[float, float], ...] = ()


@dataclass(frozen=True)
class Produced:
    """One partition's records of the produce canary.

    partition: TOPIC-NUMBER. by: broker → how many it acknowledged. took: (when acknowledged, milliseconds
    since it was first sent), in order. gaps: the longest times without an acknowledgement while records were
    sent.     roll, window: the longest that overlaps a walk of the roll, or the window, at full length.
    """

    partition: str
    by: Mapping[str, int]
    took: tuple[tuple[float, float], ...]
    gaps: tuple[Gap, ...]
    roll: Gap | None
    window: Gap | None


@dataclass(frozen=True)
class Sync:
    """The cluster as a step saw it."""

    at: float
    controller: int
    registered: int
    partitions: int
    under: int
    offline: int


@dataclass(frozen=True)
class Proof:
    """The figures of the last proof, as journaled: zxids as integers, None where not recorded."""

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
    """The journal's hash chain. state: ``intact``, ``torn`` (a last line cut off) or ``damaged``.

    lines: that are intact. head: SHA-256 of the last of them. file: SHA-256 of the whole file.
    """

    state: str
    lines: int
    head: str
    file: str
    why: str = ""


@dataclass(frozen=True)
class Process:
    """One call of the tool: what it was, and how it ended; ``ended`` None for one that was killed."""

    start: float
    ended: float | None
    way: str
    code: int | None
    message: str


@dataclass(frozen=True)
class Report:
    """Everything that a report tells.

    silences: every time that a broker left a question unanswered, from its last answer to its next. state:
    ``complete``, ``back`` (at the beginning), ``turned`` (back at the start of a stage), ``open`` or
    ``damaged``. headline: the same as one sentence. remarks: what the reader must know about the material.
    left: what is still to be done, ready to read.
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
