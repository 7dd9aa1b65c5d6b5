"""The parts of the report that only a move has: its rows and colours, how far dest lags, and the proof."""

from __future__ import annotations

from typing import Any

from zkmigrate.move import host_states
from zkmigrate.move.facts.records import Drained, Proved, Stopped
from zkmigrate.runbook.model.finding import Held
from zkmigrate.runbook.model.report import (
    Lag,
    Proof,
    Report,
    Reporting,
    Rows,
    Story,
    Table,
    clock,
    counted,
    of_kind,
)
from zkmigrate.runbook.model.step_record import recorded
from zkmigrate.zookeeper.data.errors import ZkDataError
from zkmigrate.zookeeper.data.zxid import epoch, format_zxid, parse_zxid

_HELD = {Held.YES: "passed", Held.NO: "FAILED", Held.UNKNOWN: "not known"}
_COLOURS: dict[str, str] = {
    host_states.JOINING: "#d9d9d9", host_states.OBSERVING: "#56b4e9", host_states.FENCED: "#f0e442",
    host_states.CUT: "#e69f00",
    host_states.STOPPED: "#a6a6a6", host_states.STARTED: "#cc79a7", host_states.OPEN: "#2bb58b",
    host_states.OLD: "#56b4e9", host_states.RESTARTING: "#f0e442", host_states.NEW: "#2bb58b",
    host_states.SERVES: "#2bb58b", host_states.SOME: "#f0e442", host_states.SHUT: "#e69f00",
    host_states.DOWN: "#ee7733",
    host_states.UNKNOWN: "#d9d9d9",
}  # fmt: skip


def lags(story: Story, rows: Rows) -> tuple[Lag, ...]:
    """Return how many transactions each dest host was behind source's leader, over time until PROVE.

    The zxids of the host and of the leader are read at about the same time. A host that appears to be ahead
    was read a moment later, so its lag is given as 0.
    """
    asked, proven, out = of_kind(rows, "ensembles"), proof(story), []
    until = proven.at if proven is not None and proven.stage == "cutover" else None
    source, dest = host_states.source_hosts(story, asked), host_states.dest_hosts(story)
    for at, row in asked:
        servers = row.get("servers")
        if not isinstance(servers, dict) or (until is not None and at > until):
            continue
        leads = [
            z for host in source if (z := _zxid_in(servers.get(host), ("leader", "standalone"))) is not None
        ]
        if len(leads) != 1:
            continue
        for host in dest:
            zxid = _zxid_in(servers.get(host), ("observer",))
            if zxid is not None:
                same = epoch(zxid) == epoch(leads[0])
                out.append(Lag(at, host, max(0, leads[0] - zxid) if same else None))
    return tuple(out)


def _zxid_in(sample: Any, modes: tuple[str, ...]) -> int | None:
    if not isinstance(sample, list) or len(sample) != 2 or sample[0] not in modes:
        return None
    try:
        return int(parse_zxid(sample[1])) if isinstance(sample[1], str) else None
    except ZkDataError:
        return None


def proof(story: Story) -> Proof | None:
    """Return the newest proof: that of the cut-over or, before the cut-over, that of the rehearsal."""
    for stage in ("cutover", "rehearse"):
        parts = {name: story.records.get(f"{stage}.{name}") for name in ("drain", "stop", "prove")}
        drain, stop, prove = parts["drain"], parts["stop"], parts["prove"]
        if drain is None:
            continue
        proved = recorded(Proved, prove[1], story.run) if prove is not None else None
        return Proof(
            at=prove[0] if prove is not None else None,
            stage=stage,
            z=recorded(Drained, drain[1], story.run).z,
            needed=proved.needed if proved is not None else None,
            tails=recorded(Stopped, stop[1], story.run).tails if stop is not None else {},
            delta_after=proved.delta.after if proved is not None else None,
            delta_last=proved.delta.last if proved is not None else None,
            delta_records=proved.delta.records if proved is not None else None,
        )
    return None


def _proof(report: Report) -> Table:
    p = report.proof
    if p is None:
        return Table("proof", "The proof", (), ())
    rows = [("Z, source's zxid after the drain", _zxid(p.z))]
    rows += [(f"last zxid on the disk of {host}", _zxid(zxid)) for host, zxid in p.tails.items()]
    rows.append(("needed: last zxid that changes the chroot", _zxid(p.needed)))
    if p.delta_records is not None:
        between = f"{_zxid(p.delta_after)} to {_zxid(p.delta_last)}"
        rows.append(("source's log beyond dest's", f"{counted(p.delta_records, 'transaction')}, {between}"))
    rows += _proven(report, p.stage)
    when = f" at {clock(p.at, 0.1)}" if p.at is not None else ": not reached"
    lag = [x.behind for x in report.lags if x.behind is not None]
    intro = (
        "Tail: each dest disk has the last transaction that touches the chroot. Delta: source's log has none "
        "that dest lacks. Digest: dest's znodes equal source's."
    )
    if lag:
        intro += f" Before the proof, dest was at most {counted(max(lag), 'transaction')} behind source."
    return Table("proof", f"The proof ({p.stage}){when}", ("what", "seen"), tuple(rows), intro, (1,))


def _proven(report: Report, stage: str) -> list[tuple[str, str]]:
    """Return a row for each proof of this stage: its name, and whether it held with what was seen.

    The findings come from each step's last visit on the way forward.
    """
    last = {v.step: v for v in report.visits if not v.back}
    rows = []
    for step, id, name in (
        (f"{stage}.prove", "prove.tail", "tail"),
        (f"{stage}.prove", "prove.delta", "delta"),
        (f"{stage}.survey", "survey.same-tree", "digest before the window"),
        ("verify.verify", "verify.same-tree", "digest of the cut, after OPEN"),
    ):
        found = [f for f in last[step].findings if f.id == id] if step in last else []
        for f in found:
            rows.append((f"{name}{f': {f.target}' if f.target else ''}", f"{_HELD[f.held]}: {f.seen}"))
    return rows


def _zxid(value: int | None) -> str:
    return "-" if value is None else format_zxid(value)


REPORTING = Reporting(
    rows=host_states.rows,
    colours=_COLOURS,
    legends=(
        ("dest", host_states.DEST_STATES),
        ("others", (*host_states.BROKER_STATES, *host_states.ENSEMBLE_STATES)),
    ),
    opened=("dest", host_states.OPEN),
    caption="Grey stretch: the tool did not run. Red line below a broker, and cross: no answer. Triangle: "
    "the controller changed. Gap in a client's row: no acknowledgement for 250 ms (canary: 600 ms) or more.",
    lags=lags,
    proof=proof,
    behind=(
        "Transactions behind source",
        "Transactions behind source's leader",
        "How far each dest host was behind source's leader, until the proof. A few transactions are normal "
        "while clients write.",
    ),
    sections=(_proof,),
    unsampled="no samples: this report lacks the brokers' answers, the lag and source's state",
    afterwards="watch source for clients that still connect; shut it down when none do",
)
