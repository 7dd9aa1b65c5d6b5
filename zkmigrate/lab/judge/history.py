"""Read the saved history of one run from its directory.

Besides the load's files (``zkmigrate.lab.load``) a run directory contains what the demo or drill saves:

``run.json``
    ``{"brokers": ["b1", …], "steps": [{"name": "cutover.fence", "start_mono_ns": …, "end_mono_ns": …}, …]}``
``baseline-before.json``, ``baseline-open.json``, ``baseline-after.json``
    the sessions that dest serves at three times: right before the cut-over stage (after the roll, some
    seconds before FENCE), right after OPEN, and then after twice the smallest session timeout:
    ``{"sessions": {"0x…": {"timeout_ms": …}}, "ephemerals": {path: {"owner": "0x…", "czxid": "0x…"}},
    "controller_epoch": n}``. The load must run until the last of them is taken: a client that ends closes
    its session.
``log.json``
    the content of the topics once all clients have stopped (``zkmigrate.lab.load``)
``broker-NAME.log``
    the whole server log of each broker in ``run.json``
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from zkmigrate.lab.load.config import KINDS
from zkmigrate.lab.load.json_lines import Recording, load_recording

BASELINES = ("before", "open", "after")


@dataclass(frozen=True)
class Span:
    """A named part of the run. The times are CLOCK_MONOTONIC nanoseconds."""

    name: str
    start_ns: int
    end_ns: int


@dataclass(frozen=True)
class Tree:
    """The raw clients' znodes as listed through one host.

    nodes: the czxid of each path. problem: why the listing cannot be used; "" if it can.
    """

    nodes: Mapping[str, int] = field(default_factory=dict)
    problem: str = ""


@dataclass(frozen=True)
class Log:
    """The content of the topics once all clients have stopped.

    records: for each (topic, partition), the id at each offset. high: the high watermark of each (topic,
    partition). problem: why the log cannot be used; "" if it can.
    """

    records: Mapping[tuple[str, int], Mapping[int, str]] = field(default_factory=dict)
    high: Mapping[tuple[str, int], int] = field(default_factory=dict)
    problem: str = ""


@dataclass(frozen=True)
class Baseline:
    """The state of the sessions at one moment.

    sessions: the timeout in ms of each session id. ephemerals: the owner and czxid of each path. problem: why
    the baseline cannot be used; "" if it can.
    """

    sessions: Mapping[int, int] = field(default_factory=dict)
    ephemerals: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    controller_epoch: int = 0
    problem: str = ""


@dataclass(frozen=True)
class RunHistory:
    """Everything that a run saved, parsed.

    The ``problem`` of each part says why its file is missing or damaged. run_problem: why ``run.json`` is
    missing or damaged.
    """

    recordings: Mapping[str, Recording]
    trees: Mapping[str, Tree] = field(default_factory=dict)
    baselines: Mapping[str, Baseline] = field(default_factory=dict)
    broker_logs: Mapping[str, str | None] = field(default_factory=dict)
    """The server log of each broker; None for a broker in ``run.json`` that has no log file."""
    steps: tuple[Span, ...] = ()
    run_problem: str = ""
    log: Log = Log(problem="missing")

    def recording(self, kind: str) -> Recording:
        return self.recordings.get(kind, Recording(kind, problem="missing"))

    def baseline(self, name: str) -> Baseline:
        return self.baselines.get(name, Baseline(problem="missing"))


def load_history(directory: Path) -> RunHistory:
    """Read a run directory. A missing or damaged file raises nothing; the part's ``problem`` reports it."""

    def saved(name: str) -> str | None:
        return _text(directory / name)

    recordings = {kind: load_recording(directory, kind) for kind in KINDS}
    brokers, steps, problem = parse_run(saved("run.json"))
    return RunHistory(
        recordings=recordings,
        trees={host: parse_tree(saved(f"tree-{host}.json")) for host in raw_hosts(recordings["raw"])},
        baselines={name: parse_baseline(saved(f"baseline-{name}.json")) for name in BASELINES},
        broker_logs={broker: saved(f"broker-{broker}.log") for broker in brokers},
        steps=steps,
        run_problem=problem,
        log=parse_log(saved("log.json")),
    )


