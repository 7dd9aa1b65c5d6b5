"""Judge whether the load ran during the window. A window without load proves nothing."""

from __future__ import annotations

from collections.abc import Iterable

from zkmigrate.lab.judge.claims import Claim, explain, truth
from zkmigrate.lab.judge.history import RunHistory

# Inside the window a raw client loses its connection, is refused and reconnects.
_RAW_EVENTS = ("ack", "unknown", "connected", "connect_failed", "disconnected")
_PARTS = ("before", "inside", "after")


def load_claim(history: RunHistory, fence_step: str, open_step: str) -> Claim:
    """Return the claim ``load_spans_window``: all clients worked before, inside and after the window.

    The clients are the producer, the consumer and every raw client. The window is from the beginning of the
    last ``fence_step`` to the end of the last ``open_step``. Work is an acknowledged record of the producer,
    a record that the consumer received, or an acknowledged create of a raw client. Inside the window,
    attempts of a raw client are work too.
    """
    fences = [step.start_ns for step in history.steps if step.name == fence_step]
    opens = [step.end_ns for step in history.steps if step.name == open_step]
    recordings = [history.recording(kind) for kind in ("producer", "consumer", "raw")]
    producer, consumer, raw = recordings
    problems = [f"{r.name}: {r.problem}" for r in recordings if r.problem]
    if not fences or not opens:
        problems.append(f"no step {fence_step} and {open_step} in run.json {history.run_problem}".strip())
        return _claim(None, problems, [])
    window = (fences[-1], opens[-1])
    value = {
        "producer": _counts((e["mono_ns"] for e in producer.of("ack")), window),
        "consumer": _counts((e["mono_ns"] for e in consumer.of("consumed")), window),
    }
    acks = raw.of("ack")
    tries = [event for name in _RAW_EVENTS for event in raw.of(name)]
    for host in history.trees:
        counts = _counts((e["mono_ns"] for e in acks if e["host"] == host), window)
        inside = _counts((e["mono_ns"] for e in tries if e["host"] == host), window)["inside"]
        value[f"raw-{host}"] = {**counts, "inside": inside}
    idle = [
        f"{name} {part} the window" for name, parts in value.items() for part in _PARTS if not parts[part]
    ]
    if not history.trees:
        problems.append("no raw client is named in raw.jsonl")
    return _claim(value, problems, idle)


def _counts(times: Iterable[int], window: tuple[int, int]) -> dict[str, int]:
    counts = dict.fromkeys(_PARTS, 0)
    for at in times:
        counts["before" if at < window[0] else "inside" if at <= window[1] else "after"] += 1
    return counts


def _claim(value: dict[str, dict[str, int]] | None, problems: list[str], idle: list[str]) -> Claim:
    held = truth(not idle, problems)
    detail = explain("nothing of " + ", ".join(idle) if idle else "", *problems)
    source = "producer.jsonl, consumer.jsonl, raw.jsonl, run.json"
    return Claim(
        "load_spans_window", value, held, "events before, inside and after the window", source, detail
    )
