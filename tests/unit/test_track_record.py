"""docs/record: its data are whole, name tests that exist, and both pages are what is made of them."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner

from zkmigrate.errors import UsageError
from zkmigrate.lab.drills import __main__ as series
from zkmigrate.lab.drills.recorded import (
    AREAS,
    GROUPS,
    KEPT,
    LIMITS,
    RECORD,
    TRACK_RECORD,
    Defect,
    Drill,
    Record,
    pages,
    read_record,
    write_pages,
)

ROOT = Path(__file__).resolve().parents[2]
FILES = ("drills", "figures", "defects", "limits")

DRILL = """
[[drill]]
group = "moves"
what = "A | move"
versions = ["3.4.14 to 3.8.4, Kafka 2.8.2"]
conditions = "load 9"
times = "2"
outcome = "held"
seen = "window 3 s"
command = "make demo"
date = 2026-11-25
tree = "abc"
"""
FIGURE = """
[[figure]]
what = "window"
seen = "3 s"
note = "alone"
"""
DEFECT = """
[[defect]]
area = "roll"
found = "review"
seen = "A broker was restarted twice."
cause = "Its clock."
now = "Once."
state = "mended"
tests = ["tests/unit/test_x.py::test_it"]
"""
LIMIT = """
[[limit]]
group = "Size"
what = "Brokers"
tried = ""
refused = "4 | 5"
not_tried = "more"
"""
BODIES = dict(zip(FILES, (DRILL, FIGURE, DEFECT, LIMIT), strict=True))


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A checkout with one entry of each kind, and the test that its defect names."""
    for folder in (RECORD, KEPT, Path("tests/unit")):
        (tmp_path / folder).mkdir(parents=True)
    for name, body in BODIES.items():
        (tmp_path / RECORD / f"{name}.toml").write_text(body)
    (tmp_path / "tests" / "unit" / "test_x.py").write_text("def test_it() -> None: ...\n")
    return tmp_path


def record() -> Record:
    return read_record(ROOT)


# --- this checkout ------------------------------------------------------------------------------------------


def test_the_pages_are_what_the_data_say() -> None:
    """Else: python -m zkmigrate.lab.drills --pages."""
    for path, text in pages(record()).items():
        assert (ROOT / path).read_text() == text, path


def test_nothing_of_the_record_is_lost() -> None:
    found = record()
    assert len(found.drills) >= 49
    assert len(found.figures) >= 9
    assert len(found.defects) >= 226
    assert len({defect.seen for defect in found.defects}) == len(found.defects)


def test_each_group_and_area_has_a_heading_and_is_used() -> None:
    found = record()
    assert {drill.group for drill in found.drills} == set(GROUPS)
    assert {defect.area for defect in found.defects} == set(AREAS)


# --- the generator ------------------------------------------------------------------------------------------


def test_each_entry_is_told_on_its_page(checkout: Path) -> None:
    (checkout / RECORD / "drills.toml").write_text(DRILL + DRILL.replace("3.4.14 to 3.8.4", "3.5.8 to 3.5.8"))
    write_pages(checkout)
    track, limits = ((checkout / path).read_text() for path in (TRACK_RECORD, LIMITS))
    told = "load 9). Times: 2. *Held*: window 3 s. 2026-11-25\n"
    assert f"- **A | move** (3.4.14 to 3.8.4, Kafka 2.8.2; {told}" in track
    assert f"- **A | move** ({told}" in track
    assert "- window: 3 s; alone\n" in track
    assert "- A broker was restarted twice. [x](../tests/unit/test_x.py)\n" in track
    assert "1 defects, 1 of them with a test" in track.replace("\n", " ")
    assert "## Size\n\n| what | tried | refused | not tried |\n" in limits
    assert "| Brokers | not tried | 4 / 5 | more |\n" in limits


def test_limits_of_one_group_are_one_table_wherever_they_stand(checkout: Path) -> None:
    other = LIMIT.replace('"Size"', '"Time"')
    (checkout / RECORD / "limits.toml").write_text(LIMIT + other + LIMIT.replace("Brokers", "Disks"))
    write_pages(checkout)
    told = (checkout / LIMITS).read_text()
    assert [line for line in told.splitlines() if line.startswith("## ")] == ["## Size", "## Time"]
    assert told.index("| Disks |") < told.index("## Time")


