"""Find the line of a key or host in an inventory file, as ``FILE:LINE``."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from pathlib import Path

from zkmigrate.inventory import marked_yaml

_KEYS = r"[a-z_]+(?:\.[a-z_]+)*"
_NAMED = re.compile(rf"(?:(?P<keys>{_KEYS}(?: (?:or|and) {_KEYS})*) in )?migration\.yml")


@dataclass(frozen=True)
class Locations:
    """An inventory file, with the line of each key and host.

    The file's path is as the operator gave it. keys: the line of each key, such as ``dest.data_dir``. hosts:
    the line of each host's name.
    """

    file: str
    keys: dict[str, int] = field(default_factory=dict)
    hosts: dict[str, int] = field(default_factory=dict)

    def host(self, name: str) -> str:
        """Return ``FILE:LINE`` of a host's entry; empty for an unknown name."""
        return f"{self.file}:{self.hosts[name]}" if name in self.hosts else ""

    def located(self, text: str) -> str:
        """Replace ``KEY in migration.yml`` in a text by the real file and, where the key exists, its line."""

        def place(match: re.Match[str]) -> str:
            if match["keys"] is None:
                return self.file
            named = re.split(r" (?:or|and) ", match["keys"])
            lines = sorted({self.keys[key] for key in named if key in self.keys})
            return f"{match['keys']} in {self.file}" + (":" + ",".join(map(str, lines)) if lines else "")

        return _NAMED.sub(place, text)


def read_locations(path: Path) -> Locations:
    """Read the lines of an inventory's keys. The file was loaded before, so it exists and is text."""
    document = marked_yaml.parse(path.read_text("utf-8-sig"))
    found = Locations(str(path))
    _walk(document, document.value, (), found)
    return found


def _walk(document: marked_yaml.Document, value: object, path: marked_yaml.Path, found: Locations) -> None:
    if isinstance(value, dict):
        name = value.get("name")
        if isinstance(name, str) and path and isinstance(path[-1], int):
            found.hosts.setdefault(name, document.mark((*path, "name")).line)
        for key, below in value.items():
            if all(isinstance(part, str) for part in path):
                found.keys[".".join(map(str, (*path, key)))] = document.mark((*path, key)).line
            _walk(document, below, (*path, key), found)
    elif isinstance(value, list):
        for at, below in enumerate(value):
            _walk(document, below, (*path, at), found)
