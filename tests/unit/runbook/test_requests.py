"""Every request of a look is answered by a method of its own room, with what the request promises."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from pkgutil import resolve_name
from typing import Any, get_args, get_type_hints

import pytest

import zkmigrate
from zkmigrate.runbook.model.look import Request

ROOT = Path(zkmigrate.__file__).parent
ROOMS = [
    ".".join(path.relative_to(ROOT.parent).with_suffix("").parts)
    for path in sorted(ROOT.rglob("questions.py"))
]
"""The modules of the product that define requests."""


def requests(module: str) -> list[type[Request[Any]]]:
    """Return the requests that a module defines, without the bases of others."""
    defined = [one for one in vars(import_module(module)).values() if isinstance(one, type)]
    return [one for one in defined if issubclass(one, Request) and hasattr(one, "answered_by")]


@pytest.mark.parametrize("module", ROOMS)
def test_a_room_answers_each_request_with_what_the_request_promises(module: str) -> None:
    found = requests(module)
    assert found
    for request in found:
        place, _, method = request.answered_by.rpartition(".")
        assert place.startswith(module.removesuffix("questions")), "its own room answers"
        answers = resolve_name(place)
        assert callable(answers.close)
        [base] = request.__dict__["__orig_bases__"]
        [promised] = get_args(base)
        assert [*get_type_hints(getattr(answers, method)).values()] == [request, promised]
