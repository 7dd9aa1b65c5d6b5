"""An analysis as one HTML page."""

from __future__ import annotations

from collections.abc import Mapping

from zkmigrate.report.parts import opening, picture, section
from zkmigrate.report.svg import esc
from zkmigrate.spark.section import Section

MARK = '<meta name="generator" content="zkmigrate analyze">'
"""Stands near the top of every page, so that only an earlier analysis is overwritten."""


def page(title: str, intro: str, sections: Mapping[str, Section]) -> str:
    """The whole page as text. sections: by the names of their jobs."""
    body = [f'<p class="small">{esc(intro)}</p>']
    items = "".join(
        f'<li><a href="#job-{name}">{esc(one.title)}</a>: {esc(one.answer)}</li>'
        for name, one in sections.items()
    )
    body.append(f"<ul>{items}</ul>")
    for name, one in sections.items():
        body.append(f'<section id="job-{name}"><h2>{esc(one.title)}</h2><p>{esc(one.answer)}</p>')
        body += [picture(drawn.svg, drawn.caption) for drawn in one.pictures]
        body += [section(table, 3) for table in one.tables]
        body.append("</section>")
    return "\n".join([*opening(title, MARK), *body, "</body></html>", ""])
