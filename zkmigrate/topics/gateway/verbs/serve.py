"""Run the verb serve, which runs the gateway's process until a signal ends it."""

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
"""The thresholds of Python's garbage collector, which let it search only young objects, and few at a time.

A search of all objects takes 0.1 seconds with 10,000 connections, and finds nothing, because connections
leave no cycles of objects.
"""


def serve(file: Path, say: Callable[[str], None]) -> int:
    """Serve clients until SIGTERM, which returns 0, or Ctrl-C, which returns 130.

    file: the gateway's configuration. say: a function that prints a log line of JSON.
    """
    config = load(file)

    async def serving(record: Record) -> bool:
        return await Server(config, record, say).serve()

    gc.freeze()  # objects that exist now stay: searching them for cycles again and again stops the loop
    gc.set_threshold(*_THRESHOLDS)
    with closing(Record(Path(config.state))) as record:
        return _INTERRUPTED if uvloop.run(serving(record)) else 0
