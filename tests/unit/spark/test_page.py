"""The page of an analysis, made without Spark: its pictures, and text that wants to be more than text."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree

from tests.unit.report.test_report import HOSTILE, Strict
from zkmigrate.clean import clean
from zkmigrate.runbook.model.report import Table
from zkmigrate.spark.charts import Bar, bars, over_time, week
from zkmigrate.spark.pack import pack
from zkmigrate.spark.page import page
from zkmigrate.spark.section import Picture, Section


def hostile() -> dict[str, Section]:
    """Every text of an answer, of its tables and pictures is a hostile one."""
    of = [Bar(word, float(n)) for n, word in enumerate(HOSTILE)]
    marks = [(float(n), word) for n, word in enumerate(HOSTILE)]
    return {
        f"job{n}": Section(
            word, word, {}, (Table(f"t{n}", word, (word,), ((word,), *[(word,)] * 55), word),),
            (
                Picture(bars(word, of), word),
                Picture(over_time(word, [(0.0, 1.0), (9.0, 3.0)], 1.0, marks), word),
                Picture(week(word, {(0, 0): 2.0, (6, 23): 1.0}), word),
            ),
        )
        for n, word in enumerate(HOSTILE)
    }  # fmt: skip


def test_hostile_text_stays_text_on_the_page_of_an_analysis() -> None:
    parsed, made = Strict(), page(HOSTILE[0], HOSTILE[1], hostile())
    parsed.feed(made)
    tags = {tag for tag, _ in parsed.elements}
    assert not tags & {"script", "img", "u"}
    assert not [name for _, attributes in parsed.elements for name in attributes if name.startswith("on")]
    links = [attributes["href"] for tag, attributes in parsed.elements if tag == "a"]
    assert links == [f"#job-job{n}" for n in range(len(HOSTILE))]
    for word in HOSTILE:
        assert clean(word).split("\n")[0] in parsed.text
    assert parsed.text.count("6 more of 56 rows") == len(HOSTILE)
    assert clean(made) == made


def test_a_bar_is_as_wide_as_its_share_of_the_largest() -> None:
    root = ElementTree.fromstring(bars("Bytes", [Bar("a", 1234567.0), Bar("b", 308641.75), Bar("c", 0.0)]))
    assert [e.attrib["style"] for e in root.iter("i")] == ["width:80.0%", "width:20.0%", "width:0.0%"]
    assert ["".join(e.itertext()).strip() for e in root.iter("td")] == ["1,234,567", "308,641.75", "0"]


def test_an_hour_of_the_week_without_data_is_told_from_a_quiet_one() -> None:
    cells = list(ElementTree.fromstring(week("Per hour", {(0, 1): 0.0, (6, 23): 4.0})).iter("td"))
    assert len(cells) == 7 * 24
    assert [cells[n].attrib["title"] for n in (0, 1, -1)] == ["Mon 0 h: no data", "Mon 1 h: 0", "Sun 23 h: 4"]
    assert [cells[n].get("style") for n in (0, 1, -1)] == [
        None, "background:rgba(0, 114, 178, 0.12)", "background:rgba(0, 114, 178, 1.0)",
    ]  # fmt: skip


def test_columns_over_time_are_no_more_than_pixels_and_keep_the_highest() -> None:
    points = [(float(n), 9.0 if n == 5000 else 1.0 + n % 3) for n in range(10000)]
    drawn = ElementTree.fromstring(over_time("Writes", points, 1.0, [(5000.0, "cutover.open")]))
    columns = [e for e in drawn.iter() if e.tag.endswith("rect")]
    assert 900 < len(columns) < 1000
    assert sum(float(e.attrib["height"]) == 120 for e in columns) == 1
    assert "cutover.open" in "".join(drawn.itertext())


def test_a_cluster_makes_pages_from_the_archive_alone_and_its_workers_import_no_jinja(tmp_path: Path) -> None:
    pack(tmp_path / "code.zip")
    code = (
        "import sys; from importlib import import_module; from zkmigrate.spark.jobs import JOBS\n"
        "for name in JOBS: import_module(f'zkmigrate.spark.jobs.{name}')\n"
        "assert not {'jinja2', 'markupsafe'} & set(sys.modules)\n"
        "from zkmigrate.spark.page import page; print(page('of the archive', '', {}))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=tmp_path,
        env={"PYTHONPATH": "code.zip"},
        capture_output=True,
        text=True,
    )
    assert "<h1>of the archive</h1>" in done.stdout, done.stderr
