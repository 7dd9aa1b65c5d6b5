"""Run the verb serve: the gateway's process, until a signal ends it."""

from __future__ import annotations

import gc
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import uvloop

from zkmigrate.topics.gateway.serving.config import load
from zkmigrate.topics.gateway.serving.record import Record
from zkmigrate.topics.gateway.serving.server import Server

_INTERRUPTED = 130
_THRESHOLDS = 700, 2, 1_000_000
"""The thresholds of the garbage collector: it searches only young objects for cycles, and few at a time.

A search of all objects takes 0.1 seconds with 10,000 connections, and a connection leaves no cycles.
"""


def serve(file: Path, say: Callable[[str], None]) -> int:
    """Serve until SIGTERM (returns 0) or Ctrl-C (returns 130). say: prints a log line of JSON."""
    config = load(file)

    async def serving(record: Record) -> bool:
        return await Server(config, record, say).serve()

    gc.freeze()  # objects that exist now stay: searching them for cycles again and again stops the loop
    gc.set_threshold(*_THRESHOLDS)
    with closing(Record(Path(config.state))) as record:
        return _INTERRUPTED if uvloop.run(serving(record)) else 0
