"""Open a Spark session: our own on this machine, or the one of spark-submit."""

from __future__ import annotations

import math
import os
import re
import signal
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from importlib.resources import as_file, files
from pathlib import Path
from typing import TYPE_CHECKING

from zkmigrate.errors import UsageError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

READ_HERE = "spark.zkmigrate.readHere"
"""The session setting for the size in bytes up to which this process reads a table; see `reading`."""

_MIB = {"k": 1 / 1024, "m": 1, "g": 1024, "t": 1024 * 1024}

ARCHIVE = Path(sys.prefix) / "share" / "zkmigrate" / "spark-classes.jsa"
"""The path of the archive of the Java classes that Spark loads; see `archive`."""

_HERE_SHARE = 1 / 16
"""The share of the JVM's heap that one table read by this process may take; jobs hold several tables."""
SHORT_LIVED = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
"""The options for a JVM that ends before its second compiler is worth its time. They halve the run time."""
CHEAP = {
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.execution.arrow.localRelationThreshold": "0",
    "spark.sql.dataFrameQueryContext.enabled": "false",
    "spark.python.sql.dataFrameDebugging.enabled": "false",
    "spark.sql.ui.explainMode": "simple",
}
"""The Spark settings that make planning cheap for small tables.

Spark runs the first plan that it makes. A table that this process has read goes to a task as a whole, not row
by row into the plan. Spark stores no stack trace of each column.
"""
INTERPRETED = {"spark.sql.codegen.wholeStage": "false", "spark.sql.codegen.factoryMode": "NO_CODEGEN"}
"""The Spark settings that interpret plans, for tables so tiny that compiling takes longer than running."""


@dataclass(frozen=True)
class Bounds:
    """The limits of our own Spark.

    With spark-submit, which sets the limits itself, a master given here is an error. master: ``local[N]`` or
    a cluster's URL; "" for all cores of this machine. memory: the memory of the driver, which does all the
    work in local mode, in Spark's notation. spill: the folder for data that does not fit in memory; None for
    the machine's temporary folder. progress: whether Spark may draw its bar on standard error. ui: whether
    Spark may serve its web page.

    small: whether starting Spark and planning take longer than reading (see `request.is_small`). tiny:
    whether even compiling a plan takes longer. java: more options of the JVM.
    """

    master: str = ""
    memory: str = "2g"
    spill: Path | None = None
    progress: bool = True
    ui: bool = True
    small: bool = False
    tiny: bool = False
    java: str = ""


@contextmanager
def session(bounds: Bounds, hint: Callable[[str], None]) -> Iterator[SparkSession]:
    """Yield a Spark session with our data sources, and stop it at the end of the block.

    hint: receives the address of Spark's web page. Raises UsageError if PySpark or Java is missing.
    """
    try:
        from pyspark.errors import PySparkException, PySparkRuntimeError
        from pyspark.sql import SparkSession

        from zkmigrate.spark.sources import register
    except ImportError as error:
        needed = "the packages of setup/requirements-spark.txt (see ask-before-a-move.md), and Java 17"
        raise UsageError(f"{error}. Needed: {needed}") from error
    if under_spark_submit() and bounds.master:
        raise UsageError(
            "spark-submit has already chosen the master. Needed: --master of spark-submit, not of analyze"
        )
    with ExitStack() as stack:
        stack.enter_context(_ended_in_order())
        builder = SparkSession.builder.config("spark.sql.session.timeZone", "UTC")
        if not under_spark_submit():
            # Otherwise the workers take the first python3 in PATH.
            os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
            spilled = tempfile.TemporaryDirectory(prefix="zkmigrate-spark-", dir=bounds.spill)
            spill = stack.enter_context(spilled)
            quiet = stack.enter_context(as_file(files(__package__) / "log4j2.properties"))
            builder = _own(builder, bounds, Path(spill), quiet)
        try:
            spark = builder.getOrCreate()
        except (PySparkRuntimeError, PySparkException, OSError) as error:
            needed = "Java 17, JAVA_HOME or java in PATH"
            raise UsageError(f"Spark did not start: {error}. Needed: {needed}") from error
        try:
            if not bounds.small:
                register(spark)
            if address := spark.sparkContext.uiWebUrl:
                hint(f"Spark's web page: {address}")
            yield spark
        finally:
            spark.stop()


