#!/bin/sh
# Finding: Spark calls read(InputPartition(None)) of a Python data source whose partitions() returned an empty list.
#
# Versions: pyspark 4.3.0, pyarrow 26.0.1, Java 17, Python 3.11; seen on 2026-11-28.
# Source:   a data source whose reader plans no partition, since there is nothing to read.
# Expected: an empty table; read is not called, as nothing was planned.
# Seen:     read is called once, with a partition that the reader never made and whose value is None:
#             rows 0, read was given None
#           A reader that relies on its own partitions (their class, their value) raises an error instead of being empty.
# Who meets it: whoever plans partitions from a listing that may be empty. Return from read when the value is None.
# The script exits with 1 when Spark behaves otherwise.
set -eu

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
trap 'exit 130' INT TERM
cd "$work"
python3 -m venv env
env/bin/pip --quiet --disable-pip-version-check install setuptools==80.9.0 wheel==0.45.1 pyarrow==26.0.1
env/bin/pip --quiet --disable-pip-version-check install --no-build-isolation pyspark==4.3.0

cat >seen.py <<'PY'
import pathlib
import sys

from pyspark.sql import SparkSession
from pyspark.sql.datasource import DataSource, DataSourceReader

NOTE = pathlib.Path(sys.argv[1])


class Reader(DataSourceReader):
    def __init__(self, note):
        self.note = note

    def partitions(self):
        return []

    def read(self, partition):
        with open(self.note, "a") as file:
            file.write(f"{partition.value}\n")
        return iter([])


class Nothing(DataSource):
    @classmethod
    def name(cls):
        return "nothing"

    def schema(self):
        return "n bigint"

    def reader(self, schema):
        return Reader(self.options["note"])


spark = (
    SparkSession.builder.master("local[1]")
    .config("spark.ui.enabled", "false")
    .config("spark.driver.bindAddress", "127.0.0.1")
    .config("spark.driver.host", "127.0.0.1")
    .getOrCreate()
)
spark.dataSource.register(Nothing)
rows = spark.read.format("nothing").option("note", str(NOTE)).load().collect()
print(f"rows {len(rows)}, read was given {' '.join(NOTE.read_text().split()) if NOTE.exists() else 'nothing'}")
PY
seen=$(PYSPARK_PYTHON="$work/env/bin/python" env/bin/python seen.py "$work/note" 2>errors) || { cat errors >&2; exit 1; }
printf '%s\n' "$seen"
[ "$seen" = "rows 0, read was given None" ]
