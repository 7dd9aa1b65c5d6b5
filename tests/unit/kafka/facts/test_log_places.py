"""Where a broker's log directories are, by what its file calls them."""

from __future__ import annotations

from tests.unit.preflight_world import CMDLINE, FACTS, PreflightWorld, words_of
from tests.world.operator import inventory
from zkmigrate.kafka.facts.broker import log_places
from zkmigrate.runbook.model.fact import Reading, Seen, Unknown

HOST = "broker1"
RELATIVE = {"log.dirs": "data/a,/b"}
ENDS = "ignore_errors=no ; start_time=[n/a] ; stop_time=[n/a] ; pid=0 ; code=(null) ; status=0/0"
OWN = f"unit.ExecStart={{ path=/opt/own ; argv[]=/opt/own ; {ENDS} }}\n"
KAFKA = f"unit.ExecStart={{ path=/usr/bin/java ; argv[]=/usr/bin/java kafka.Kafka /s.properties ; {ENDS} }}\n"


def places(facts: str, pid: int, named: dict[str, str] = RELATIVE) -> Reading[object]:
    world = PreflightWorld()
    if facts:
        world.programs[HOST, "facts"] = Seen(FACTS + facts)
    world.files[HOST, "/proc/311/cmdline"] = words_of(*CMDLINE)
    world.files[HOST, "/proc/311/environ"] = words_of()
    return log_places(world, HOST, inventory().kafka, named, pid)


def test_a_whole_path_is_taken_as_it_is_and_nobody_is_asked() -> None:
    assert places("", 0, {"log.dirs": "/a,/b"}) == Seen({"/a": "/a", "/b": "/b"})


def test_a_relative_one_is_where_the_unit_starts_the_broker() -> None:
    unit = f"unit.WorkingDirectory=/srv\n{KAFKA}"
    assert places(unit, 311) == Seen({"data/a": "/srv/data/a", "/b": "/b"})


def test_else_it_is_where_the_process_works() -> None:
    assert places(OWN, 311) == Seen({"data/a": "/proc/311/cwd/data/a", "/b": "/b"})


def test_where_neither_tells_it_is_unknown() -> None:
    told = places(OWN, 0)
    assert isinstance(told, Unknown)
    assert told.why == "data/a is a relative path, and the broker's working directory is unknown"
    assert isinstance(places("", 311), Unknown)


def test_commands_of_the_inventory_name_no_unit() -> None:
    world = PreflightWorld()
    world.programs[HOST, "facts"] = Seen(FACTS + KAFKA)
    kafka = inventory().kafka
    service = kafka.service.model_copy(update={"start": "/s", "stop": "/t", "status": "/u"})
    told = log_places(world, HOST, kafka.model_copy(update={"service": service}), RELATIVE, 0)
    assert isinstance(told, Unknown)
