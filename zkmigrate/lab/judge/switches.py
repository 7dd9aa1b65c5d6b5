"""Judge the records of clients that were switched between clusters.

All functions are pure.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence

from zkmigrate.lab.judge.claims import Claim, explain, truth
from zkmigrate.lab.judge.clients import FLAWS, Row
from zkmigrate.lab.load.json_lines import Recording
from zkmigrate.runbook.model.finding import Held

NEVER = ("failed", *FLAWS, "again")
"""The names of the figures that must be 0. ``again``: a record was delivered twice to one group."""
_GAPS = {"longest_ack_gap_s": "produce_gap_s", "longest_delivery_gap_s": "consume_gap_s"}
_SOURCE = "NAME-producer.jsonl, NAME-consumer.jsonl, log.json"


def client_claims(rows: Sequence[Row]) -> Iterator[Claim]:
    """Yield the claims acked, clients_in_order, the two longest gaps, and one claim for each of NEVER."""
    acked = {row.client: row.figures.acked for row in rows}
    yield Claim(
        "acked", sum(acked.values()), truth(all(acked.values()), []), "more than 0 for each client", _SOURCE
    )
    for name in NEVER:
        values = {row.client: getattr(row.figures, name) for row in rows}
        known = [value for value in values.values() if value is not None]
        unknown = [client for client, value in values.items() if value is None]
        bad = {client: value for client, value in values.items() if value}
        held = truth(not bad, unknown, bad_is_certain=bool(bad))
        total = None if unknown else sum(known)
        yield Claim(
            name, total, held, "0", _SOURCE, explain(*(f"{c}: {v}" for c, v in bad.items()), *unknown)
        )
    ended = [f"{row.client}: {row.why}" for row in rows if row.held is not Held.YES]
    yield Claim(
        "clients_in_order", len(rows) - len(ended), truth(bool(rows) and not ended, []), "all", _SOURCE,
        explain(*ended),
    )  # fmt: skip
    for name, figure in _GAPS.items():
        gaps = {row.client: getattr(row.figures, figure) for row in rows}
        lacking = [client for client, gap in gaps.items() if gap is None]
        yield Claim(name, gaps, truth(True, lacking), "a figure", _SOURCE, explain(*lacking))


def parts_claim(
    recordings: Mapping[str, Recording], event: Mapping[str, str], switches: Sequence[tuple[int, int]]
) -> Claim:
    """Return the claim ``at_work``: each program did something before, between and after the switches.

    recordings: by program, NAME-ROLE. event: for each role, the event that shows work. switches: the begin
    and end of each switch, in ns of CLOCK_MONOTONIC. The claim's value is, for each period, the smallest
    number of events of any program.
    """
    edges = [edge for switch in switches for edge in switch]
    counts: dict[str, list[int]] = {}
    for name, recording in recordings.items():
        seen = [0] * (len(edges) + 1)
        for one in recording.of(event[name.rpartition("-")[2]]):
            seen[bisect_right(edges, one["mono_ns"])] += 1
        counts[name] = seen[::2]
    idle = [f"{name}: {found}" for name, found in counts.items() if not all(found)]
    least = [min(found) for found in zip(*counts.values(), strict=True)]
    needed = f"at least one event of each program in each of {len(switches) + 1} periods around the switches"
    return Claim("at_work", least, truth(bool(counts) and not idle, []), needed, _SOURCE, explain(*idle))
