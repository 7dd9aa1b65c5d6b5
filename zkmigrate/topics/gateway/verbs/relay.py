"""Pass a run's orders and queries to the gateway's process on this machine.

The verb relay speaks zkm-host's protocol (``hosts/transport/channels.py``) on its standard input and output.
A request is a line ``ID VERB ARGS…``. The answer is any number of lines ``= TEXT``, then a line ``. ID RC``.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import asdict
from functools import cached_property
from pathlib import Path
from typing import IO

from zkmigrate.clean import inline
from zkmigrate.errors import ZkmigrateError
from zkmigrate.topics.gateway.rules import forms
from zkmigrate.topics.gateway.verbs import ask

DONE, BAD, REFUSED, FAILED, FENCED_OFF = 0, 2, 6, 8, 9
"""The exit codes for: done; not a valid request; refused; no answer, or not written; another operator in
charge."""
_CODES = {"done": DONE, "refused": REFUSED, "failed": FAILED, "fenced": FENCED_OFF}
_MOST = 1 << 16
"""The most bytes of a request."""
_ID, _MS = re.compile(r"[A-Za-z0-9._-]+"), re.compile(r"[0-9]{1,9}")
_HELP = (
    "help: print this text",
    "status: print the gateway's status as one line of JSON",
    "order OPID VERB APP to=CLUSTER hold=OPID ttl_ms=MS: send an order; "
    "leave out options that the order does not need",
)


class Relay:
    """A relay for the requests of one run.

    file: the gateway's configuration. fencing: the run's fencing number. The run's name is put before each
    operation id, so that no two runs use the same id.
    """

    def __init__(self, file: Path, run: str, fencing: int) -> None:
        self._file, self._run, self._fencing = file, run, fencing

    def serve(self, requests: IO[bytes], answers: IO[bytes]) -> int:
        """Answer each request until the input ends. Return 0."""
        while line := requests.readline(_MOST + 1):
            answers.write("".join(f"{text}\n" for text in self.answer(line)).encode())
            answers.flush()
        return 0

    def answer(self, line: bytes) -> Iterator[str]:
        """Yield the lines of the answer to a request. An empty line gets no answer."""
        words = line.decode("ascii", "replace").split()
        if not words:
            return
        id, *request = words
        if not _ID.fullmatch(id) or not line.endswith(b"\n"):
            yield from ("= this is not a request; needed: ID VERB ARGS in one line", f". ? {BAD}")
            return
        try:
            rc, lines = self._serve_request(request)
        except ZkmigrateError as error:
            rc, lines = FAILED, str(error).splitlines()
        yield from (f"= {inline(text)}" for text in lines)
        yield f". {id} {rc}"

    def _serve_request(self, request: list[str]) -> tuple[int, Iterable[str]]:
        match request:
            case ["help"]:
                return DONE, _HELP
            case ["status"]:
                return DONE, [ask.status_json(ask.answer(self._socket, "status"))]
            case ["order", id, verb, app, *options]:
                return self._order(id, verb, app, options)
        return BAD, [f"{' '.join(request)[:80]!r} is not a request; needed:", *_HELP]

    def _order(self, id: str, verb: str, app: str, options: list[str]) -> tuple[int, Iterable[str]]:
        given = dict(option.partition("=")[::2] for option in options)
        twice, ttl_ms = len(given) < len(options), given.pop("ttl_ms", "0")
        if twice or given.keys() - {"to", "hold"} or not _MS.fullmatch(ttl_ms):
            return BAD, [f"wrong options {' '.join(options)[:80]!r}; needed: to=CLUSTER hold=OPID ttl_ms=MS"]
        fields = {"fencing": self._fencing, "id": f"{self._run}.{id}", "verb": verb, "app": app, **given}
        try:
            order = forms.order({**fields, "ttl_ms": int(ttl_ms)})
        except forms.FormError as error:
            return BAD, [f"this is not a valid order: {error}"]
        lines = ask.answer(self._socket, asdict(order))
        return _CODES[lines["outcome"]], [ask.answer_text(lines)]

    @cached_property
    def _socket(self) -> Path:
        return ask.socket_of(self._file)
