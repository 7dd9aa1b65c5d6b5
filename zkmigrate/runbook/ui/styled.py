"""Rich's console; control characters in the text itself are removed."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TextIO

from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment
from rich.text import Text

from zkmigrate.clean import Clean, clean


class Styled(Console):
    """Cleans each text before layout, and writes past the stream that would remove our colours."""

    def __init__(self, out: TextIO, width: int | None = None) -> None:
        super().__init__(file=out.raw if isinstance(out, Clean) else out, width=width)

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        if isinstance(renderable, Text) and (fit := clean(renderable.plain)) != renderable.plain:
            renderable = Text(fit, style=renderable.style, no_wrap=renderable.no_wrap)
        return super().render(renderable, options)
