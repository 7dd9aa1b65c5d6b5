#!/bin/sh
# Finding: a filter that Spark pushes into a Python data source stays in the DataFrame for its later queries.
#
# Versions: pyspark 4.3.0, pyarrow 26.0.1, Java 17, Python 3.11; seen on 2026-11-28.
# Source:   a data source of ten rows, 0 to 9, whose reader implements pushFilters and returns every filter, so that Spark
#           filters again. spark.sql.python.filterPushdown.enabled is true.
# Expected: each query of one DataFrame has its own filters: 2 rows for n > 7, then 10 rows without a filter.
# Seen:     the second query has the first one's rows, and no warning:
#             filtered 2, then all 2, loaded anew 10
# Who meets it: whoever counts, filters or joins one DataFrame of such a source twice. Load it anew for each query.
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
import pyarrow as pa
from pyspark.sql import SparkSession
from pyspark.sql.datasource import DataSource, DataSourceReader, GreaterThan, InputPartition

SCHEMA = pa.schema([("n", pa.int64())])


class Reader(DataSourceReader):
    least = -1

    def pushFilters(self, filters):
        for one in filters:
            if isinstance(one, GreaterThan):
                self.least = max(self.least, one.value)
        return filters

    def partitions(self):
        return [InputPartition(0)]

    def read(self, partition):
        numbers = [n for n in range(10) if n > self.least]
        yield pa.RecordBatch.from_pydict({"n": numbers}, schema=SCHEMA)


class Numbers(DataSource):
    @classmethod
    def name(cls):
        return "numbers"

    def schema(self):
        return "n bigint"

    def reader(self, schema):
        return Reader()


spark = (
    SparkSession.builder.master("local[1]")
    .config("spark.ui.enabled", "false")
    .config("spark.driver.bindAddress", "127.0.0.1")
    .config("spark.driver.host", "127.0.0.1")
    .config("spark.sql.python.filterPushdown.enabled", "true")
    .getOrCreate()
)
spark.dataSource.register(Numbers)
frame = spark.read.format("numbers").load()
filtered, everything = frame.filter("n > 7").count(), frame.count()
anew = spark.read.format("numbers").load().count()
print(f"filtered {filtered}, then all {everything}, loaded anew {anew}")
PY
seen=$(PYSPARK_PYTHON="$work/env/bin/python" env/bin/python seen.py 2>errors) || { cat errors >&2; exit 1; }
printf '%s\n' "$seen"
[ "$seen" = "filtered 2, then all 2, loaded anew 10" ]
