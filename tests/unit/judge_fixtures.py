"""A whole hand-made run in which every claim holds, as values that a test can put one flaw into."""

from __future__ import annotations

import json
from collections.abc import Callable
from copy import deepcopy
from pathlib import Path
from typing import Any

from zkmigrate.lab.judge import Verdict, judge, load_history
from zkmigrate.runbook.model.finding import Held

SECOND = 1_000_000_000
HOSTS = ("d1", "d2", "d3")
RECORDS = 60
CREATES = 60
FENCE_AT = 3 * SECOND
OPEN_AT = 4 * SECOND
SESSION_START = "INFO [ZooKeeperClient Kafka server] Initializing a new session to d1:2181/kafka. (kafka)\n"
SESSION_EXPIRED = "INFO [ZooKeeperClient Kafka server] Session expired. (kafka.zookeeper.ZooKeeperClient)\n"

Event = dict[str, Any]
Edit = Callable[["Files"], None]


def event(name: str, at_ns: int, **fields: Any) -> Event:
    return {"event": name, "mono_ns": at_ns, "epoch_ms": at_ns // 1_000_000, **fields}


def opened(kind: str, **config: Any) -> Event:
    return event("opened", 0, kind=kind, pid=1, format=1, config=config)


def closed(at_ns: int, **fields: Any) -> Event:
    return event("closed", at_ns, reason="ordered", **fields)


class Files:
    """The files of a run, still as values, so that a test can put one flaw in."""

    def __init__(self) -> None:
        self.lines = {
            "producer": self._producer(),
            "consumer": self._consumer(),
            "metadata": self._metadata(),
            "raw": self._raw(),
            "tenant": self._tenant(),
        }
        nodes = {e["path"]: e["zxid"] for e in self.lines["raw"] if e["event"] == "ack"}
        baseline = {
            "sessions": {f"0x{n}00": {"timeout_ms": 18000} for n in (1, 2, 3)},
            "ephemerals": {
                f"/kafka/brokers/ids/{n}": {"owner": f"0x{n}00", "czxid": "0x5"} for n in (1, 2, 3)
            },
            "controller_epoch": 7,
        }
        self.documents: dict[str, Any] = {
            "run.json": {
                "brokers": ["b1", "b2"],
                "steps": [
                    {"name": f"cutover.{name}", "start_mono_ns": at, "end_mono_ns": at + SECOND // 10}
                    for name, at in (("fence", FENCE_AT), ("open", OPEN_AT))
                ],
            },
            **{
                f"tree-{host}.json": {"host": host, "complete": True, "error": "", "nodes": dict(nodes)}
                for host in HOSTS
            },
            "log.json": {
                "complete": True,
                "error": "",
                "high": {"t/0": RECORDS // 2, "t/1": RECORDS // 2},
                "records": {
                    f"t/{part}": [[n // 2, f"p-{n}"] for n in range(part, RECORDS, 2)] for part in (0, 1)
                },
            },
            **{f"baseline-{name}.json": deepcopy(baseline) for name in ("before", "open", "after")},
        }
        self.texts = {"broker-b1.log": SESSION_START, "broker-b2.log": SESSION_START}

    @staticmethod
    def _producer() -> list[Event]:
        acks = [
            event("ack", n * SECOND // 10, topic="t", partition=n % 2, offset=n // 2, id=f"p-{n}")
            for n in range(RECORDS)
        ]
        end = RECORDS * SECOND // 10
        return [opened("producer"), *acks, event("stopping", end), closed(end, unflushed=0)]

    @staticmethod
    def _consumer() -> list[Event]:
        reads = [
            event("consumed", n * SECOND // 10, topic="t", partition=n % 2, offset=n // 2, id=f"p-{n}")
            for n in range(RECORDS)
        ]
        high = {"t/0": RECORDS // 2, "t/1": RECORDS // 2}
        drained = event("drained", 8 * SECOND, complete=True, position=dict(high), high=high)
        return [opened("consumer"), *reads, drained, closed(8 * SECOND, drained=True)]

    @staticmethod
    def _metadata() -> list[Event]:
        made = event("op", SECOND, op="create_topic", topic="m", value=1, outcome="ok", error="")
        read = event("verified", 7 * SECOND, complete=True, missing_topics=[], wrong_configs=[], error="")
        return [opened("metadata"), made, read, closed(7 * SECOND)]

    @staticmethod
    def _raw() -> list[Event]:
        """Creates on every host up to FENCE in epoch 1 and from just after OPEN in epoch 2."""
        acks = []
        for n in range(CREATES):
            before = n < CREATES // 2
            at = n * SECOND // 10 if before else OPEN_AT + SECOND // 2 + (n - CREATES // 2) * SECOND // 20
            for place, host in enumerate(HOSTS):
                zxid = ((1 if before else 2) << 32) + 10 * n + place
                path = f"/kafka/zkmigrate-raw/{host}/n-{n:010d}"
                acks.append(event("ack", at, host=host, path=path, zxid=hex(zxid), sent_mono_ns=0))
        acks += [
            event("connect_failed", FENCE_AT + SECOND // 2, host=host, error="refused") for host in HOSTS
        ]
        end = 6 * SECOND
        start = opened("raw", raw_hosts={host: f"{host}:2181" for host in HOSTS})
        return [start, *acks, event("stopping", end), closed(end)]

    @staticmethod
    def _tenant() -> list[Event]:
        acks = [event("ack", n * SECOND // 10, op="set", path="/o/c", zxid="0x1", value=n) for n in range(60)]
        end = 6 * SECOND
        verified = event(
            "verified", end, complete=True, ephemerals=5, ephemerals_lost=[], counters=8, counters_wrong=[],
            creates=9, creates_missing=[], error="",
        )  # fmt: skip
        return [opened("tenant"), *acks, event("stopping", end), verified, closed(end)]

    # --- flaws ----------------------------------------------------------------------------------------------

    def drop(self, kind: str, unwanted: Callable[[Event], bool]) -> None:
        self.lines[kind] = [e for e in self.lines[kind] if not unwanted(e)]

    def insert(self, kind: str, *events: Event) -> None:
        self.lines[kind][1:1] = events

    def in_log(self, part: str, record: list[Any]) -> None:
        """One more record behind all others, in what was read again."""
        self.documents["log.json"]["records"][part].append(record)
        self.documents["log.json"]["high"][part] += 1

    def closing(self, kind: str, **fields: Any) -> None:
        self.lines[kind][-1].update(fields)

    def verified(self, kind: str, **fields: Any) -> None:
        next(e for e in self.lines[kind] if e["event"] == "verified").update(fields)

    def write(self, directory: Path) -> Path:
        for kind, lines in self.lines.items():
            (directory / f"{kind}.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
        for name, document in self.documents.items():
            (directory / name).write_text(json.dumps(document))
        for name, text in self.texts.items():
            (directory / name).write_text(text)
        return directory


def verdict_of(directory: Path, edit: Edit = lambda _files: None) -> Verdict:
    files = Files()
    edit(files)
    return judge(load_history(files.write(directory)))


def not_held(verdict: Verdict) -> dict[str, Held]:
    return {claim.id: claim.held for claim in verdict.claims if claim.held is not Held.YES}
