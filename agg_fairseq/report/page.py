"""The page of a report: what it is made of, and how that becomes one file of HTML.

The page loads nothing, needs no script, and can be read on a phone and in print. Its layout is in page.html.jinja; all
texts are escaped there, so that a name of a run or a token is never taken for HTML.
"""

from __future__ import annotations

import base64
import io
import re
from collections.abc import Sequence
from dataclasses import dataclass
from importlib import resources
from typing import TYPE_CHECKING, ClassVar

from ..errors import UserError
from ..evaluation.result import UNDEFINED, Result
from ..plots import save

if TYPE_CHECKING:
    from jinja2 import Template
    from markupsafe import Markup
    from matplotlib.figure import Figure

_BREAKS = re.compile(r"[_/]+(?=.)|[^-_/\s]{24}(?=.)")


@dataclass(frozen=True)
class Paragraph:
    """Running text."""

    kind: ClassVar[str] = "paragraph"
    text: str


@dataclass(frozen=True)
class Table:
    """A table that can be scrolled sideways where it is too wide.

    Args:
        header: title of each column.
        rows: title of the row, then its cells; None becomes a dash.
        signature: the settings that affect the numbers, shown below the table.
    """

    kind: ClassVar[str] = "table"
    header: Sequence[str]
    rows: Sequence[Sequence[str | None]]
    signature: str = ""

    @classmethod
    def of_result(cls, result: Result, *, transposed: bool = True, left_out: tuple[str, ...] = ()) -> Table:
        """The table of a result with its signature.

        Args:
            result: of an evaluation.
            transposed: with a column, and not a row, for each thing that was measured.
            left_out: the columns of the result whose titles begin in one of these ways are left out.
        """
        shown = [number for number, column in enumerate(result.columns) if not column.title.startswith(left_out)]
        lines: list[list[str | None]] = [[*result.labels, *(result.columns[number].title for number in shown)]]
        lines += [[*names, *(cells[number] for number in shown)] for names, cells in result.formatted()]
        if transposed:
            lines = [list(line) for line in zip(*lines, strict=True)]
        header, *rows = lines
        return cls([title or "" for title in header], rows, result.signature)


@dataclass(frozen=True)
class Picture:
    """A picture inside the page, with a caption.

    Args:
        source: the picture as the URL of an image.
        width: of the picture, in inches.
        caption: what it shows.
    """

    kind: ClassVar[str] = "picture"
    source: str
    width: float
    caption: str

    @classmethod
    def of_figure(cls, figure: Figure, caption: str) -> Picture:
        """The figure as SVG, written into the page itself."""
        file = io.BytesIO()
        save(figure, file, "svg")
        code = base64.b64encode(file.getvalue()).decode("ascii")
        return cls(f"data:image/svg+xml;base64,{code}", figure.get_figwidth(), caption)


@dataclass(frozen=True)
class Samples:
    """Texts side by side, below what they have in common.

    Args:
        context: such as the prefix that all of the texts continue.
        texts: heading and text of each.
    """

    kind: ClassVar[str] = "samples"
    context: str
    texts: Sequence[tuple[str, str]]


Block = Paragraph | Table | Picture | Samples


@dataclass(frozen=True)
class Section:
    """A part of the page.

    Args:
        anchor: id of the section, which links to it end in.
        title: its heading.
        blocks: what it shows, from top to bottom.
    """

    anchor: str
    title: str
    blocks: Sequence[Block]


def load_template() -> Template:
    """Loads the layout; `render(title=…, sections=…, footer=…)` of it returns the page.

    Raises:
        UserError: Jinja2 is not installed.
    """
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