def raw_hosts(raw: Recording) -> tuple[str, ...]:
    """Return the hosts of the raw clients, as the recording's opening line names them."""
    config = raw.events[0].get("config") if raw.events else None
    hosts = config.get("raw_hosts") if isinstance(config, dict) else None
    return tuple(hosts) if isinstance(hosts, dict) else ()


def _text(path: Path) -> str | None:
    try:
        return path.read_text(errors="replace")
    except OSError:
        return None


T = TypeVar("T", Tree, Log, Baseline)


def _parsed(kind: type[T], text: str | None, build: Callable[[dict[str, Any]], T], what: str) -> T:
    """Return the value that ``build`` makes from a JSON object, or an empty value with the problem.

    what: the expected content, for the message. The JSON object must have a true field ``complete``, except
    for a Baseline.
    """
    document, problem = _document(text) if kind is Baseline else _complete(text)
    if problem:
        return kind(problem=problem)
    try:
        return build(document)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        return kind(problem=f"not {what}: {error!r}")


def parse_tree(text: str | None) -> Tree:
    """Parse ``tree-HOST.json``; None means that the file is missing."""

    def build(document: dict[str, Any]) -> Tree:
        return Tree({path: int(czxid, 16) for path, czxid in document["nodes"].items()})

    return _parsed(Tree, text, build, "a listing")


def parse_log(text: str | None) -> Log:
    """Parse ``log.json``; None means that the file is missing."""

    def build(document: dict[str, Any]) -> Log:
        records = {
            part_of(key): {int(at): str(id) for at, id in of} for key, of in document["records"].items()
        }
        return Log(records, {part_of(key): int(end) for key, end in document["high"].items()})

    return _parsed(Log, text, build, "the content of a log")


def part_of(key: str) -> tuple[str, int]:
    """Return topic and partition of a key such as ``load-a/0``."""
    topic, _, number = key.rpartition("/")
    return topic, int(number)


def parse_baseline(text: str | None) -> Baseline:
    """Parse ``baseline-NAME.json``; None means that the file is missing."""

    def build(document: dict[str, Any]) -> Baseline:
        epoch = document["controller_epoch"]
        if not isinstance(epoch, int):
            return Baseline(problem=f"controller_epoch: seen {epoch!r}, needed a number")
        return Baseline(
            {int(id, 16): int(session["timeout_ms"]) for id, session in document["sessions"].items()},
            {
                path: (int(node["owner"], 16), int(node["czxid"], 16))
                for path, node in document["ephemerals"].items()
            },
            epoch,
        )

    return _parsed(Baseline, text, build, "a baseline")


def parse_run(text: str | None) -> tuple[tuple[str, ...], tuple[Span, ...], str]:
    """Parse ``run.json``. Return the brokers, the steps, and the problem ("" if there is none)."""
    document, problem = _document(text)
    if problem:
        return (), (), problem
    try:
        brokers = tuple(str(broker) for broker in document["brokers"])
        steps = tuple(
            Span(str(step["name"]), int(step["start_mono_ns"]), int(step["end_mono_ns"]))
            for step in document["steps"]
        )
    except (KeyError, TypeError, ValueError) as error:
        return (), (), f"not a run description: {error!r}"
    return brokers, steps, ""


def _document(text: str | None) -> tuple[dict[str, Any], str]:
    if text is None:
        return {}, "missing"
    try:
        document = json.loads(text)
    except ValueError as error:
        return {}, f"not JSON: {error}"
    return (document, "") if isinstance(document, dict) else ({}, "not an object")


def _complete(text: str | None) -> tuple[dict[str, Any], str]:
    """Parse a JSON object as ``_document`` does, and require that its field ``complete`` is true."""
    document, problem = _document(text)
    if not problem and document.get("complete") is not True:
        problem = f"incomplete: {document.get('error', '')}"
    return document, problem
