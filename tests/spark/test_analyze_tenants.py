"""analyze tenants, on what real servers left."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from tests.unit.zkdata_fixtures import VERSIONS, create_payload, log_from, payload, set_payload, text
from tests.unit.zookeeper.data.whole_tree import load_whole
from zkmigrate.errors import UsageError
from zkmigrate.spark import open_sessions
from zkmigrate.spark.input import Input
from zkmigrate.spark.jobs import tenants
from zkmigrate.spark.jobs.tenants import znodes
from zkmigrate.spark.request import Place, Request
from zkmigrate.zookeeper.data.effect import CONTAINER_OWNER, SESSIONS, TTL_OWNER, is_session
from zkmigrate.zookeeper.data.reader import FileDirectory


@pytest.mark.parametrize("version", VERSIONS)
def test_subtrees_have_the_znodes_that_stand_at_the_end_of_the_log(
    version: str, spark: SparkSession, recorded: Path
) -> None:
    folder = recorded / version / "standalone"
    found = tenants.run(Input(spark, Request((Place("a", str(folder)),))))
    directory = FileDirectory(folder / "version-2")
    tree = load_whole(directory)
    wanted: Counter[str] = Counter()
    data: Counter[str] = Counter()
    ephemerals: Counter[str] = Counter()
    for path, node in tree.nodes.items():
        top = "/" + path.split("/")[1]
        wanted[top] += 1
        data[top] += max(node.data_length, 0)
        ephemerals[top] += is_session(node.ephemeral_owner)
    rows = {row["subtree"]: row for row in found.figures["subtrees"]}
    there = {name: row for name, row in rows.items() if row["znodes"]}
    assert {name: row["znodes"] for name, row in there.items()} == wanted
    assert {name: row["bytes"] for name, row in there.items()} == {name: data[name] for name in wanted}
    assert {name: row["ephemerals"] for name, row in there.items()} == {n: ephemerals[n] for n in wanted}
    assert rows["/kafka"]["writes"] > rows["/other"]["writes"] > 0


def test_the_last_epoch_says_what_stands(spark: SparkSession, tmp_path: Path) -> None:
    later = 1 << 32
    made = [
        create_payload(1, "/kafka"),
        create_payload(2, "/kafka/gone"),
        create_payload(3, "/kafka/kept"),
        create_payload(4, "/kafka/back", b"old"),
        payload(5, 2, text("/kafka/back")),
        set_payload(6, "/kafka/kept", b"long"),
        set_payload(later | 1, "/kafka/kept", b"ne"),
        payload(later | 2, 2, text("/kafka/gone")),
        create_payload(later | 3, "/kafka/back", ephemeral=True),
    ]
    (tmp_path / "log.1").write_bytes(log_from(made))
    rows = znodes(Input(spark, Request((Place("a", str(tmp_path)),)))).collect()
    found = {row.path: (row.data_length, row.ephemeral_owner) for row in rows if "kafka" in row.path}
    assert found == {"/kafka": (1, 0), "/kafka/kept": (2, 0), "/kafka/back": (1, 0x77)}


def test_watches_are_told_where_they_are_given(spark: SparkSession, recorded: Path, tmp_path: Path) -> None:
    for name, answer in (("a", "/kafka\n\t0x1\n\t0x2\n/kafka/x\n\t0x1\n\n"), ("b", "/other\n\t0x3\n\n")):
        (tmp_path / name).write_text(answer)
    request = Request(
        (Place("", str(recorded / "3.8.4/standalone")),), watches=(tmp_path / "a", tmp_path / "b")
    )
    found = {row["subtree"]: row["watches"] for row in tenants.run(Input(spark, request)).figures["subtrees"]}
    assert found == {"/kafka": 3, "/other": 1, "/": 0, "/zookeeper": 0}
    (tmp_path / "b").write_text("/other\n\t0x3\n")
    with pytest.raises(UsageError, match="the end of the answer is missing"):
        tenants.run(Input(spark, request))


def test_a_znode_near_jute_maxbuffer_is_named(spark: SparkSession, recorded: Path) -> None:
    place = Place("", str(recorded / "3.8.4/standalone"))
    found = tenants.run(Input(spark, Request((place,), jute_maxbuffer=25_000)))
    assert found.figures["near_jute_maxbuffer"] == ["/kafka/big: 20000 bytes"]
    assert "/kafka/big: 20000 bytes" in found.answer


def test_the_column_of_owners_says_what_effect_says(spark: SparkSession) -> None:
    ends = (0, CONTAINER_OWNER, TTL_OWNER, *(at for some in SESSIONS for at in (some.start, some.stop - 1)))
    owners = sorted({at for end in ends for at in (end - 1, end, end + 1) if -(1 << 63) <= at < 1 << 63})
    rows = spark.createDataFrame([(owner,) for owner in owners], "owner long")
    told = rows.select("owner", open_sessions.is_session(F.col("owner")).alias("session")).collect()
    assert {row.owner: row.session for row in told} == {owner: is_session(owner) for owner in owners}
