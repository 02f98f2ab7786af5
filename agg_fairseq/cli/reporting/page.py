"""A self-contained HTML page: it loads nothing, needs no script, and can be read on a phone and in print."""

from __future__ import annotations

import base64
import io
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from html import escape
from typing import TYPE_CHECKING

from ...plots import save
from ..measured import Measured
from ..table import EMPTY

if TYPE_CHECKING:
    from matplotlib.figure import Figure

CSS = """
:root { color-scheme: light; --line: #d5d5d5; --soft: #f5f6f7; --ink: #1a1a1a; --quiet: #595959; }
* { box-sizing: border-box; }
body { margin: 0 auto; max-width: 72rem; padding: 0 1rem 3rem; color: var(--ink); background: #fff;
  font: 1rem/1.5 system-ui, -apple-system, "Segoe UI", "Liberation Sans", sans-serif; }
h1 { font-size: 1.6rem; line-height: 1.25; margin: 1.5rem 0 .25rem; overflow-wrap: anywhere; }
h1.text { font-size: 1.1rem; }
h2 { font-size: 1.2rem; margin: 2.5rem 0 .5rem; padding-top: .5rem; border-top: 2px solid var(--ink); }
p { margin: .5rem 0; max-width: 46rem; }
nav { margin: 1rem 0; }
nav a { display: inline-block; margin: 0 .9rem .3rem 0; }
a { color: #0b5394; }
.scroll { overflow-x: auto; margin: .75rem 0; }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; font-size: .9rem; }
th, td { padding: .25rem .7rem; text-align: right; border-bottom: 1px solid var(--line); white-space: nowrap; }
thead th { border-bottom: 2px solid var(--ink); vertical-align: bottom; }
th { white-space: normal; max-width: 12rem; }
td.text { white-space: normal; overflow-wrap: anywhere; text-align: left; min-width: 10rem; max-width: 36rem; }
th:first-child { text-align: left; position: sticky; left: 0; background: #fff;
  min-width: 7rem; max-width: min(12rem, 35vw); }
tbody th { font-weight: 400; }
tbody tr:nth-child(odd) > * { background: var(--soft); }
.signature { color: var(--quiet); font: .75rem/1.4 ui-monospace, "Liberation Mono", monospace; overflow-wrap: anywhere;
  max-width: none; }
figure { margin: 1rem 0; overflow-x: auto; }
figure img { display: block; max-width: 100%; height: auto; }
figure.wide img { min-width: 40rem; }
figcaption { color: var(--quiet); font-size: .9rem; max-width: 46rem; }
.samples { display: grid; grid-template-columns: repeat(auto-fit, minmax(15rem, 1fr)); gap: .75rem;
  margin: .5rem 0 1.5rem; }
.samples > div { border: 1px solid var(--line); border-radius: .3rem; padding: .5rem .75rem; overflow-wrap: anywhere; }
.samples h4 { margin: 0 0 .25rem; font-size: .85rem; color: var(--quiet); font-weight: 600; }
blockquote { margin: 1rem 0 .5rem; padding-left: .75rem; border-left: 3px solid var(--line); overflow-wrap: anywhere; }
footer { margin-top: 3rem; color: var(--quiet); font-size: .85rem; }
@media print {
  body { max-width: none; padding: 0; font-size: 9pt; }
  nav { display: none; }
  h2 { break-after: avoid; }
  figure, .samples > div, tr { break-inside: avoid; }
  .scroll, figure { overflow: visible; }
  figure.wide img { min-width: 0; }
  figure img { max-height: 24cm; object-fit: contain; object-position: left; }
  table { font-size: 7.5pt; }
  th, td { padding: .1rem .35rem; white-space: normal; }
  td.text { min-width: 8rem; }
  th:first-child { min-width: 5rem; }
}
"""
LONG = 28
TEXT = ' class="text"'
"""Of a cell, or half a heading, with more characters than that: it is in lines."""
_BREAKS = re.compile(r"[_/]+(?=.)|[^-_/\s]{24}(?=.)")


@dataclass(frozen=True)
class Section:
    """A part of the page.

    Args:
        anchor: its id.
        title: its heading, as text.
        body: its HTML.
    """

    anchor: str
    title: str
    body: str


def page(title: str, sections: Sequence[Section], footer: str) -> str:
    """The whole page; `title` and `footer` are text."""
    links = "".join(f'<a href="#{section.anchor}">{escape(section.title)}</a>' for section in sections)
    body = "".join(f'<section id="{s.anchor}"><h2>{escape(s.title)}</h2>{s.body}</section>\n' for s in sections)
    heading = f"<h1{TEXT if len(title) > 2 * LONG else ''}>{escape(title)}</h1>"
    policy = "default-src 'none'; img-src data:; style-src 'unsafe-inline'"
    return (
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f'<link rel="icon" href="data:,">\n<title>{escape(title)}</title>\n<style>{CSS}</style>\n</head>\n<body>\n'
        f"<header>{heading}</header>\n<nav>{links}</nav>\n<main>\n{body}</main>\n"
        f"<footer>{escape(footer)}</footer>\n</body>\n</html>\n"
    )


def paragraph(text: str) -> str:
    """Text."""
    return f"<p>{escape(text)}</p>"


def table(header: Sequence[str], rows: Iterable[Sequence[str | None]]) -> str:
    """A table that scrolls where it is too wide."""
    head = "".join(f'<th scope="col">{_cell(cell)}</th>' for cell in header)
    body = "".join(f"<tr>{_row(row)}</tr>" for row in rows)
    return f'<div class="scroll"><table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>'


def _row(row: Sequence[str | None]) -> str:
    name, *cells = (EMPTY if cell is None else cell for cell in row)
    return f'<th scope="row">{_cell(name)}</th>' + "".join(
        f"<td{TEXT}>{escape(cell)}</td>" if len(cell) > LONG else f"<td>{_cell(cell)}</td>" for cell in cells
    )


def _cell(text: str) -> str:
    """Text that may be broken after `_` and `/` too, and within a very long word."""
    return "<wbr>".join(map(escape, _BREAKS.sub("\\g<0>\0", text).split("\0")))


def measured_table(measured: Measured, *, turned: bool = True) -> str:
    """What a command measured, with its signature; `turned`, a column for each thing that was measured."""
    lines = [list(measured.header), *(list(row) for row in measured.rows)]
    if turned:
        lines = [list(line) for line in zip(*lines, strict=True)]
    header = ["" if cell is None else cell for cell in lines[0]]
    return table(header, lines[1:]) + f'<p class="signature">{escape(measured.signature)}</p>'


def picture(figure: Figure, caption: str) -> str:
    """A figure, inside the page, with what it shows."""
    width = figure.get_figwidth()
    wide = ' class="wide"' if width > 6 else ""
    file = io.BytesIO()
    save(figure, file, "svg")
    code = base64.b64encode(file.getvalue()).decode("ascii")
    image = f'<img alt="{escape(caption)}" style="width: {7 * width:.0f}rem" src="data:image/svg+xml;base64,{code}">'
    return f"<figure{wide}>{image}<figcaption>{escape(caption)}</figcaption></figure>"


def sample(context: str, texts: Iterable[tuple[str, str]]) -> str:
    """Texts side by side, each with its heading, under what they have in common."""
    boxes = "".join(f"<div><h4>{escape(name)}</h4>{escape(text)}</div>" for name, text in texts)
    return f'<blockquote>{escape(context)}</blockquote><div class="samples">{boxes}</div>'
