"""Judge sessions, ephemerals and the controller epoch by comparing saved baselines.

There are three baselines:

- *before*: right before the cut-over stage.
- *open*: right after OPEN.
- *after*: twice the smallest session timeout later, when a session that was lost unnoticed has expired.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from zkmigrate.lab.judge.claims import Claim, explain, truth
from zkmigrate.lab.judge.history import BASELINES, Baseline, RunHistory

_SHOWN = 5
_SOURCE = "baseline-before.json, baseline-open.json, baseline-after.json"


def session_claims(history: RunHistory) -> Iterator[Claim]:
    """Yield the claims about sessions, ephemerals, the controller epoch and expiries in broker logs."""
    before = history.baseline("before")
    later = {name: history.baseline(name) for name in BASELINES[1:]}
    problems = [
        f"baseline {name}: {baseline.problem}"
        for name, baseline in {"before": before, **later}.items()
        if baseline.problem
    ]
    count = None if before.problem else len(before.sessions)
    held = truth(bool(before.sessions), [before.problem])
    yield Claim("sessions_before", count, held, "more than 0", "baseline-before.json", before.problem)

    log = broker_log_claim(history)
    gone = [
        f"{hex(session)} not in {name}"
        for name, baseline in later.items()
        if not baseline.problem
        for session in sorted(before.sessions)
        if session not in baseline.sessions
    ]
    kept = None if before.problem else len(_in_all(before, list(later.values())))
    nothing = [] if before.sessions or before.problem else ["no session to preserve"]
    held = truth(True, [*problems, *nothing], bad_is_certain=bool(gone))
    detail = explain(*gone[:_SHOWN], *problems, *nothing)
    yield Claim("sessions_preserved", kept, held, "all", _SOURCE, detail)
    yield log
    yield _ephemerals(before, later, problems)
    yield _controller_epoch(before, later, problems)


def _in_all(before: Baseline, later: list[Baseline]) -> set[int]:
    """Return the sessions of ``before`` that are in every readable later baseline."""
    kept = set(before.sessions)
    for baseline in later:
        if not baseline.problem:
            kept &= set(baseline.sessions)
    return kept


def _ephemerals(before: Baseline, later: dict[str, Baseline], problems: list[str]) -> Claim:
    changed = [
        f"{path} in {name}: {_node(baseline.ephemerals.get(path))}, was {_node(node)}"
        for name, baseline in later.items()
        if not baseline.problem
        for path, node in before.ephemerals.items()
        if baseline.ephemerals.get(path) != node
    ]
    if not before.ephemerals and not before.problem:
        problems = [*problems, "no ephemeral to compare"]
    held = truth(True, problems, bad_is_certain=bool(changed))
    value = None if problems and not changed else not changed
    needed = "every ephemeral with the same owner and czxid"
    detail = explain(*changed[:_SHOWN], *problems, f"{len(before.ephemerals)} ephemerals")
    return Claim("ephemerals_same_owner_and_czxid", value, held, needed, _SOURCE, detail)


def _node(node: tuple[int, int] | None) -> str:
    return "absent" if node is None else f"owner {hex(node[0])} czxid {hex(node[1])}"


def _controller_epoch(before: Baseline, later: dict[str, Baseline], problems: list[str]) -> Claim:
    seen = {
        name: baseline.controller_epoch
        for name, baseline in {"before": before, **later}.items()
        if not baseline.problem
    }
    moved = len(set(seen.values())) > 1
    held = truth(bool(seen), problems, bad_is_certain=moved)
    value = None if problems and not moved else not moved
    detail = explain(*problems, ", ".join(f"{name} {epoch}" for name, epoch in seen.items()))
    needed = "the same controller epoch before, at OPEN and after"
    return Claim("controller_epoch_unchanged_in_window", value, held, needed, _SOURCE, detail)


@dataclass(frozen=True)
class BrokerSessions:
    """The entries about ZooKeeper sessions in one broker's server log.

    started: whether the log has a session start; such a log would also have an expiry. expired: the lines
    that report an expiry.
    """

    started: bool
    expired: tuple[str, ...]


# Seen with Kafka 2.8.2 after a broker was stopped for longer than its session timeout:
#   INFO [ZooKeeperClient Kafka server] Session expired. (kafka.zookeeper.ZooKeeperClient)
# preceded by its ZooKeeper client's "Unable to reconnect to ZooKeeper service, session 0x… has expired",
# which is logged once as WARN and once as INFO and is therefore not counted.
_EXPIRED = re.compile(r"\[ZooKeeperClient[^\]]*\] Session expired\.")
_STARTED = re.compile(r"\[ZooKeeperClient[^\]]*\] Initializing a new session to ")


def scan_broker_log(text: str) -> BrokerSessions:
    """Find session starts and expiries in a broker's server log, in any line format."""
    lines = text.splitlines()
    expired = tuple(line for line in lines if _EXPIRED.search(line))
    return BrokerSessions(any(_STARTED.search(line) for line in lines), expired)


def broker_log_claim(history: RunHistory) -> Claim:
    """Return the claim ``broker_sessions_expired``: no broker's log reports an expired session."""
    problems = [] if history.broker_logs else [explain("no broker is named in run.json", history.run_problem)]
    expired = []
    for broker, text in history.broker_logs.items():
        found = scan_broker_log(text or "")
        expired += [f"{broker}: {line}" for line in found.expired]
        if text is None:
            problems.append(f"no log of {broker}")
        elif not found.started:
            problems.append(f"the log of {broker} shows no session start")
    held = truth(True, problems, bad_is_certain=bool(expired))
    value = len(expired) if history.broker_logs else None
    detail = explain(*expired[:_SHOWN], *problems)
    return Claim("broker_sessions_expired", value, held, "0", "broker-NAME.log", detail)
