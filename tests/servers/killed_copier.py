"""A copier that ends itself by SIGKILL right after it has sent its n-th write: ``SOURCE TARGET N TOPIC…``.

For tests. With fewer writes it ends when everything is copied.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Callable
from typing import Any

from zkmigrate.topics.mirror.clients import copier
from zkmigrate.topics.mirror.clients.cluster import Cluster
from zkmigrate.topics.mirror.verbs.request import Request
from zkmigrate.topics.mirror.verbs.run import run

_SENT_S = 0.02
"""So long the thread of the client has to send the request."""


def main(source: str, target: str, last: str, *topics: str) -> int:
    left = [int(last)]

    def counted(write: Callable[..., Any]) -> Callable[..., Any]:
        def sent(*given: Any) -> Any:
            done = write(*given)
            left[0] -= 1
            if left[0] == 0:
                time.sleep(_SENT_S)
                os.kill(os.getpid(), signal.SIGKILL)
            return done

        return sent

    for name in ("begin_produce", "mark", "drop"):
        setattr(Cluster, name, counted(getattr(Cluster, name)))
    copier.SETTLE_S = 0.3  # no other copier is at work
    return run(Request([source], [target], topics), print, print, once=True, refresh_s=10)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