def test_a_defect_that_no_test_finds_says_why(checkout: Path) -> None:
    path = checkout / RECORD / "defects.toml"
    path.write_text(DEFECT.replace('tests = ["tests/unit/test_x.py::test_it"]', 'untested = "it is slow"'))
    write_pages(checkout)
    track = (checkout / TRACK_RECORD).read_text()
    assert "- A broker was restarted twice. (no test: it is slow)\n" in track
    assert "1 defects, 0 of them with a test" in track.replace("\n", " ")


@pytest.mark.parametrize("area", AREAS)
def test_defects_of_lab_and_tests_are_counted_and_all_others_told(checkout: Path, area: str) -> None:
    path = checkout / RECORD / "defects.toml"
    path.write_text(DEFECT.replace('"roll"', f'"{area}"'))
    write_pages(checkout)
    track = (checkout / TRACK_RECORD).read_text().replace("\n", " ")
    apart = area in ("lab", "tests")
    assert ("A broker was restarted twice." in track, f"also {int(apart)} of lab" in track) == (
        not apart,
        True,
    )


@pytest.mark.parametrize(
    ("file", "old", "new", "said"),
    [
        ("drills", 'times = "2"\n', "", "drills.toml: drill 1: times: Field required"),
        ("drills", 'times = "2"', 'times = "2"\ntime = 2', "drills.toml: drill 1: time: Extra inputs"),
        ("drills", '"held"', '"fine"', "drills.toml: drill 1: outcome: Input should be 'held'"),
        ("drills", "3.4.14 to", "3.4.14 and", "drills.toml: drill 1: versions.0: String should match"),
        ("drills", "2026-11-25", '"today"', "drills.toml: drill 1: date: Input should be a valid date"),
        ("figures", "[[figure]]", "[[figures]]", r"figures.toml: figures: unknown, needed \[\[figure\]\]"),
        ("figures", '"alone"', '""', "figures.toml: figure 1: note: String should have at least 1"),
        ("limits", 'not_tried = "more"', "", "limits.toml: limit 1: not_tried: Field required"),
        ("limits", "[[limit]]", "[[limit", "limits.toml: Expected"),
        ("defects", '"roll"', '"role"', "defects.toml: defect 1: area: Input should be 'window'"),
        (
            "defects",
            "::test_it",
            "::test_no",
            r"defect 1 \(A broker .*\): no test_no in tests/unit/test_x.py",
        ),
        ("defects", "::test_it", "::test_i", "no test_i in tests/unit/test_x.py"),
        ("defects", "test_x.py", "test_y.py", "defect 1 .*: no file tests/unit/test_y.py"),
        ("defects", "tests = ", "untested = 'slow'\ntests = ", "tests or untested, one of them, is needed"),
        ("defects", 'tests = ["tests/unit/test_x.py::test_it"]', "", "tests or untested, one of them"),
    ],
)
def test_what_is_wrong_in_the_data_is_named(checkout: Path, file: str, old: str, new: str, said: str) -> None:
    path = checkout / RECORD / f"{file}.toml"
    assert old in path.read_text()
    path.write_text(path.read_text().replace(old, new))
    with pytest.raises(UsageError, match=said):
        read_record(checkout)


@pytest.mark.parametrize("file", FILES)
def test_a_file_that_is_not_there_is_named(checkout: Path, file: str) -> None:
    (checkout / RECORD / f"{file}.toml").unlink()
    with pytest.raises(UsageError, match=f"{file}.toml"):
        read_record(checkout)


def test_the_pages_are_written_without_running_a_drill(
    checkout: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(checkout)
    done = CliRunner().invoke(series.main, ["--pages"])
    assert (done.exit_code, done.output) == (0, "")
    assert (checkout / LIMITS).read_text().startswith("# Limits\n")


def test_an_entry_has_each_of_its_keys() -> None:
    """A person who adds one is told of each that is missing; only a defect's tests may be left out."""
    assert [name for name, field in Drill.model_fields.items() if not field.is_required()] == []
    optional = [name for name, field in Defect.model_fields.items() if not field.is_required()]
    assert optional == ["tests", "untested"]
