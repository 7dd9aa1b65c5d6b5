"""Load a playbook: a shipped one by name, or one from a file."""

from __future__ import annotations

import importlib
import importlib.util
import re
import sys
import traceback
from pathlib import Path

from zkmigrate.errors import UsageError
from zkmigrate.runbook.model.playbook import Playbook

DEFAULT = "kafka_zookeeper_move"


def load(name: str) -> Playbook:
    """Return a shipped playbook by its name, or the ``PLAYBOOK`` of a ``.py`` file.

    Raises UsageError for an unknown name and for a file that fails.
    """
    if name.endswith(".py"):
        module = _from_file(Path(name))
    else:
        if not re.fullmatch(r"[a-z][a-z0-9_]*", name):
            raise UsageError(f"{name!r} is not a playbook name; needed: a name such as {DEFAULT}")
        try:
            module = importlib.import_module(f"playbooks.{name}")
        except ModuleNotFoundError as error:
            if error.name != f"playbooks.{name}":
                raise
            raise UsageError(f"there is no playbook {name}; a path ending in .py names a file") from None
    found = getattr(module, "PLAYBOOK", None)
    if not isinstance(found, Playbook):
        seen = "none" if found is None else f"a {type(found).__name__}"
        raise UsageError(
            f"{name} has no PLAYBOOK (seen {seen}, needed PLAYBOOK = Playbook(...), see "
            f"playbooks/{DEFAULT}.py). Next: correct the file, or leave --playbook out"
        )
    return found


def _from_file(path: Path) -> object:
    spec = importlib.util.spec_from_file_location(path.stem, path)
    if spec is None or spec.loader is None or not path.is_file():
        raise UsageError(f"no playbook file {path}. Next: correct the path, or leave --playbook out")
    module = importlib.util.module_from_spec(spec)
    sys.modules[path.stem] = module
    try:
        spec.loader.exec_module(module)
    except (Exception, SystemExit) as error:  # the operator's file may raise anything
        raise UsageError(
            f"{path}:{_failed_line(error, path)}: the playbook file fails: {type(error).__name__}: "
            f"{getattr(error, 'msg', None) or error}. Next: correct the file, or leave --playbook out"
        ) from error
    return module


def _failed_line(error: BaseException, path: Path) -> int:
    """Return the line of the file that failed; 1 if that is not known."""
    if isinstance(error, SyntaxError) and error.lineno:
        return error.lineno
    frames = traceback.extract_tb(error.__traceback__)
    lines = [frame.lineno for frame in frames if frame.filename == str(path) and frame.lineno]
    return lines[-1] if lines else 1
