"""analyze on a real Spark cluster that knows zkmigrate only from the archive that spark-submit ships."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
import zipfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pyspark
import pytest
from pyspark.sql import SparkSession

import zkmigrate
from tests.unit.topics.mirror import logs
from tests.unit.topics.mirror.batches import at, built
from zkmigrate.json_stamp import stamped
from zkmigrate.spark.input import Input
from zkmigrate.spark.jobs import JOBS, job
from zkmigrate.spark.request import Place, Request
from zkmigrate.spark.session import CHEAP, INTERPRETED, SHORT_LIVED, archive_options
from zkmigrate.zookeeper.data.chroot import Chroot

PACKAGES = (
    "pyspark",
    "py4j",
    "pyarrow",
    "numpy",
    "numpy.libs",
    "fsspec",
    "crc32c",
    "cramjam",
    "click",
    "jinja2",
    "markupsafe",
    "ruamel",
    "pydantic",
    "pydantic_core",
    "annotated_types",
    "typing_extensions.py",
    "typing_inspection",
)
PYTHON = str(Path(getattr(sys, "_base_executable", sys.executable)).resolve())
HOME = Path(pyspark.__file__).parent
CUTS: dict[str, list[int]] = {"old cluster": [1], "new cluster": []}
"""Where the segments of each side's log are cut."""
STARTED_S, ENDED_S, KILLED_S = 600, 1800, 60
"""Seconds for one of Spark's processes to start, for a command to end, for a process to go. On a fast machine
none takes a twentieth of this."""


@pytest.fixture
def bare(tmp_path: Path) -> dict[str, str]:
    """Variables of a machine that has Spark and what zkmigrate needs from others, but not zkmigrate."""
    packages, local = tmp_path / "packages", tmp_path / "local"
    packages.mkdir()
    local.mkdir()
    for name in PACKAGES:
        if (HOME.parent / name).exists():  # numpy.libs only where the wheel brought libraries
            (packages / name).symlink_to(HOME.parent / name)
    for told in HOME.parent.glob("crc32c-*.dist-info"):  # it asks for its own version
        (packages / told.name).symlink_to(told)
    kept = {name: os.environ[name] for name in ("PATH", "JAVA_HOME") if name in os.environ}
    return {
        **kept,
        "HOME": str(tmp_path),
        "PYTHONPATH": str(packages),
        "PYTHONDONTWRITEBYTECODE": "1",
        "PYSPARK_PYTHON": PYTHON,
        "SPARK_HOME": str(HOME),
        "SPARK_LOCAL_DIRS": str(local),
        "SPARK_LOCAL_IP": "127.0.0.1",
        # Six JVMs that live for seconds: their second compiler would cost more than it gives, and reading
        # classes one by one takes half the time of a start.
        "JAVA_TOOL_OPTIONS": " ".join((SHORT_LIVED, *archive_options())),
    }


