"""One Spark in local mode for all these tests, as `analyze` starts it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.unit.zkdata_fixtures import VERSIONS, recorded_files
from zkmigrate.spark.session import READ_HERE, Bounds, session
from zkmigrate.spark.sources import register


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    home = tmp_path_factory.mktemp("spark")
    bounds = Bounds("local[2]", "1g", spill=home, progress=False, ui=False, small=True, tiny=True)
    with session(bounds, lambda _line: None) as made:
        register(made)
        yield made


@pytest.fixture(autouse=True)
def _given_back(spark: SparkSession) -> Iterator[None]:
    """After each test, as `analyze` does after each job: what all of them persist, with its plans and
    broadcasts, does not fit in this Spark's memory."""
    yield
    spark.catalog.clearCache()


@pytest.fixture
def read_here(spark: SparkSession) -> Iterator[Callable[[int], None]]:
    """Sets how many bytes of a table this process may read itself, until the test ends."""
    before = spark.conf.get(READ_HERE)
    yield lambda most: spark.conf.set(READ_HERE, str(most))
    spark.conf.set(READ_HERE, before or "0")


@pytest.fixture(scope="session")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What servers of every version left, unpacked: VERSION/KIND/version-2."""
    unpacked = tmp_path_factory.mktemp("recorded")
    for version in VERSIONS:
        for kind in ("standalone", "observer-snap"):
            folder = unpacked / version / kind / "version-2"
            folder.mkdir(parents=True)
            for name, content in recorded_files(version, kind).items():
                (folder / name).write_bytes(content)
    return unpacked
