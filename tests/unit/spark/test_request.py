"""What counts as a small analysis."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.unit.zkdata_fixtures import build_log
from zkmigrate.errors import UsageError
from zkmigrate.spark import verb
from zkmigrate.spark.request import SMALL, SMALL_TREES, TINY, Place, Request, data_bytes, is_small
from zkmigrate.spark.section import Section
from zkmigrate.spark.session import Bounds
from zkmigrate.spark.sources.files import File

ENOUGH_S = 60.0


@pytest.fixture
def log(tmp_path: Path) -> Path:
    """A log as a server leaves it: a few records, then zeros up to more bytes than are small."""
    inside = tmp_path / "zk" / "version-2"
    inside.mkdir(parents=True)
    found = inside / "log.1"
    found.write_bytes(build_log(1, 10))
    with found.open("r+b") as file:
        file.truncate(2 * SMALL)
    return found


def request_for(log: Path) -> Request:
    return Request((Place("", str(log.parents[1])),))


def test_zeros_that_a_server_keeps_in_advance_do_not_count(log: Path) -> None:
    assert is_small(request_for(log))
    assert data_bytes(File("zk", str(log), log.stat().st_size)) == len(build_log(1, 10))


@pytest.mark.parametrize(
    ("source", "dest", "small"),
    [
        ((SMALL,), (), True), ((SMALL + 1,), (), False), ((SMALL // 2, SMALL // 2 + 1), (), False),
        ((1,), (SMALL_TREES - 1,), True), ((1,), (SMALL_TREES,), False),
    ],
)  # fmt: skip
def test_all_servers_together_have_to_be_small(
    tmp_path: Path, source: tuple[int, ...], dest: tuple[int, ...], small: bool
) -> None:
    places = []
    for number, size in enumerate((*source, *dest)):
        inside = tmp_path / f"zk{number}" / "version-2"
        inside.mkdir(parents=True)
        with (inside / "log.1").open("wb") as file:
            file.seek(size - 1)
            file.write(b"B")
        places.append(Place("", str(tmp_path / f"zk{number}")))
    request = Request(tuple(places[: len(source)]), dest=tuple(places[len(source) :]))
    assert is_small(request) is small


def test_a_snapshot_counts_whole(tmp_path: Path) -> None:
    with (tmp_path / "snapshot.1").open("wb") as file:
        file.truncate(SMALL + 1)
    assert not is_small(Request((Place("", str(tmp_path)),)))


@pytest.mark.parametrize(
    "more",
    [
        {"server_logs": ("/s",)}, {"fleet_partitions": "/p"}, {"source_logs": ("/b",)},
    ],
)  # fmt: skip
def test_what_is_not_looked_at_may_be_large(log: Path, more: dict[str, Any]) -> None:
    assert not is_small(replace(request_for(log), **more))


def test_a_place_with_nothing_is_left_to_the_job_that_says_so(tmp_path: Path) -> None:
    assert is_small(Request((Place("", str(tmp_path / "nothing")),)))


def test_the_session_is_told(log: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[tuple[bool, bool]] = []

    @contextmanager
    def seen(bounds: Bounds, _hint: verb.Say) -> Iterator[None]:
        told.append((bounds.small, bounds.tiny))
        yield None

    monkeypatch.setattr(verb, "session", seen)
    verb.analyze((), request_for(log), Bounds(), None, print, print, as_json=True)
    verb.analyze(
        (), replace(request_for(log), server_logs=("/b",)), Bounds(), None, print, print, as_json=True
    )
    (log.parent / "log.2").write_bytes(b"B" * (TINY + 1))
    verb.analyze((), request_for(log), Bounds(), None, print, print, as_json=True)
    assert told == [(True, True), (False, False), (True, False)]


@pytest.mark.parametrize(
    ("memory", "dest", "together"), [("16m", False, True), ("15m", False, False), ("16m", True, False)]
)
def test_jobs_run_side_by_side_where_all_their_tables_fit_in_memory(
    memory: str, dest: bool, together: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is read is just a MiB, a sixteenth of 16. Otherwise each job gives back what it kept."""
    with (tmp_path / "log.1").open("wb") as file:
        file.seek((1 << 20) - 1 - dest)
        file.write(b"B")
    (tmp_path / "dest").mkdir()
    (tmp_path / "dest" / "log.1").write_bytes(b"B" * dest)
    in_main: list[bool] = []
    done: list[str] = []

    def run(_given: object) -> Section:
        in_main.append(threading.current_thread() is threading.main_thread())
        done.append("job")
        return Section("", "", {})

    @contextmanager
    def this(_bounds: Bounds, _hint: verb.Say) -> Iterator[SimpleNamespace]:
        yield SimpleNamespace(catalog=SimpleNamespace(clearCache=lambda: done.append("given back")))

    monkeypatch.setattr(verb, "session", this)
    monkeypatch.setattr(verb, "job", lambda _name: run)
    request = Request((Place("", str(tmp_path)),), dest=(Place("d", str(tmp_path / "dest")),) if dest else ())
    verb.analyze(("tenants", "quiet"), request, Bounds(memory=memory), None, print, print, as_json=True)
    assert in_main == [not together] * 2
    assert done == (["job", "job"] if together else ["job", "given back"] * 2)


def test_small_jobs_run_side_by_side_and_are_told_in_order() -> None:
    both = threading.Barrier(2)
    second = threading.Event()

    def one(name: str) -> Section:
        both.wait(ENOUGH_S)
        if name == "first":
            assert second.wait(ENOUGH_S)
        else:
            second.set()
        return Section(name, "", {})

    assert [found.title for found in verb.side_by_side(one, ("first", "second"))] == ["first", "second"]


def test_nobody_waits_for_a_job_beside_one_that_failed() -> None:
    begun, told, ended = threading.Event(), threading.Event(), threading.Event()

    def one(name: str) -> Section:
        if name == "fails":
            assert begun.wait(ENOUGH_S)
            raise UsageError("why")
        begun.set()
        assert told.wait(ENOUGH_S)
        ended.set()
        return Section(name, "", {})

    with pytest.raises(UsageError, match="why"):
        list(verb.side_by_side(one, ("fails", "runs")))
    assert not ended.is_set()
    told.set()
    assert ended.wait(ENOUGH_S)
