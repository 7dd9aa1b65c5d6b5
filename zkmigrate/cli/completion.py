"""Complete words in a shell: click's scripts, and words that depend on runs and playbooks.

A completion never fails and never prints. If something cannot be read, there are no suggestions.
"""

from __future__ import annotations

import contextlib
import io
import os
import pkgutil
from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeAlias

import click
from click.shell_completion import CompletionItem, get_completion_class

import playbooks
from zkmigrate.errors import UsageError
from zkmigrate.runbook.engine import runs, step_names
from zkmigrate.runbook.model.playbook import Playbook
from zkmigrate.runbook.runs import playbook_files

PROGRAM = "zkmigrate"

Given: TypeAlias = Mapping[str, Any]
"""The options typed so far, by parameter name."""


def script(command: click.Command, shell: str) -> str:
    """Return the script that a shell sources. Raises UsageError for a shell that click does not know."""
    known = get_completion_class(shell)
    if known is None:
        raise UsageError(f"no completion for the shell {shell}")
    made = known(command, {}, PROGRAM, f"_{PROGRAM.upper()}_COMPLETE")
    return made.source_template % made.source_vars()  # source() would start bash to ask its version


def words(what: str, given: Given, incomplete: str) -> list[CompletionItem]:
    """Complete a word: return the words of a kind in ``_KINDS`` that begin with ``incomplete``."""
    try:
        with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
            found = list(_KINDS[what](given, incomplete))
    except Exception:  # a broken file or playbook is reported by the verb, not here
        return []
    return [item for item in found if item.type != "plain" or item.value.startswith(incomplete)]


def _plain(values: Iterable[str]) -> list[CompletionItem]:
    return [CompletionItem(value) for value in values]


def _runs(_given: Given, _incomplete: str) -> list[CompletionItem]:
    """Return the runs that have begun, newest first."""
    folder = runs.base(os.environ)
    found = [path for path in folder.iterdir() if runs.is_id(path.name) and runs.has_begun(path)]
    return _plain(path.name for path in sorted(found, key=lambda path: path.stat().st_mtime, reverse=True))


def _playbooks(_given: Given, incomplete: str) -> list[CompletionItem]:
    if "/" in incomplete or "." in incomplete:
        return [CompletionItem(incomplete, type="file")]
    return _plain(module.name for module in pkgutil.iter_modules(playbooks.__path__))


def _book(given: Given) -> Playbook:
    return playbook_files.load(given.get("playbook") or playbook_files.DEFAULT)


def _stages_and_steps(given: Given, _incomplete: str) -> list[CompletionItem]:
    book = _book(given)
    return _plain(
        name for stage in book.stages for name in (stage.id, *(f"{stage.id}.{s.id}" for s in stage.steps))
    )


def _findings(_given: Given, _incomplete: str) -> list[CompletionItem]:
    from zkmigrate.cli import findings

    return _plain(findings.entries())


_KINDS: Mapping[str, Callable[[Given, str], list[CompletionItem]]] = {
    "findings": _findings,
    "runs": _runs,
    "playbooks": _playbooks,
    "steps": _stages_and_steps,
    "steps or end": lambda given, typed: [*_stages_and_steps(given, typed), *_plain(["end"])],
    "steps or all": lambda given, typed: [*_stages_and_steps(given, typed), *_plain(["all"])],
    "places": lambda given, _typed: _plain(step_names.hold_places(_book(given))),
    "skippable": lambda given, _typed: _plain(s.id for s in _book(given).stages if s.skip),
}
