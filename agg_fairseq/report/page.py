"""The page of a report: what it is made of, and how that becomes one file of HTML.

The page loads nothing, and can be read on a phone, in the dark and in print. Its layout is in page.html.jinja; all
texts are escaped there, so that a name of a run or a token is never taken for HTML. A script of its own, page.js.jinja,
shows the values of a curve at the pointer. The page is complete without it, and its policy allows no other script.
"""

from __future__ import annotations

import base64
import hashlib
import io
import json
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib import resources
from typing import TYPE_CHECKING, Any, ClassVar

from ..errors import UserError
from ..plots import save
from ..result import UNDEFINED, Result

if TYPE_CHECKING:
    from jinja2 import Template
    from markupsafe import Markup
    from matplotlib.figure import Figure

MAX_POINTS = 300
"""Of a curve that can be read."""
_BREAKS = re.compile(r"[_/]+(?=.)|[^-_/\s]{24}(?=.)")


@dataclass(frozen=True)
class Paragraph:
    """Running text."""

    kind: ClassVar[str] = "paragraph"
    text: str


@dataclass(frozen=True)
class Term:
    """The title of a row, which is explained in the glossary.

    Args:
        text: the title.
        name: of the entry in the glossary.
        meaning: that entry.
        better: which direction is better, in words, or empty.
    """

    kind: ClassVar[str] = "term"
    text: str
    name: str
    meaning: str
    better: str = ""


@dataclass(frozen=True)
class Cell:
    """A value of a table that is compared with others.

    Args:
        text: the value; None becomes a dash.
        note: its difference to the baseline, or empty.
        verdict: "better" or "worse" than the baseline, or anything else.
        best: whether it is the best of its row.
    """

    kind: ClassVar[str] = "cell"
    text: str | None
    note: str = ""
    verdict: str = ""
    best: bool = False


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
    rows: Sequence[Sequence[str | Term | Cell | None]]
    signature: str = ""

    @classmethod
    def of_result(cls, result: Result) -> Table:
        """The table of a result as a command prints it, with its signature."""
        rows = [[*names, *cells] for names, cells in result.formatted()]
        return cls([*result.labels, *(column.title for column in result.columns)], rows, result.signature)


@dataclass(frozen=True)
class Verdict:
    """What is better and worse in a model than in the baseline.

    Args:
        title: of the comparison.
        lists: what is better, worse and nearly the same, by these words.
    """

    kind: ClassVar[str] = "verdict"
    title: str
    lists: Mapping[str, Sequence[str]]


@dataclass(frozen=True)
class Glossary:
    """Explanations of the titles of rows.

    Args:
        terms: each name once.
    """

    kind: ClassVar[str] = "glossary"
    terms: Sequence[Term]


@dataclass(frozen=True)
class Picture:
    """A picture inside the page, with a caption.

    Args:
        source: the picture as the URL of an image.
        width: of the picture, in inches.
        caption: what it shows.
        curves: as `curves_of` returns them, in JSON; empty if there are none to be read.
    """

    kind: ClassVar[str] = "picture"
    source: str
    width: float
    caption: str
    curves: str = ""

    @classmethod
    def of_figure(cls, figure: Figure, caption: str) -> Picture:
        """The figure as SVG, written into the page itself."""
        file = io.BytesIO()
        save(figure, file, "svg")
        code = base64.b64encode(file.getvalue()).decode("ascii")
        panels = curves_of(figure)
        curves = json.dumps(panels, ensure_ascii=False, separators=(",", ":")) if panels else ""
        return cls(f"data:image/svg+xml;base64,{code}", figure.get_figwidth(), caption, curves)


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


Block = Paragraph | Table | Picture | Samples | Verdict | Glossary


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


def curves_of(figure: Figure) -> list[dict[str, Any]]:
    """The points of the curves of a figure that was drawn, and where they are, for the script of the page.

    Returns:
        For each panel with curves: `box`, its left, top, right and bottom; `x`, the label of its x axis; and `curves`,
        for each its `name`, `color` and at most 300 `points` (place from the left, place from the top, x, y). Places
        are shares of the width and height of the figure.
    """
    width, height = figure.bbox.width, figure.bbox.height
    panels = []
    for axis in figure.axes:
        curves = []
        for line in axis.get_lines():
            name = str(line.get_label())
            if name.startswith("_") or line.get_transform() != axis.transData:  # a level, or a line without a name
                continue
            points = [(x, y) for x, y in line.get_xydata().tolist() if math.isfinite(x) and math.isfinite(y)]
            points = points[:: -(-len(points) // MAX_POINTS) or 1]
            places = axis.transData.transform(points).tolist() if points else []
            curves.append(
                {
                    "name": name.strip(),
                    "color": line.get_color(),
                    "points": [
                        [round(left / width, 4), round(1 - bottom / height, 4), x, float(f"{y:.5g}")]
                        for (left, bottom), (x, y) in zip(places, points, strict=True)
                    ],
                }
            )
        if curves:
            (left, bottom), (right, top) = axis.bbox.get_points().tolist()
            box = [round(place, 4) for place in (left / width, 1 - top / height, right / width, 1 - bottom / height)]
            panels.append({"box": box, "x": axis.get_xlabel(), "curves": curves})
    return panels


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
    layout, script = (
        resources.files(__package__).joinpath(file).read_text(encoding="utf-8")
        for file in ("page.html.jinja", "page.js.jinja")
    )
    environment.globals |= {
        "UNDEFINED": UNDEFINED,
        "script": Markup(script),
        "script_hash": base64.b64encode(hashlib.sha256(script.encode()).digest()).decode("ascii"),
    }
    return environment.from_string(layout)
