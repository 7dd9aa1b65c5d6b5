"""Connect to two clusters, one of which mirrors the other."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from typing import Any

from zkmigrate import deadline
from zkmigrate.errors import HostError, UsageError
from zkmigrate.kafka.clients import login
from zkmigrate.topics.mirror.clients.cluster import Cluster
from zkmigrate.topics.mirror.clients.security import settings
from zkmigrate.topics.mirror.questions import ClusterAt


class Pair:
    """A pair of connections to two clusters, which are opened when they are first needed and then kept.

    Only one thread at a time can use them; other threads wait.
    """

    def __init__(self, source: ClusterAt, target: ClusterAt) -> None:
        self._at = {"source": source, "target": target}
        self._turn = threading.Lock()
        self._open: tuple[Cluster, Cluster] | None = None

    @contextmanager
    def clusters(self) -> Iterator[tuple[Cluster, Cluster]]:
        """Yield the connections to source and target.

        Raises UsageError if both are the same cluster or a file of properties is wrong, and HostError if a
        cluster does not respond in time.
        """
        if not self._turn.acquire(timeout=deadline.remaining(threading.TIMEOUT_MAX)):
            raise HostError("the previous query has no response yet")
        try:
            if self._open is None:
                self._open = self._opened()
            yield self._open
        except BaseException:
            # A client that failed may wait 30 s before it connects again; a new one does so at once.
            self.close()
            raise
        finally:
            self._turn.release()

    def _opened(self) -> tuple[Cluster, Cluster]:
        with ExitStack() as stack:
            here, there = (
                stack.enter_context(closing(Cluster(what, at.brokers, _settings(at))))
                for what, at in self._at.items()
            )
            if here.id() == there.id():
                raise UsageError(f"source and target are the same cluster, {here.id()}; needed: two clusters")
            stack.pop_all()
        return here, there

    def close(self) -> None:
        """Close both connections. The next use opens them again."""
        opened, self._open = self._open, None
        for one in opened or ():
            one.close()


def _settings(at: ClusterAt) -> Mapping[str, Any]:
    if at.client is not None:
        return login.settings(at.client, "clusters[].client")
    return settings(Path(at.config) if at.config else None)
