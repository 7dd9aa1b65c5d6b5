"""An sshd for the verbs that read the disks of hosts."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.unit import sshd as daemon
from tests.unit.sshd import Sshd


@pytest.fixture(scope="module")
def sshd(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sshd]:
    with daemon.running(tmp_path_factory.mktemp("sshd")) as running:
        running.pin()
        yield running
