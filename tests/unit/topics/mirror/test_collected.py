"""How seldom a mirror lets Python collect garbage."""

from __future__ import annotations

import gc
import socket
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from kafka.errors import KafkaConnectionError
from kafka.net.inet import create_connection
from kafka.net.selector import NetworkSelector

from zkmigrate.topics.mirror.verbs.run import GC_THRESHOLD

FILES = 1024
"""Linux lets a process open that many, unless somebody says more."""


@pytest.fixture
def collected() -> Iterator[None]:
    before = gc.get_threshold()
    gc.set_threshold(GC_THRESHOLD)
    yield
    gc.set_threshold(*before)


@pytest.mark.usefixtures("collected")
@pytest.mark.filterwarnings("ignore:unclosed")
def test_a_broker_that_refuses_connections_for_long_does_not_use_up_the_files() -> None:
    most = 0
    with socket.create_server(("127.0.0.1", 0)) as nobody:
        address = nobody.getsockname()
    with closing(NetworkSelector()) as network:
        for _ in range(2 * FILES):
            with pytest.raises(KafkaConnectionError):
                network.run(create_connection, network, *address)
            most = max(most, len(list(Path("/proc/self/fd").iterdir())))
    assert most < FILES / 2
