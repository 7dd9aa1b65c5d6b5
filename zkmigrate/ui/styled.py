"""Rich's console, which writes our own colours and moves of the cursor, and no others."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TextIO

from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment
from rich.text import Text

from zkmigrate.clean import Clean, clean


class Styled(Console):
    """Cleans each text before it is laid out; it writes below the stream that would take our colours away."""

    def __init__(self, out: TextIO, width: int | None = None) -> None:
        super().__init__(file=out.raw if isinstance(out, Clean) else out, width=width)

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        if isinstance(renderable, Text) and (fit := clean(renderable.plain)) != renderable.plain:
            renderable = Text(fit, style=renderable.style, no_wrap=renderable.no_wrap)
        return super().render(renderable, options)
