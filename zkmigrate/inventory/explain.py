"""Turn Pydantic's errors about ``migration.yml`` into messages for its author, each with its line."""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Mapping
from typing import Any, get_args

from pydantic import BaseModel, ValidationError

from zkmigrate.inventory.marked_yaml import Document, Mistake, Path

NEEDED = {
    "Name": "a host name of small letters, digits and inner hyphens",
    "address": "an IPv4 or IPv6 address or a host name, without a port",
    "also": "IPv4 or IPv6 addresses",
    "operator": "IPv4 or IPv6 addresses",
    "bastion": "[user@]host[:port]; separate several with commas, the one nearest to this machine first",
    "name": "small letters, digits and inner hyphens, such as dest1",
    "unit": "a systemd unit name, such as zookeeper.service",
    "user": "a Unix account name",
    "group": "a Unix group name",
    "cluster_id": "Kafka's cluster id, 22 characters of A-Z a-z 0-9 _ -",
    "chroot": "an absolute znode path, such as /kafka or /, without a slash at the end",
    "canary_topic": "a topic's name: letters, digits and . _ -",
    "settings": "letters, digits, blanks and . _ : / , = @ + % - (or * alone)",
    "key": "a file name without blanks, quotes or shell characters",
    "config": "a file name without blanks, quotes or shell characters",
    "known_hosts": "a file name without blanks, quotes or shell characters",
    "start": "an absolute command, words of letters, digits and . _ / @ % + : = , - between single blanks",
}
NEEDED["run"] = "a program's file name without blanks, quotes or shell characters; words for it go into args"
NEEDED["args"] = "text without control characters"
NEEDED["begin"] = NEEDED["end"] = "date, time and zone, such as 2026-11-21T22:00+01:00"
NEEDED["until"] = NEEDED["begin"]
NEEDED["finding"] = "the id of a check, such as kafka.replication"
NEEDED["target"] = "text: the host, address, topic, group or transactional id as the finding names it"
NEEDED["who"] = NEEDED["why"] = "a line of text that is not empty"
NEEDED["stop"] = NEEDED["status"] = NEEDED["kill"] = NEEDED["start"]
_CLIENT = {"user": "a user's name without control characters", "verify_hostname": "true or false"}
_REMOTE_PATH = "an absolute path of letters, digits and . _ / @ % + -"


def explain(error: ValidationError, document: Document, model: type[BaseModel]) -> Iterator[Mistake]:
    """Yield Pydantic's errors as mistakes, without those that the YAML reader already reported."""
    refused = {mistake.path for mistake in document.mistakes}
    for item in error.errors(include_url=False, include_context=True):
        # Pydantic adds "[key]" to the location of a dictionary's key.
        path: Path = tuple(part for part in item["loc"] if part != "[key]")
        if path in refused or _miscounted(item, path, document):
            continue
        yield Mistake(document.mark(path), path, _reason(item, path, model))


def _miscounted(item: Any, path: Path, document: Document) -> bool:
    """Return whether a list seems too short only because Pydantic does not count its wrong items."""
    if item["type"] != "too_short":
        return False
    least: int = item["ctx"]["min_length"]
    return len(items_at(document.value, path)) >= least


def _reason(item: Any, path: Path, model: type[BaseModel]) -> str:
    kind, seen, context = item["type"], _shown(item["input"]), item.get("ctx", {})
    if kind == "missing":
        return "missing (needed: this key)"
    if kind == "extra_forbidden":
        possible = _keys(model, path[:-1])
        near = difflib.get_close_matches(str(path[-1]), possible, n=1, cutoff=0.6)
        meant = f"; did you mean {near[0]}?" if near else ""
        return f"unknown key (needed one of: {', '.join(possible)}{meant})"
    if kind == "string_pattern_mismatch":
        return f"not allowed (seen {seen}, needed {_needed(path, model)})"
    if kind == "string_too_long":
        length, most = len(item["input"]), context.get("max_length")
        return f"too long (seen {seen}, {length} characters, needed at most {most})"
    if kind == "string_type":
        hint = "; put it in quotes" if isinstance(item["input"], int | float) else ""
        return f"not text (seen {seen}, needed {_needed(path, model)}{hint})"
    if kind == "literal_error":
        return f"not one of the values (seen {seen}, needed {context.get('expected')})"
    if kind == "tuple_type":
        return f"not a list (seen {seen}, needed a list)"
    if kind in ("model_type", "model_attributes_type", "dict_type"):
        return f"not a mapping (seen {seen}, needed keys and values)"
    if kind == "too_short":
        return f"too few (seen {context.get('actual_length')}, needed at least {context.get('min_length')})"
    if kind in ("int_type", "float_type"):
        return f"not a number (seen {seen}, needed {'a whole number' if kind == 'int_type' else 'a number'})"
    bounds = {"greater_than_equal": "ge", "greater_than": "gt", "less_than_equal": "le", "less_than": "lt"}
    if kind in bounds:
        words = {"ge": "at least", "gt": "more than", "le": "at most", "lt": "less than"}[bounds[kind]]
        return f"out of range (seen {seen}, needed {words} {context[bounds[kind]]})"
    return f"{item['msg'][:1].lower()}{item['msg'][1:]} (seen {seen})"


def _needed(path: Path, model: type[BaseModel]) -> str:
    names = [str(part) for part in path if not isinstance(part, int)]
    own: Mapping[str, str] = getattr(model, "needed", {})
    if words := own.get(".".join(names)):
        return words
    if "client" in names:
        return _CLIENT.get(names[-1], NEEDED["key"])
    if names[-1:] == ["config"] and names[0] != "ssh":
        return _REMOTE_PATH
    if names == ["name"]:
        return "small letters, digits and hyphens, not - first, such as kafka-east"
    if "settings" in names:
        return NEEDED["settings"]
    return NEEDED.get(names[-1] if names else "", _REMOTE_PATH)


def _shown(value: object) -> str:
    if isinstance(value, dict):
        return "a mapping"
    if isinstance(value, list | tuple):
        return "a list"
    if value is None:
        return "nothing"
    if isinstance(value, bool):
        return "true" if value else "false"
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}…"


def _keys(model: type[BaseModel], path: Path) -> list[str]:
    """Return the possible keys of the mapping at ``path``."""
    current: Any = model
    for part in path:
        if isinstance(part, int):
            continue
        current = next(_models(current.model_fields[part].annotation))
    return list(current.model_fields)


def _models(annotation: Any) -> Iterator[type[BaseModel]]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
    for inner in get_args(annotation):
        yield from _models(inner)


def value_at(value: Any, path: Path) -> Any:
    """Return the raw value at this path, or None."""
    for part in path:
        if isinstance(value, dict) and part in value:
            value = value[part]
        else:
            return None
    return value


def items_at(top: Any, path: Path) -> list[Any]:
    """Return the list at this path; empty if there is none."""
    value = value_at(top, path)
    return value if isinstance(value, list) else []
