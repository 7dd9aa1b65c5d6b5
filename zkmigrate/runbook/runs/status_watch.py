"""Show the state of a run again and again until Ctrl-C: ``status --watch``."""

from __future__ import annotations

import time
from dataclasses import dataclass, field, replace
from io import StringIO
from typing import Any

from rich.live import Live
from rich.text import Text

from zkmigrate.runbook.runs.run_status import status
from zkmigrate.runbook.runs.verb_context import VerbContext
from zkmigrate.runbook.ui.styled import Styled

_PAUSE_S = 2.0


@dataclass
class _OneSite:
    """A factory of sites that connects to the hosts once and keeps the connections between looks."""

    context: VerbContext
    made: list[Any] = field(default_factory=list)

    def __call__(self, inventory: Any, run: str) -> Any:
        if not self.made:
            self.made.append(self.context.site(inventory, run))
        return _Lent(self.made[0].look)


@dataclass(frozen=True)
class _Lent:
    """A site whose connections stay open when it is closed."""

    look: Any

    def close(self) -> None:
        """Do nothing: Ctrl-C ends the process with its connections."""


def watch(context: VerbContext, run_id: str, *, offline: bool, findings: str) -> int:
    """Show the state of a run every two seconds, cut to the height of the terminal, until Ctrl-C."""
    site = _OneSite(context)
    first = Text("Reading the state of the run from the hosts.")
    with Live(first, console=Styled(context.out), auto_refresh=False, vertical_overflow="ellipsis") as screen:
        while True:
            text = StringIO()
            status(replace(context, out=text, site=site), run_id, offline=offline, findings=findings)
            screen.update(Text(text.getvalue().rstrip("\n")), refresh=True)
            time.sleep(_PAUSE_S)
