"""The shipped hooks, run by a real run, against a web server on this machine."""

from __future__ import annotations

import json
import subprocess
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest

from tests.unit.cli.test_main import Place, place
from tests.unit.engine_world import ended

__all__ = ["place"]

EXAMPLES = Path(__file__).parents[4] / "docs" / "examples" / "hooks"
Taken = list[tuple[str, dict[str, str], str]]


class Room:
    """A web server that keeps what it is told; status: its answer."""

    def __init__(self) -> None:
        self.taken: Taken = []
        self.status = 200
        room = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"])).decode()
                room.taken.append((self.path, dict(self.headers), body))
                self.send_response(room.status)
                self.end_headers()

            def log_message(self, format: str, *args: object) -> None:
                return None

        self.server = HTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}/secret-path"
        self.thread = threading.Thread(target=self.server.serve_forever, daemon=True)
        self.thread.start()

    def close(self) -> None:
        self.server.shutdown()
        ended(self.thread)
        self.server.server_close()


@pytest.fixture
def room() -> Iterator[Room]:
    made = Room()
    yield made
    made.close()


def hooked(place: Place, name: str, *moments: str) -> None:
    lines = "".join(f"  {moment}:\n    - {{run: {EXAMPLES / name}}}\n" for moment in moments)
    place.file.write_text(f"{place.file.read_text()}\nhooks:\n{lines}")


def test_a_chat_room_is_told_of_stages_and_of_the_end(place: Place, room: Room) -> None:
    hooked(place, "chat-webhook", "before_stage", "on_end")
    place.environ["ZKM_CHAT_URL"] = room.url
    assert place.call("run", "--yes").exit_code == 0
    said = [json.loads(body)["text"] for _, _, body in room.taken]
    assert said[0] == "lab (lab-1): before stage, preflight"
    assert said[-1] == "lab (lab-1): on end, the run; exit code 0: disk is complete"
    assert {headers["Content-Type"] for _, headers, _ in room.taken} == {"application/json"}


def test_a_room_that_does_not_answer_well_is_a_failure_and_its_address_stays_secret(
    place: Place, room: Room
) -> None:
    hooked(place, "chat-webhook", "before_run")
    place.environ["ZKM_CHAT_URL"] = room.url
    room.status = 500
    done = place.ends(6, "run", "--yes")
    assert "the room was not told: 500" in done
    written = "".join(path.read_text() for path in (place.runs / "lab-1").rglob("*") if path.is_file())
    assert "secret-path" not in done + written


def test_a_ticket_is_written_in_markdown(place: Place, room: Room) -> None:
    hooked(place, "change-ticket", "on_end")
    place.environ |= {"ZKM_TICKET_URL": room.url, "ZKM_TICKET_TOKEN": "t0ken"}
    (place.world / "sick").touch()
    done = place.call("run", "--yes")
    assert done.exit_code == 3, done.output
    ((_, headers, text),) = room.taken
    assert headers["Authorization"] == "Bearer t0ken"
    assert headers["Content-Type"] == "text/markdown; charset=utf-8"
    assert text.startswith("## `lab`: `on_end`\n\n- run: `lab-1` of `disk`, ")
    assert "- exit code: `3`, " in text
    assert "| `disk.well` | `-` | does not hold | `sick` | `-` |" in text


def test_what_a_host_said_is_no_markdown_in_a_ticket() -> None:
    word = "x` | [link](http://evil)\n# heading \x1b[2J\u202e"
    finding = {"id": word, "target": word, "held": "no", "seen": word, "needed": word}
    names = ("name", "run", "moment", "playbook", "stage", "step", "way", "message")
    told = {**dict.fromkeys(names, word), "at": 0.0, "code": 8, "findings": [finding]}
    done = subprocess.run(
        [EXAMPLES / "change-ticket"], input=json.dumps(told), capture_output=True, text=True, check=True
    )
    assert sum(line.startswith("#") for line in done.stdout.splitlines()) == 1
    assert done.stdout.count("`x' / [link](http://evil) # heading  [2J`") == 11
    assert not [c for c in done.stdout if not c.isprintable() and c != "\n"]
