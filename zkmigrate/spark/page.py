"""Write an analysis as one HTML page."""

from __future__ import annotations

from collections.abc import Mapping

from zkmigrate.report.render import render
from zkmigrate.spark.section import Section


def page(title: str, intro: str, sections: Mapping[str, Section]) -> str:
    """Return the complete HTML text of the page.

    title, intro: shown above the sections. sections: the answer of each job, by the job's name.
    """
    return str(render("spark/page.html", title=title, intro=intro, sections=sections))
