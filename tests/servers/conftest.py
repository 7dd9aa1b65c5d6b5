"""What several files with servers of their own share."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.servers.process import RELEASES
from tests.servers.test_reassign import Brokers, cluster


@pytest.fixture(scope="package", params=RELEASES)
def brokers_at_work(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Brokers]:
    """One cluster for all tests with this release. Each leaves its settings, and topic a, as they were."""
    with cluster(request.param, tmp_path_factory.mktemp(request.param)) as made:
        yield made
