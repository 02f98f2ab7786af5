"""The page of a report: what it is made of, and how that becomes one file of HTML.

The page loads nothing and runs no script, and can be read on a phone, in the dark and in print. Its layout is in
page.html.jinja; all texts are escaped there, so that a name of a run or a token is never taken for HTML.
"""

from __future__ import annotations

import base64
import io
import re
from collections.abc import Mapping, Sequence
from importlib import resources
from typing import TYPE_CHECKING, Any, NamedTuple

from ..errors import UserError
from ..measures import Measure
from ..plots import save
from ..result import UNDEFINED

if TYPE_CHECKING:
    from jinja2 import Template
    from markupsafe import Markup
    from matplotlib.figure import Figure

_BREAKS = re.compile(r"[_/]+(?=.)|[^-_/\s]{24}(?=.)")


class Term(NamedTuple):
    """The title of a row, and its measure, which is explained in the glossary."""

    text: str
    measure: Measure


class Table(NamedTuple):
    """A table that can be scrolled sideways where it is too wide."""

    header: Sequence[str]  # title of each column
    rows: Sequence[Sequence[Any]]  # a text or a `Term`, then cells: texts, `Compared` values, or None, which is a dash
    signature: str = ""  # the settings that affect the numbers, shown below the table
    kind = "table"


class Verdict(NamedTuple):
    """What is better, worse and nearly the same in a model as in the baseline: lists by these words."""

    title: str
    lists: Mapping[str, Sequence[str]]
    kind = "verdict"


class Picture(NamedTuple):
    """A figure, which is written into the page itself, and its caption."""

    figure: Figure
    caption: str
    kind = "picture"

    @property
    def url(self) -> str:
        """The figure as SVG."""
        file = io.BytesIO()
        save(self.figure, file, "svg")
        return f"data:image/svg+xml;base64,{base64.b64encode(file.getvalue()).decode('ascii')}"


class Samples(NamedTuple):
    """Texts side by side, each with its heading, below what they have in common, such as a prefix."""

    context: str
    texts: Sequence[tuple[str, str]]
    kind = "samples"


Block = str | Table | Picture | Samples | Verdict  # a part of a section; a `str` is a paragraph


class Section(NamedTuple):
    """A part of the page: the anchor of links to it, its heading, and what it shows from top to bottom."""

    anchor: str
    title: str
    blocks: Sequence[Block]


def load_template() -> Template:
    """Loads the layout; `render(title=…, sections=…, glossary=…, footer=…)` of it returns the page."""
    try:
        import jinja2
        from markupsafe import Markup
    except ImportError as error:
        raise UserError("report: jinja2 is missing; pip install '.[eval]'") from error

    def breakable(text: str) -> Markup:
        """The text, in which a browser may also begin a new line after `_` and `/`, and within a very long word."""
        return Markup("<wbr>").join(_BREAKS.sub("\\g<0>\0", text).split("\0"))

    environment = jinja2.Environment(
        autoescape=True, undefined=jinja2.StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    environment.filters["breakable"] = breakable
    environment.globals["UNDEFINED"] = UNDEFINED
    layout = resources.files(__package__).joinpath("page.html.jinja").read_text(encoding="utf-8")
    return environment.from_string(layout)
