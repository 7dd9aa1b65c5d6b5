"""What a step says about itself: the five paragraphs that open its module.

Each paragraph of the module's docstring that begins with one of the headings ``What:``, ``Why now:``,
``Clients may notice:``, ``Way back:``, ``Proof:`` is one section; it ends at the next heading. The prompt,
``plan`` and the runbook are made from them.
"""

from __future__ import annotations

import re
import sys
from dataclasses import dataclass

from zkmigrate.model.step import AnyStep

HEADINGS = ("What", "Why now", "Clients may notice", "Way back", "Proof")
_START = re.compile(rf"^({'|'.join(HEADINGS)}):[ \n]", re.MULTILINE)


@dataclass(frozen=True)
class Brief:
    """The sections as single lines of text; empty where a step does not say."""

    what: str
    why_now: str
    clients_may_notice: str
    way_back: str
    proof: str

    def lines(self) -> tuple[str, ...]:
        """``Heading: text`` for every section that is there."""
        texts = (self.what, self.why_now, self.clients_may_notice, self.way_back, self.proof)
        return tuple(f"{heading}: {text}" for heading, text in zip(HEADINGS, texts, strict=True) if text)


def of(step: AnyStep) -> Brief:
    """The brief of a step, from the docstring of the module that defines its class."""
    return parse(sys.modules[type(step).__module__].__doc__ or "")


def parse(text: str) -> Brief:
    """The brief in a docstring."""
    pieces = _START.split(text)
    found = {
        heading: " ".join(body.split()) for heading, body in zip(pieces[1::2], pieces[2::2], strict=True)
    }
    return Brief(*(found.get(heading, "") for heading in HEADINGS))
