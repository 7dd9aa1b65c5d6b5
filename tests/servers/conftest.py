"""What several files with servers of their own share."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from xdist.scheduler import LoadScopeScheduling

from tests.servers.process import RELEASES
from tests.servers.test_reassign import Brokers, cluster


class ByBrokers(LoadScopeScheduling):  # type: ignore[misc]
    """All tests that share brokers go to one worker, so these begin once: those of a file, and those of one
    release for which :func:`brokers_at_work` gives a cluster."""

    def _split_scope(self, nodeid: str) -> str:
        release = next((one for one in RELEASES if nodeid.endswith(f"[{one}]")), "")
        return release or nodeid.partition("::")[0]


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> ByBrokers:
    return ByBrokers(config, log)


@pytest.fixture(scope="package", params=RELEASES)
def brokers_at_work(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Brokers]:
    """One cluster for all tests with this release. Each leaves its settings, and topic a, as they were."""
    with cluster(request.param, tmp_path_factory.mktemp(request.param)) as made:
        yield made