def run(command: list[str], cwd: Path, env: dict[str, str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command, cwd=cwd, env=env, capture_output=True, text=True, timeout=ENDED_S, check=False
    )


@contextmanager
def daemon(name: str, arguments: list[str], folder: Path, env: dict[str, str]) -> Iterator[Path]:
    """One of Spark's own processes, with all that it starts, until the end; its log."""
    log = folder / f"{name}.log"
    command = [str(HOME / "bin" / "spark-class"), f"org.apache.spark.deploy.{arguments[0]}", *arguments[1:]]
    with log.open("wb") as out:
        process = subprocess.Popen(
            command, cwd=folder, env=env, stdout=out, stderr=subprocess.STDOUT, start_new_session=True
        )
    try:
        yield log
    finally:
        for each in (signal.SIGTERM, signal.SIGKILL):
            try:
                os.killpg(process.pid, each)
                process.wait(timeout=KILLED_S)
            except (ProcessLookupError, subprocess.TimeoutExpired):
                continue


def told(log: Path, pattern: str, count: int = 1) -> str:
    """What the pattern's group finds in a log, as soon as the pattern stands there so often."""
    deadline = time.monotonic() + STARTED_S
    while len(found := re.findall(pattern, log.read_text())) < count:
        assert time.monotonic() < deadline, f"{log.name} never says {pattern}: {log.read_text()}"
        time.sleep(0.2)
    return str(found[0])


@pytest.fixture
def job_request(recorded: Path, tmp_path: Path) -> Request:
    """Something for every job."""
    source = recorded / "3.8.4" / "standalone"
    dest = tmp_path / "dest"
    shutil.copytree(source, dest)
    made = [built(3), at(built(2, codec=1), 3)]
    sides = [
        logs.put(tmp_path / name, {"orders-0": logs.segments(made, cuts)}) for name, cuts in CUTS.items()
    ]
    places = (Place("", str(source)),), (Place("dest", str(dest)),)
    partitions, brokers = tmp_path / "partitions.jsonl", tmp_path / "brokers.jsonl"
    row = {"cluster": "c", "topic": "t", "partition": 0, "replicas": [1], "size": 1 << 30}
    partitions.write_text(json.dumps(row) + "\n")
    free = ({"cluster": "c", "broker": id, "storage_free": id << 30} for id in (1, 9))
    brokers.write_text("".join(json.dumps(one) + "\n" for one in free))
    return Request(
        *places,
        chroot=Chroot("/kafka"),
        fleet_partitions=str(partitions),
        fleet_brokers=str(brokers),
        source_logs=(sides[0],),
        target_logs=(sides[1],),
        topics=("orders",),
    )


@pytest.mark.timeout(2 * ENDED_S)
def test_two_workers_answer_as_one_machine_does(
    spark: SparkSession, job_request: Request, tmp_path: Path, bare: dict[str, str]
) -> None:
    directory = job_request.source[0].path
    assert "No module named 'zkmigrate'" in run([PYTHON, "-c", "import zkmigrate"], tmp_path, bare).stderr
    archives = [tmp_path / "code.zip", tmp_path / "again.zip"]
    for archive in archives:
        packed = run(
            [sys.executable, "-m", "zkmigrate.spark.pack", str(archive)],
            Path(zkmigrate.__file__).parents[1], dict(os.environ),
        )  # fmt: skip
        assert packed.returncode == 0, packed.stderr
    assert archives[0].read_bytes() == archives[1].read_bytes()
    assert "zkmigrate/spark/sources/txnlog.py" in zipfile.ZipFile(archives[0]).namelist()
    script = Path(shutil.copy(Path(zkmigrate.__file__).with_name("spark_submit.py"), tmp_path))

    with ExitStack() as stack:
        asks = ["master.Master", "--host", "127.0.0.1", "--port", "0", "--webui-port", "0"]
        log = stack.enter_context(daemon("master", asks, tmp_path, bare))
        master = told(log, r"Starting Spark master at (spark://\S+)")
        works = [tmp_path / f"work{n}" for n in (1, 2)]
        for work in works:
            asks = ["worker.Worker", master, "--host", "127.0.0.1", "--port", "0", "--webui-port", "0"]
            asks += ["--cores", "1", "--memory", "1g", "--work-dir", str(work)]
            stack.enter_context(daemon(work.name, asks, tmp_path, bare))
        told(log, r"Registering worker (\S+)", count=2)
        submit = [str(HOME / "bin" / "spark-submit"), "--master", master, "--py-files", str(archives[0])]
        submit += ["--conf", "spark.driver.host=127.0.0.1", "--conf", "spark.ui.enabled=false"]
        for name, value in {**CHEAP, **INTERPRETED, "spark.sql.shuffle.partitions": "2"}.items():
            submit += ["--conf", f"{name}={value}"]
        options = ["--chroot", job_request.chroot.path, "--dest-dir", f"dest={job_request.dest[0].path}"]
        options += ["--json", "--fleet-partitions", job_request.fleet_partitions]
        options += ["--fleet-brokers", job_request.fleet_brokers, "--topic", job_request.topics[0]]
        options += ["--source-logs", job_request.source_logs[0]]
        options += ["--target-logs", job_request.target_logs[0]]
        answered = run([*submit, str(script), "all", directory, *options], tmp_path, bare)
        assert answered.returncode == 0, answered.stdout + answered.stderr[-5000:]
        refused = run([*submit, str(script), "tenants", directory, "--master", "local"], tmp_path, bare)
        assert refused.returncode == 2, refused.stderr
        assert "spark-submit has already chosen the master" in refused.stdout
        shipped = {work: list(work.glob("app-*/*/code.zip")) for work in works}
    assert all(shipped.values())

    given = Input(spark, job_request)
    found = {name: job(name)(given) for name in JOBS}
    here = {name: {"answer": one.answer, "held": one.held, **one.figures} for name, one in found.items()}
    there = json.loads(answered.stdout)
    assert there.keys() - here.keys() == stamped({}).keys()
    assert {name: there[name] for name in here} == json.loads(json.dumps(here))
    assert here["proof"]["held"] is True
    assert here["mirror"]["held"] is True
    assert here["diff"]["dests"]["dest"]["differing"] == 0
