"""``--json``: whatever happens, standard output can be parsed and says how it ended."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from click.testing import Result

import zkmigrate
from tests.unit.cli.test_main import Place, place
from tests.unit.inventory.test_inventory import GOOD
from zkmigrate.runbook.engine import journal

__all__ = ["place"]

VERBS: dict[str, tuple[str, ...]] = {
    "preflight": ("preflight", "--json"),
    "plan": ("plan", "--json"),
    "run": ("run", "--json", "--yes"),
    "resume": ("resume", "--json", "--yes"),
    "rollback": ("rollback", "--json", "--yes"),
    "status": ("status", "--json", "--offline"),
}
EVENTS = ("run", "resume", "rollback")


def bad_inventory(place: Place) -> None:
    place.file.write_text(GOOD.replace("myid: 12", "myid: 2"))


def damaged_journal(place: Place) -> None:
    assert place.call("run", "--yes", "--until", "install").exit_code == 0
    file = place.runs / "lab-1" / journal.NAME
    file.write_bytes(file.read_bytes().replace(b"install", b"instalt", 1))


def no_run(_place: Place) -> None:
    return None


CODES = {
    bad_inventory: dict.fromkeys(VERBS, 2),
    damaged_journal: {"plan": 0, **dict.fromkeys((*EVENTS, "preflight", "status"), 8)},
    no_run: {"preflight": 0, "plan": 0, "run": 0, "resume": 2, "rollback": 2, "status": 2},
}


def last(done: Result) -> dict[str, Any]:
    """The last line of standard output, which is one object like all others."""
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    assert all(isinstance(line, dict) for line in lines)
    return dict(lines[-1])


@pytest.mark.parametrize("verb", VERBS)
@pytest.mark.parametrize("trouble", CODES, ids=lambda trouble: trouble.__name__)
def test_every_verb_says_on_standard_output_how_it_ended(place: Place, trouble: Any, verb: str) -> None:
    trouble(place)
    done = place.call(*VERBS[verb])
    code = CODES[trouble][verb]
    assert done.exit_code == code, done.output
    said = last(done)
    if verb in EVENTS:
        assert (said["event"], said["code"]) == ("RunEnded", code)
        assert said["message"] in done.stderr if code else said["message"] == "disk is complete"
    elif code:
        assert set(said) == {"code", "error", "schema", "time"}
        assert said["code"] == code
        assert said["error"] in done.stderr
    else:
        assert "error" not in said


@pytest.mark.parametrize("verb", EVENTS)
def test_without_yes_json_is_refused_in_json(place: Place, verb: str) -> None:
    if verb != "run":
        place.call("run", "--yes", "--until", "install")
    said = last(done := place.call(verb, "--json"))
    assert (done.exit_code, said["event"], said["code"]) == (2, "RunEnded", 2)
    assert "Pass --yes" in said["message"]


def test_every_object_that_a_verb_prints_is_stamped() -> None:
    """The gateway's log is no answer of a verb, and each of its lines has the time."""
    package = Path(zkmigrate.__file__).parent
    printed = re.compile(r"\b(?:say|echo|_line)\(\s*(?:clean\()?json\.dumps\((?P<what>\w+)")
    found: dict[str, list[str]] = {}
    for path in sorted(package.rglob("*.py")):
        name = path.relative_to(package).as_posix()
        if not name.startswith(("lab/", "topics/gateway/serving/")):
            for one in printed.finditer(path.read_text()):
                found.setdefault(one["what"], []).append(name)
    assert set(found) == {"stamped"}, found
    assert {
        "cluster/placing/check.py",
        "cluster/placing/topics.py",
        "cluster/placing/verb.py",
        "spark/verb.py",
    } < {*found["stamped"]}
