"""How much there is to read, which Spark's settings depend on."""

from __future__ import annotations

from zkmigrate.errors import UsageError
from zkmigrate.spark.request import Request
from zkmigrate.spark.sources.files import File, files
from zkmigrate.zookeeper.data.logdir import is_log_or_snapshot
from zkmigrate.zookeeper.data.tail import data_end
from zkmigrate.zookeeper.data.txnlog import log_zxid

SMALL = 256 << 20
"""Bytes of all servers together. Up to there Spark's start and planning take longer than the data."""
TINY = 16 << 20
"""Up to there Spark's plans take longer to compile than to be interpreted, once each."""
SMALL_TREES = 32 << 20
"""The same where trees are compared: to roll them forward takes more time for each byte."""


def is_small(request: Request, most: int = SMALL) -> bool:
    """Whether all that was asked for is known to be small. most: bytes of logs and snapshots. Files of
    brokers, clients and text logs are not looked at here, so that with them it is not known."""
    if (
        request.broker_dirs
        or request.broker_logs
        or request.client_history
        or request.server_logs
        or request.run
    ):
        return False
    left = min(most, SMALL_TREES) if request.dest else most
    for place in (*request.source, *request.dest):
        try:
            found = files((place.path,), place.server, is_log_or_snapshot)
        except (UsageError, OSError):
            continue  # the job says so
        left -= sum(map(written, found))
    return left >= 0


def written(file: File) -> int:
    """Bytes of a log without the zeros that the server keeps in advance behind its end; of a snapshot, and of
    a file at a URI, all."""
    if log_zxid(file.name) is None or "://" in file.path:
        return file.size
    try:
        return data_end(file.reader())
    except OSError:
        return file.size
