"""The verb ``analyze``: what its options become."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from zkmigrate.cli.main import cli
from zkmigrate.cluster.placement.request import Rebalance
from zkmigrate.cluster.placement.what_if import WhatIf
from zkmigrate.spark import verb
from zkmigrate.spark.request import Request

Asked = list[tuple[tuple[str, ...], Request]]


@pytest.fixture
def asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Asked:
    """What the verb is called with: jobs and request."""
    monkeypatch.chdir(tmp_path)
    seen: Asked = []

    def analyze(names: tuple[str, ...], request: Request, *_: Any, **__: Any) -> int:
        seen.append((names, request))
        return 0

    monkeypatch.setattr(verb, "analyze", analyze)
    return seen


def call(*words: str) -> Result:
    return CliRunner().invoke(cli, ["analyze", *words])


def test_what_ifs_are_read_before_spark_starts(tmp_path: Path, asked: Asked) -> None:
    (tmp_path / "w.json").write_text('[{"name": "more", "verb": "scale", "effort": 3}]')
    fleet = ("--fleet-partitions", "p.jsonl", "--fleet-brokers", "b.parquet")
    done = call("tenants,placement", "--what-if", "w.json", *fleet)
    assert done.exit_code == 0, done.output
    [(names, request)] = asked
    assert names == ("tenants", "placement")
    assert request.what_ifs == (WhatIf("more", Rebalance(scale=True, effort=3)),)
    assert (request.fleet_partitions, request.fleet_brokers) == ("p.jsonl", "b.parquet")


@pytest.mark.parametrize(
    ("option", "content", "said"),
    [
        ("--what-if", None, "absent: No such file or directory. Needed: a file of what-ifs"),
        ("--what-if", "[]", "bad: seen an empty list"),
    ],
)
def test_a_bad_file_ends_it_before_spark_starts(
    option: str, content: str | None, said: str, tmp_path: Path, asked: Asked
) -> None:
    name = "absent" if content is None else "bad"
    if content is not None:
        (tmp_path / name).write_text(content)
    done = call("placement", option, name)
    assert (done.exit_code, asked) == (2, [])
    assert said in done.stderr


def test_all_plans_a_fleet_only_where_one_is_given(asked: Asked) -> None:
    assert call("all", "zk").exit_code == 0
    assert call("all", "zk", "--fleet-partitions", "p").exit_code == 0
    assert ["placement" in names for names, _ in asked] == [False, True]
