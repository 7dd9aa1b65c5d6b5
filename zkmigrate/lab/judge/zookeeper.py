"""Judge the ZooKeeper clients: raw writers on dest and the other tenant on source."""

from __future__ import annotations

from collections.abc import Iterator

from zkmigrate.lab.judge.claims import Claim, explain, truth
from zkmigrate.lab.judge.gaps import gaps_of, longest_s
from zkmigrate.lab.judge.history import RunHistory
from zkmigrate.lab.load.json_lines import Event, Recording
from zkmigrate.runbook.model.finding import Held

_SHOWN = 5


def raw_claims(history: RunHistory, fence_step: str) -> Iterator[Claim]:
    """Yield the claims about the raw clients, which write to dest.

    The claims are raw_acked, acked_creates_missing, raw_order_violations, raw_sessions_lost and window_s.
    """
    raw = history.recording("raw")
    acks = raw.of("ack")
    counts = {host: sum(event["host"] == host for event in acks) for host in history.trees}
    held = truth(bool(counts) and all(counts.values()), [raw.problem])
    unknown = sum(event["count"] for event in raw.of("unknown"))
    note = explain(f"{unknown} without an answer", raw.problem)
    value = counts if raw.events else None
    yield Claim("raw_acked", value, held, "acknowledged creates on every dest host", "raw.jsonl", note)
    yield _missing(history, raw, acks)
    disorder = _disorder(acks)
    held = truth(bool(acks), [raw.problem], bad_is_certain=bool(disorder))
    detail = explain(", ".join(disorder[:_SHOWN]), raw.problem)
    value_or_none = len(disorder) if acks else None
    yield Claim("raw_order_violations", value_or_none, held, "0", "raw.jsonl", detail)
    expired = raw.of("expired")
    held = truth(bool(acks), [raw.problem], bad_is_certain=bool(expired))
    detail = explain(", ".join(f"{e['session']} on {e['host']}" for e in expired[:_SHOWN]), raw.problem)
    yield Claim("raw_sessions_lost", len(expired) if raw.events else None, held, "0", "raw.jsonl", detail)
    yield _window(history, raw, acks, fence_step)


def _missing(history: RunHistory, raw: Recording, acks: list[Event]) -> Claim:
    """Return the claim ``acked_creates_missing``: creates that a dest host lacks under the acknowledged zxid.

    Comparing only the path is not enough: a parent that lost its last creates assigns the same sequence
    numbers again, so the path may exist with another czxid.
    """
    problems = [raw.problem and f"raw: {raw.problem}"]
    problems += [f"tree of {host}: {tree.problem}" for host, tree in history.trees.items() if tree.problem]
    problems += [] if history.trees else ["no tree was listed"]
    missing: dict[str, set[str]] = {}
    for host, tree in history.trees.items():
        if tree.problem:
            continue
        for event in acks:
            if tree.nodes.get(event["path"]) != int(event["zxid"], 16):
                missing.setdefault(f"{event['path']} {event['zxid']}", set()).add(host)
    held = truth(bool(acks), problems, bad_is_certain=bool(missing))
    first = list(missing.items())[:_SHOWN]
    shown = ", ".join(f"{what} on {'+'.join(sorted(hosts))}" for what, hosts in first)
    value = len(missing) if acks and any(not tree.problem for tree in history.trees.values()) else None
    detail = explain(shown, *problems)
    return Claim("acked_creates_missing", value, held, "0", "raw.jsonl, tree-HOST.json", detail)


def _disorder(acks: list[Event]) -> list[str]:
    """Return a text for each acknowledgement out of order.

    On each host, zxids and sequence numbers must rise.
    """
    last: dict[str, tuple[int, int]] = {}
    found = []
    for event in acks:
        zxid, number = int(event["zxid"], 16), int(event["path"][-10:])
        before = last.get(event["host"])
        if before is not None and not (zxid > before[0] and number > before[1]):
            found.append(f"{event['path']} {event['zxid']} after {hex(before[0])}")
        last[event["host"]] = (zxid, number)
    return found


def _window(history: RunHistory, raw: Recording, acks: list[Event], fence_step: str) -> Claim:
    """Return the claim ``window_s``: seconds from the last FENCE to the first write that dest serves.

    This write is the first raw acknowledgement in a later epoch. The epoch distinguishes the write from one
    that source acknowledged while the fence was being closed.
    """
    fences = [step for step in history.steps if step.name == fence_step]
    problem, value = raw.problem, None
    if not fences:
        problem = explain(problem, f"no step {fence_step} in run.json {history.run_problem}".strip())
    else:
        start_ns = fences[-1].start_ns
        epochs = [int(event["zxid"], 16) >> 32 for event in acks if event["mono_ns"] < start_ns]
        served = [
            event["mono_ns"]
            for event in acks
            if event["mono_ns"] >= start_ns and epochs and int(event["zxid"], 16) >> 32 > max(epochs)
        ]
        if served:
            value = round((min(served) - start_ns) / 1e9, 3)
        else:
            problem = explain(problem, "no raw write before FENCE and in a later epoch after it")
    held = truth(value is not None, [problem])
    return Claim("window_s", value, held, "a figure", "raw.jsonl, run.json", problem)


def tenant_claim(history: RunHistory, gap_limit_s: float) -> Claim:
    """Return the claim ``other_tenant_unharmed``: the migration did not disturb the other tenant.

    The tenant lost no session or connection, no request was refused or unanswered, every acknowledged write
    was read back, and no gap is longer than ``gap_limit_s`` seconds.
    """
    tenant = history.recording("tenant")
    verified = next(iter(tenant.of("verified")), None)
    gap = longest_s(gaps_of(history)["tenant"])
    harm = [f"{event['event']} {event['session']}" for event in tenant.of("expired", "disconnected")]
    harm += [f"{event['op']} {event['path']}: {event['error']}" for event in tenant.of("error")]
    harm += [f"{event['count']} {event['op']} without an answer" for event in tenant.of("unknown")]
    for name in ("ephemerals_lost", "counters_wrong", "creates_missing"):
        harm += [f"{name}: {what}" for what in (verified or {}).get(name, [])]
    if gap is not None and gap > gap_limit_s:
        harm.append(f"{gap} s without an acknowledgement")
    problems = [tenant.problem]
    if not tenant.problem:
        problems += _unverified(verified)
        problems += ["no gap to measure"] if gap is None else []
    held = truth(True, problems, bad_is_certain=bool(harm))
    needed = f"no session, ephemeral, write or connection lost, no gap over {gap_limit_s:g} s"
    value = {Held.YES: True, Held.NO: False}.get(held)
    detail = explain(*harm[:_SHOWN], *problems, "" if gap is None else f"longest gap {gap} s")
    return Claim("other_tenant_unharmed", value, held, needed, "tenant.jsonl", detail)


def _unverified(verified: Event | None) -> list[str]:
    if verified is None or verified.get("complete") is not True:
        return [f"not read back: {(verified or {}).get('error', '')}"]
    # where nothing was acknowledged, nothing was verified
    promised = ("ephemerals", "counters", "creates")
    return [f"no {name} to verify" for name in promised if not verified.get(name)]
