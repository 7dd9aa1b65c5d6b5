"""analyze mirror, and mirror compare of log directories: equal ones, and one changed header."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from click.testing import CliRunner
from pyspark.sql import SparkSession

from tests.unit.topics.mirror.batches import MS, at, built, in_transaction, marker
from tests.unit.topics.mirror.logs import body, holding, put, segments
from zkmigrate.cli.main import cli
from zkmigrate.errors import UsageError
from zkmigrate.spark import compare_logs
from zkmigrate.spark.input import Input
from zkmigrate.spark.jobs import mirror
from zkmigrate.spark.request import Request
from zkmigrate.spark.session import Bounds

ONE = built(3, codec=1)
LAST, CHANGED = (
    holding([(6, MS, body(b"k", b"v", {"h": b"0"})), (7, MS, body(b"k", b"v", {"h": header}))])
    for header in (b"1", b"9")
)


@pytest.fixture
def sides(tmp_path: Path) -> tuple[list[str], list[str]]:
    """Source on two brokers, one of them behind; target on one. paid-1 has one other header, lost-0 is not on
    target, torn-0 ends in the middle of a batch, bad-0 is damaged."""
    equal = [in_transaction(ONE, 1), marker(3, 1, commit=False), at(ONE, 4)]
    mirrored = [marker(3, 9, commit=False), at(ONE, 4)]
    plain = [ONE, at(ONE, 3), LAST]
    whole = segments(plain, [1])
    [name] = segments(plain)
    torn = {name: segments(plain)[name] + segments([at(ONE, 8)])[f"{8:020}.log"][:90]}
    damaged = {name: segments(plain)[name][:-1] + b"\7"}
    first = {
        "paid-0": segments(equal, [1]),
        "paid-1": whole,
        "lost-0": whole,
        "torn-0": torn,
        "bad-0": whole,
        "other-0": whole,
    }
    here = put(tmp_path / "a1", first, starts={"paid-0": 4}, watermarks={"paid-1": 8, "paid-0": 7})
    late = put(tmp_path / "a2", {"paid-1": segments([ONE])}, watermarks={"paid-1": 3})
    second = {
        "paid-0": segments(mirrored),
        "paid-1": segments([ONE, at(ONE, 3), CHANGED], [2]),
        "torn-0": whole,
        "bad-0": damaged,
    }
    return [late, here], [put(tmp_path / "b", second)]


def test_the_first_difference_of_each_partition_is_named(
    spark: SparkSession, sides: tuple[list[str], list[str]]
) -> None:
    topics = ("paid", "lost", "torn", "bad")
    request = Request((), source_logs=tuple(sides[0]), target_logs=tuple(sides[1]), topics=topics)
    found = mirror.run(Input(spark, request))
    told = {f"{one['topic']}-{one['partition']}": one for one in found.figures["partitions"]}
    assert {name: (one["state"], one["records"]) for name, one in told.items()} == {
        "bad-0": ("unknown", 0),
        "lost-0": ("unknown", 0),
        "paid-0": ("equal", 3),
        "paid-1": ("different", 7),
        "torn-0": ("equal", 8),
    }
    assert told["paid-1"]["why"] == "offset 7: source's headers is [(b'h', b'1')], target's [(b'h', b'9')]"
    assert told["paid-1"]["differing"] == {"headers": 1}
    assert told["lost-0"]["why"] == "target's directories have no such partition"
    assert "bad-0" in told["bad-0"]["why"]
    assert "CRC: the batch at offset 6 is damaged" in told["bad-0"]["why"]
    assert [note for one in told.values() for note in one["notes"] if "torn from byte" in note]
    assert (found.proves, found.held) == (True, False)
    assert found.answer.startswith("partitions: 5, different: 1, records: 18. First: paid-1: ")
    rows = found.frames["partitions"].filter("state = 'different'").collect()
    assert [(row.topic, row.differing, row.begun, row.end) for row in rows] == [
        ("paid", {"headers": 1}, 0, 8)
    ]


def test_mirror_compare_has_the_text_and_codes_of_the_verb(
    spark: SparkSession, sides: tuple[list[str], list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    @contextmanager
    def this(_bounds: Bounds, _hint: compare_logs.Say) -> Iterator[SparkSession]:
        yield spark

    monkeypatch.setattr(compare_logs, "session", this)
    words = [word for path in sides[0] for word in ("--source-logs", path)]
    words += ["--target-logs", sides[1][0], "--topic"]

    def done(*more: str) -> tuple[int, str]:
        answered = CliRunner().invoke(cli, ["mirror", "compare", *words, *more])
        return answered.exit_code, answered.output

    code, output = done("paid")
    assert code == 10
    assert output.splitlines() == [
        "paid-0: equal, compared records: 3, offsets 4 to 7",
        "paid-1: different: offset 7: source's headers is [(b'h', b'1')], target's [(b'h', b'9')]",
        "    differing records: headers 1",
        "partitions: 2, different: 1, records: 10",
    ]
    code, output = done("torn", "--json")
    [one] = json.loads(output)["partitions"]
    assert (code, one["state"], one["begun"], one["end"]) == (0, "equal", 0, 8)
    assert done("bad")[0] == 11
    code, output = done("none")
    assert (code, "source's directories have no partition of topic none" in output) == (2, True)


def test_what_is_missing_is_named(spark: SparkSession) -> None:
    with pytest.raises(UsageError, match="Needed: --source-logs DIR, --target-logs DIR and --topic TOPIC"):
        mirror.compared(spark, Request((), source_logs=("a",), topics=("t",)))
