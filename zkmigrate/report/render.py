"""Render HTML and SVG from templates, which escape all values but the output of other templates.

Jinja is imported on first use: a Spark cluster's workers import this module, and lack Jinja.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

from zkmigrate.clean import clean

if TYPE_CHECKING:
    from jinja2 import Environment

_MOST_ROWS = 50
"""The most rows that a table shows at first; the others unfold."""


@cache
def _templates() -> Environment:
    from jinja2 import Environment, PackageLoader, StrictUndefined

    made = Environment(
        loader=PackageLoader("zkmigrate", ""), autoescape=True, undefined=StrictUndefined,
        trim_blocks=True, lstrip_blocks=True,
    )  # fmt: skip
    made.globals["most_rows"] = _MOST_ROWS
    return made


def render(template: str, **values: object) -> str:
    """Render a template of the package with these values, clean the result and return it as ``Markup``.

    template: its path in the package.
    """
    from markupsafe import Markup

    return Markup(clean(_templates().get_template(template).render(values)))
