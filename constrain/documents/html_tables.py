"""Tables in HTML pages, changed to what inscriptis lays out."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from lxml.html import HtmlElement

#: Columns in which cells may span others, so that few cells cannot make very many.
_COLUMNS = 50


def lay_out_tables(tree: HtmlElement) -> None:
    """Make tables begin on lines of their own, and fill the columns that a cell spans with empty cells.

    Paragraphs in the cells of a row are lines, without empty ones between them, which would tear the rows apart.
    """
    for table in list(tree.iter("table")):
        table.addprevious(table.makeelement("hr"))  # ends the line before, and has no text
        rows = table.xpath("./tr | ./thead/tr | ./tbody/tr | ./tfoot/tr")
        for row in rows:
            cells = [cell for cell in row.iterchildren("td", "th") if any(map(str.strip, cell.itertext()))]
            for paragraph in [each for cell in cells for each in cell.iterchildren("p")] if len(cells) > 1 else ():
                paragraph.tag = "section"  # a block without margins
        _fill(rows)


def _fill(rows: Sequence[HtmlElement]) -> None:
    """Add empty cells to rows where cells span columns, or are those of a row above."""
    below: dict[int, int] = {}  # numbers of rows that cells from above reach into, by column
    for row in rows:
        begun: dict[int, int] = {}
        column = 0
        for cell in list(row.iterchildren("td", "th")):
            while column in below:
                cell.addprevious(cell.makeelement("td"))
                column += 1
            end = max(column + 1, min(column + _span(cell, "colspan"), _COLUMNS))
            begun |= dict.fromkeys(range(column, min(end, _COLUMNS)), _span(cell, "rowspan"))
            for _ in range(column + 1, end if cell.getnext() is not None else 0):
                cell.addnext(cell.makeelement("td"))
            column = end
        below = {column: number - 1 for column, number in (below | begun).items() if number > 1}


def _span(cell: HtmlElement, name: str) -> int:
    value = cell.get(name, "").strip()
    return max(1, int(value)) if value.isascii() and value.isdecimal() and len(value) < 6 else 1
