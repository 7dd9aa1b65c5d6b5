"""HTML and SVG by templates: whatever a template is given is text, unless a template made it."""

from __future__ import annotations

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from zkmigrate.clean import clean

_TEMPLATES = Environment(
    loader=PackageLoader("zkmigrate", ""),
    autoescape=True,
    undefined=StrictUndefined,
    trim_blocks=True,
    lstrip_blocks=True,
)
_TEMPLATES.globals["most_rows"] = 50
"""A table shows so many rows; the others unfold."""


def render(template: str, **values: object) -> Markup:
    """The template at this path in the package, filled with values and clean."""
    return Markup(clean(_TEMPLATES.get_template(template).render(values)))
