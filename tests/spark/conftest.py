"""One Spark in local mode for all these tests."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.unit.zkdata_fixtures import VERSIONS, recorded_files
from zkmigrate.pipeline import register


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    home = tmp_path_factory.mktemp("spark")
    os.environ["PYSPARK_PYTHON"] = sys.executable  # else the workers that plan take the first python3 in PATH
    session = (
        SparkSession.builder.master("local[2]")
        .appName("zkmigrate tests")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.driver.memory", "1g")
        .config("spark.ui.enabled", "false")
        .config("spark.sql.session.timeZone", "UTC")
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.sql.warehouse.dir", str(home / "warehouse"))
        .config("spark.local.dir", str(home))
        .getOrCreate()
    )
    register(session)
    yield session
    session.stop()


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
