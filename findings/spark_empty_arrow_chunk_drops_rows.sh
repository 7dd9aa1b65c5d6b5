#!/bin/sh
# Finding: createDataFrame of an Arrow table drops every row that follows an empty chunk.
#
# Versions: pyspark 4.3.0, pyarrow 26.0.1, Java 17, Python 3.11; seen on 2026-11-28.
# Input:    pyarrow.Table.from_batches of three record batches: one row, no row, one row. pyarrow counts two rows in it.
# Expected: a DataFrame of two rows.
# Seen:     a DataFrame of one row, and no warning:
#             pyarrow 2, spark 1
#           A data source whose read() yields the same three batches gives both rows.
# Who meets it: whoever makes a DataFrame of batches from a filter or a reader, of which some are empty. Leave empty batches
#           out first (or Table.combine_chunks()).
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

schema = pa.schema([("n", pa.int64())])
batches = [pa.RecordBatch.from_pydict({"n": numbers}, schema=schema) for numbers in ([1], [], [2])]
table = pa.Table.from_batches(batches)
spark = (
    SparkSession.builder.master("local[1]")
    .config("spark.ui.enabled", "false")
    .config("spark.driver.bindAddress", "127.0.0.1")
    .config("spark.driver.host", "127.0.0.1")
    .getOrCreate()
)
print(f"pyarrow {table.num_rows}, spark {spark.createDataFrame(table).count()}")
PY
seen=$(PYSPARK_PYTHON="$work/env/bin/python" env/bin/python seen.py 2>errors) || { cat errors >&2; exit 1; }
printf '%s\n' "$seen"
[ "$seen" = "pyarrow 2, spark 1" ]
