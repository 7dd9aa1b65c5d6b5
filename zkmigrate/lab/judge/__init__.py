"""Judge a run by its saved files.

``judge(load_history(directory))`` returns a Verdict of claims. A claim is *yes* only if its files are
complete and support it, *no* if they refute it, and *unknown* otherwise. A claim is unknown, for example, if
a file is missing or has no closing line, or if the consumer did not read to the high watermarks. Incomplete
last lines are counted; a file with such a line has no closing line, so no claim about it can be *yes*. Only
``load_history`` does input or output.
"""

from __future__ import annotations

from dataclasses import dataclass

from zkmigrate.lab.judge.claims import Claim, Verdict, truth
from zkmigrate.lab.judge.gaps import gaps_of, longest_by_step, longest_s
from zkmigrate.lab.judge.history import RunHistory, load_history
from zkmigrate.lab.judge.kafka import kafka_claims
from zkmigrate.lab.judge.latency import by_second
from zkmigrate.lab.judge.sessions import session_claims
from zkmigrate.lab.judge.spans import load_claim
from zkmigrate.lab.judge.zookeeper import raw_claims, tenant_claim

__all__ = ["Claim", "Policy", "RunHistory", "Verdict", "by_second", "judge", "load_history"]


@dataclass(frozen=True)
class Policy:
    """The limits and step names by which a run is judged.

    ack_gap_limit_s: the longest allowed time in seconds without an acknowledgement of the producer. If a
    broker stops, its leaders move within a second or two; a much longer gap means an election without
    ZooKeeper. tenant_gap_limit_s: the same limit for the other tenant. fence_step, open_step: the steps in
    ``run.json`` that begin and end the window.
    """

    ack_gap_limit_s: float = 10.0
    tenant_gap_limit_s: float = 3.0
    fence_step: str = "cutover.fence"
    open_step: str = "cutover.open"


def judge(history: RunHistory, policy: Policy = Policy()) -> Verdict:
    """Return the verdict on a run: all claims about the recordings of clients and the logs of servers."""
    claims = [
        *kafka_claims(history, policy.ack_gap_limit_s),
        *raw_claims(history, policy.fence_step),
        tenant_claim(history, policy.tenant_gap_limit_s),
        *session_claims(history),
        _gap_claim(history),
        load_claim(history, policy.fence_step, policy.open_step),
    ]
    torn = {name: recording.torn for name, recording in history.recordings.items() if recording.torn}
    return Verdict(tuple(claims), torn)


def _gap_claim(history: RunHistory) -> Claim:
    """Return the claim ``gaps_s``: each client's longest gap, for the whole run and for each step."""
    found = gaps_of(history)
    value = {
        client: {"run": longest_s(gaps), **longest_by_step(gaps, history.steps)}
        for client, gaps in found.items()
    }
    problems = [history.recording(kind).problem for kind in ("producer", "tenant", "raw")]
    problems += [] if history.steps else ["no steps in run.json"]
    held = truth(all(gaps["run"] is not None for gaps in value.values()), problems)
    source = "producer.jsonl, tenant.jsonl, raw.jsonl, run.json"
    return Claim("gaps_s", value, held, "figures", source, "; ".join(filter(None, problems)))