@contextmanager
def _ended_in_order() -> Iterator[None]:
    """Make SIGTERM end this process like Ctrl-C, so that Spark is stopped and its spilled data removed."""
    before = signal.signal(signal.SIGTERM, lambda number, _frame: sys.exit(128 + number))
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def under_spark_submit() -> bool:
    """Return whether spark-submit started this process. It then has set master, memory and logging."""
    return "PYSPARK_GATEWAY_PORT" in os.environ


def _own(builder: SparkSession.Builder, bounds: Bounds, spill: Path, quiet: Path) -> SparkSession.Builder:
    """Return the builder with the settings of our own Spark.

    spill: the folder for Spark's files. quiet: the properties file for Spark's log4j.
    """
    java = [f"-Dlog4j2.configurationFile={quiet.absolute().as_uri()}", *archive_options(), bounds.java]
    if bounds.small:
        for name, value in (CHEAP | (INTERPRETED if bounds.tiny else {})).items():
            builder = builder.config(name, value)
        java.append(SHORT_LIVED)
        os.environ.setdefault("SPARK_LAUNCHER_OPTS", SHORT_LIVED)
    builder = (
        builder.appName("zkmigrate analyze")
        .config("spark.ui.enabled", str(bounds.ui and not bounds.small).lower())
        .config("spark.ui.showConsoleProgress", str(bounds.progress).lower())
        .config("spark.driver.memory", bounds.memory)
        .config("spark.driver.extraJavaOptions", " ".join(filter(None, java)))
        .config("spark.sql.warehouse.dir", str(spill / "warehouse"))
    )
    if bounds.master and not bounds.master.startswith("local"):
        return builder.master(bounds.master)
    cores = len(os.sched_getaffinity(0))
    return (
        builder.master(bounds.master or f"local[{cores}]")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.sql.shuffle.partitions", "1" if bounds.small else str(2 * cores))
        .config("spark.local.dir", str(spill))
        .config("spark.buffer.pageSize", f"{_page_mib(bounds.memory)}m")
        .config(READ_HERE, str(local_table_bytes(bounds.memory)))
    )


def archive_options() -> Iterator[str]:
    """Yield JVM options to use the archive of `archive`, if the archive exists.

    The options keep warnings about an unsuitable archive out of standard output, which is for the answers.
    """
    if ARCHIVE.is_file():
        yield f'"-XX:SharedArchiveFile={ARCHIVE}"'
        yield "-Xlog:disable -Xlog:all=error:stderr"


def local_table_bytes(memory: str) -> int:
    """Return the bytes of a table that this process may read itself. memory: the size of the JVM's heap."""
    return int(_mib(memory) * _HERE_SHARE) << 20


def _mib(memory: str) -> float:
    """Return the MiB of a size in Spark's notation, such as 2g; 0 for a text that Spark itself rejects."""
    size = re.fullmatch(r"(\d+)([kmgt])b?", memory.strip().lower())
    return int(size[1]) * _MIB[size[2]] if size else 0


def _page_mib(memory: str) -> int:
    """Return the size in MiB of a page in which Spark keeps rows, as small as a heap of `memory` allows.

    Each small table that a join broadcasts takes whole pages, which never spill. With Spark's default pages
    of up to 64 MiB, the job proof kept up to 746 MB of 1 GB alive in our tests; with pages of 2 MiB, 494 MB.
    A task has at most 8192 pages (Spark's TaskMemoryManager) and may use the heap alone.
    """
    return max(2, math.ceil(_mib(memory) / 8192))
