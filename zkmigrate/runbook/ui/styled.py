"""Print coloured text with rich, without control characters from the text itself."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TextIO

from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment
from rich.text import Text

from zkmigrate.clean import Clean, clean


class Styled(Console):
    """A rich console that cleans each text before layout.

    It writes past a ``Clean`` stream, which would remove the colours.
    """

    def __init__(self, out: TextIO, width: int | None = None) -> None:
        super().__init__(file=out.raw if isinstance(out, Clean) else out, width=width)

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        if isinstance(renderable, Text) and (fit := clean(renderable.plain)) != renderable.plain:
            renderable = Text(fit, style=renderable.style, no_wrap=renderable.no_wrap)
        return super().render(renderable, options)
