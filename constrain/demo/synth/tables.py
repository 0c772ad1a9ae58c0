"""Layouts of tables: lines below column labels, cards with a line for every cell, and markup."""

from __future__ import annotations

import json
import textwrap
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import groupby, pairwise, zip_longest
from random import Random

from constrain.demo.synth import naming, quantities
from constrain.demo.synth.habits import Author, break_values
from constrain.demo.synth.kinds import Value
from constrain.demo.synth.slots import Slot

Lines = list[list[str]]


def print_table(columns: Sequence[Slot], rows: list[dict[str, Value]], rng: Random) -> str:
    """Write ``rows`` with column labels in one of the usual text layouts; cells may be missing.

    Units and currencies stand after some of the labels rather than in the cells, whose values then lack them, too.
    Some tables whose columns can be told by their values have no labels. Below some there is a sum, which is no row.
    In some, rows in turn share a value of ``rows``, which is changed for that.
    """
    free = [column for column in columns if not _is_bound(column, columns) and any(column.key in row for row in rows)]
    if free and len(columns) > 2 and len(rows) > 2 and rng.random() < _SHARED:
        return _with_shared(rng.choice(free), columns, rows, rng) + _sum_line(columns, rows, "", rng)
    if _needs_no_head(columns) and rng.random() < _HEADLESS:
        currency = _take_unit(_summed(columns), rows) if _summed(columns) and rng.random() < _HEADED_UNITS else ""
        return _in_lines(_cells(columns, rows), rng) + _sum_line(columns, rows, currency, rng)
    style = naming.print_style(rng)
    head = [naming.printed(rng.choice(column.labels[:1] * 2 + column.labels), style, rng) for column in columns]
    for at, column in enumerate(columns):
        if rng.random() < _HEADED_UNITS and (unit := _take_unit(column, rows)):
            head[at] += rng.choice(_UNIT_MARKS).format(unit)
    layout = rng.choices([layout for layout, _ in _LAYOUTS], [weight for _, weight in _LAYOUTS])[0]
    return layout(head, _cells(columns, rows), rng) + _sum_line(columns, rows, "", rng)


def _cells(columns: Sequence[Slot], rows: Sequence[dict[str, Value]]) -> Lines:
    return [[row[column.key].text if column.key in row else "" for column in columns] for row in rows]


_SHARED = 0.2
"""Share of the tables of three and more rows in which some of them in turn have the same value."""


def _is_bound(column: Slot, columns: Sequence[Slot]) -> bool:
    """Whether the values of a column fit those of others in their rows."""
    return bool(column.after or getattr(column.kind, "tied", "")) or any(each.after == column.key for each in columns)


def _with_shared(shared: Slot, columns: Sequence[Slot], rows: list[dict[str, Value]], rng: Random) -> str:
    """Write rows some of which share the value of a column: it stands above them, or they repeat it by a mark."""
    _share(shared.key, rows, rng)
    style = naming.print_style(rng)
    if isinstance(shared.kind, _NUMBERS) or rng.random() < 0.4:
        head = [naming.printed(rng.choice(column.labels), style, rng) for column in columns]
        cells, mark = _cells(columns, rows), rng.choice(_DITTO)
        at = columns.index(shared)
        for before, line in reversed(list(pairwise(cells))):
            line[at] = mark if line[at] == before[at] else line[at]
        return rng.choice([_aligned, _aligned, _piped, _tabbed, _marked])(head, cells, rng)
    others = [column for column in columns if column is not shared]
    head = [naming.printed(rng.choice(column.labels), style, rng) for column in others]
    labelled = not _needs_no_head(others) or rng.random() < 0.5
    first, *lines = rng.choice([_aligned, _aligned, _piped, _tabbed])(head, _cells(others, rows), rng).split("\n")
    alone = [_form(column) for column in columns].count(_form(shared)) == 1
    title, indent = rng.choice(_TITLES if alone else _LABELLED_TITLES), rng.choice(["", "", "  ", "- ", "\t"])
    gap = rng.choice(["\n", "\n", "\n\n"])
    label = naming.printed(shared.labels[0], style, rng)
    groups: list[str] = [first] if labelled else []
    column, below = _summed(others), rng.choice(_GROUP_SUMS)
    summed = column is not None and rng.random() < _SUMMED
    for text, members in groupby(zip(rows, lines, strict=True), lambda each: each[0][shared.key].text):
        held = list(members)
        printed = "".join(f"\n{indent}{line}" for _, line in held)
        total = f"\n{below.format(text)} {_total(column, [row for row, _ in held]):,.2f}" if column and summed else ""
        groups.append(f"{title.format(text, label=label)}{printed}{total}")
    return gap.join(groups)


def _share(key: str, rows: list[dict[str, Value]], rng: Random) -> None:
    """Let neighbouring rows share the values of a column."""
    held = [row[key] for row in rows if key in row]
    values = list({value.data if isinstance(value.data, str | bool) else value.text: value for value in held}.values())
    count = rng.randint(1, max(1, min(len(values), len(rows) // 2)))
    ends = sorted(rng.sample(range(1, len(rows)), count - 1))
    for number, row in enumerate(rows):
        row[key] = values[sum(end <= number for end in ends)]


_DITTO = ('"', '"', "''", "do.", "〃", '-"-', "ditto", "idem")
_LABELLED_TITLES = ("{label}: {}", "{label} {}", "{label} - {}", "# {label}: {}")
_TITLES = (*_LABELLED_TITLES, "{}", "{}", "{}:", "[{}]", "-- {} --", "** {} **", "# {}", "*** {}")

_HEADLESS = 0.35
"""Share of the tables that have no labels, of those whose columns can be told by their values."""


def _needs_no_head(columns: Sequence[Slot]) -> bool:
    """Return whether the values of each column have a form of their own."""
    return len(columns) < 5 and len({_form(column) for column in columns}) == len(columns)


def _form(column: Slot) -> str:
    return "number" if isinstance(column.kind, _NUMBERS) else type(column.kind).__name__


_NUMBERS = (quantities.Money, quantities.Integer, quantities.Decimal)


def _summed(columns: Sequence[Slot]) -> Slot | None:
    """Return the last column of amounts."""
    return next((column for column in reversed(columns) if isinstance(column.kind, quantities.Money)), None)


def _sum_line(columns: Sequence[Slot], rows: Sequence[dict[str, Value]], currency: str, rng: Random) -> str:
    """Return a line with the sum of a column, or nothing; it is there where only it has the currency."""
    column = _summed(columns)
    if column is None or (not currency and (len(rows) < 2 or rng.random() > _SUMMED)):
        return ""
    total = _total(column, rows)
    rule = rng.choice(["", "", f"\n{rng.choice('-=_') * rng.randint(8, 40)}"])
    label = f"{rng.choice(_SUMS)}{rng.choice([' ', ': ', '   ', chr(9)])}{currency}".rstrip()
    return f"{rule}\n{label} {total:,.2f}"


def _total(column: Slot, rows: Sequence[dict[str, Value]]) -> float:
    return float(sum(row[column.key].data[0] for row in rows if column.key in row))


_SUMMED = 0.35
_GROUP_SUMS = ("Subtotal", "Total {}", "{} total:", "Sum {}", "   ", "Subtotal {}:", "--")
_SUMS = ("Subtotal", "Subtotal", "Carried forward", "Page total", "Sum of this page", "Interim total", "c/f")

_HEADED_UNITS = 0.5
"""Share of the columns of numbers with a unit that have it above them."""

_UNIT_MARKS = (" ({})", " ({})", " ({})", " [{}]", ", {}", " in {}")


def _take_unit(column: Slot | None, rows: Sequence[dict[str, Value]]) -> str:
    """Take the unit from the values of a column, and return it; nothing if there are several, or values without."""
    held = [row for row in rows if column and column.key in row]
    split = [quantities.without_unit(column.kind, row[column.key]) for row in held] if column else []
    units = {part[1] for part in split if part}
    if column is None or len(units) != 1 or None in split:
        return ""
    for row, part in zip(held, split, strict=True):
        row[column.key] = replace(row[column.key], text=part[0] if part else "")
    return units.pop()


def _grid(head: list[str], cells: Lines, rng: Random) -> Lines:
    """Put the labels above the cells, and mark empty cells half the time."""
    blank = rng.choice(["-", "–", "n/a", "?"]) if rng.random() < 0.5 else ""
    return [head, *([cell or blank for cell in line] for line in cells)]


def _separated(head: list[str], cells: Lines, rng: Random) -> str:
    separator = rng.choice([", ", ",", ";", "; "])
    lines = _grid(head, cells, rng)
    if any(separator.strip() in cell for line in lines for cell in line):
        return _quoted(head, cells, rng)
    return "\n".join(separator.join(line) for line in lines)


def _quoted(head: list[str], cells: Lines, rng: Random) -> str:
    lines = _grid(head, cells, rng)
    if any('"' in cell for line in lines for cell in line):
        return _tabbed(head, cells, rng)
    separator = rng.choice(",,;")
    return "\n".join(separator.join(f'"{cell}"' for cell in line) for line in lines)


def _tabbed(head: list[str], cells: Lines, rng: Random) -> str:
    return "\n".join("\t".join(line) for line in _grid(head, cells, rng))


def _aligned(head: list[str], cells: Lines, rng: Random) -> str:
    lines = _grid(head, cells, rng)
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip() for line in lines
    )


def _wrapped(head: list[str], cells: Lines, rng: Random) -> str:
    """Align cells of which long ones go on below themselves; every row has a mark where it has no value.

    Only authors remember that these cells cannot be quoted.
    """
    if not isinstance(rng, Author):
        return _aligned(head, cells, rng)
    blocks = [[_folded(cell or "-") for cell in line] for line in [head, *cells]]
    if any(len(lines) > 1 for block in blocks[1:] for lines in block):
        break_values(rng)
    widths = [max(len(line) for lines in column for line in lines) for column in zip(*blocks, strict=True)]
    gap = rng.choice(["  ", "   ", " | "])
    rows = (
        "\n".join(
            gap.join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip()
            for line in zip_longest(*block, fillvalue="")
        )
        for block in blocks
    )
    return rng.choice(["\n", "\n", "\n\n"]).join(rows)


def _folded(cell: str) -> list[str]:
    return textwrap.wrap(cell, _FOLDED, break_long_words=False, break_on_hyphens=False) or [cell]


_FOLDED = 18
"""Number of characters from which cells go on below themselves."""


def _in_lines(cells: Lines, rng: Random) -> str:
    """Write a line for every row, without labels: in columns, with dots before the last cell, or with bullets."""
    _, *lines = _grid([], cells, rng)
    if rng.random() < 0.6:
        widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
        leader, place = rng.choice("  ."), rng.choice([str.ljust, str.rjust])
        padded = [
            [cell.ljust(width + 2, leader) for cell, width in zip(line[:-1], widths, strict=False)] for line in lines
        ]
        return "\n".join(
            " ".join([*before, place(line[-1], widths[-1])]).rstrip()
            for before, line in zip(padded, lines, strict=True)
        )
    bullet, gap = rng.choice(["", "- ", "* ", "• "]), rng.choice([", ", "  ", " - ", ": ", " / ", "\t"])
    return "\n".join(bullet + gap.join(filter(None, line)) for line in lines)


def _piped(head: list[str], cells: Lines, rng: Random) -> str:
    return "\n".join(" | ".join(line) for line in _grid(head, cells, rng))


def _marked(head: list[str], cells: Lines, rng: Random) -> str:
    first, *others = ["| " + " | ".join(line) + " |" for line in _grid(head, cells, rng)]
    return "\n".join([first, "|" + "---|" * len(head), *others])


def _cards(head: list[str], cells: Lines, rng: Random) -> str:
    """Write a block for every row, with a line for every cell that is not empty."""
    mark = rng.choice([": ", ": ", " - ", " = ", "\t", " . . . "])
    numbered, bullet = rng.random() < 0.3, rng.choice(["", "", "- ", "* "])
    blocks: list[str] = []
    for number, line in enumerate(cells, 1):
        pairs = _pairs(head, line, mark)
        first = f"{number}. " if numbered else bullet
        blocks.append(first + f"\n{' ' * len(first)}".join(pairs))
    gap = rng.choice(["\n", "\n\n"] if numbered or bullet else ["\n\n", "\n---\n"])
    return gap.join(blocks)


def _tagged_lines(head: list[str], cells: Lines, rng: Random) -> str:
    """Write a line for every row, in which a label stands before every cell but perhaps the first."""
    mark, gap = rng.choice([(": ", "; "), (": ", ", "), (" ", " / "), ("=", " | "), (": ", " · ")])
    unlabelled = rng.random() < 0.5
    bullet = rng.choice(["", "", "- ", "• "])
    lines = [_pairs(head, line, mark) for line in cells]
    if unlabelled and all(line[0] for line in cells):
        lines = [[line[0], *pairs[1:]] for line, pairs in zip(cells, lines, strict=True)]
    return "\n".join(bullet + gap.join(line) for line in lines)


def _pairs(head: list[str], line: list[str], mark: str) -> list[str]:
    return [f"{label}{mark}{cell}" for label, cell in zip(head, line, strict=True) if cell]


def _html(head: list[str], cells: Lines, rng: Random) -> str:
    gap = rng.choice(["", "\n"])
    top = "<tr>" + "".join(f"<th>{label}</th>" for label in head) + "</tr>"
    rows = ["<tr>" + "".join(f"<td>{cell}</td>" for cell in line) + "</tr>" for line in cells]
    return f"<table>{gap}" + "\n".join([top, *rows]) + f"{gap}</table>"


def _json_lines(head: list[str], cells: Lines, rng: Random) -> str:
    if any(mark in cell for line in cells for cell in line for mark in '"\\'):
        return _piped(head, cells, rng)
    keys = [label.replace(" ", "_") for label in head]
    objects = [
        json.dumps({key: cell for key, cell in zip(keys, line, strict=True) if cell}, ensure_ascii=False)
        for line in cells
    ]
    return "\n".join(objects) if rng.random() < 0.5 else "[" + ",\n ".join(objects) + "]"


Layout = Callable[[list[str], Lines, Random], str]
_LAYOUTS: tuple[tuple[Layout, int], ...] = (
    *((_separated, 4), (_quoted, 1), (_tabbed, 4), (_aligned, 4), (_piped, 4), (_marked, 4)),
    *((_wrapped, 3), (_cards, 5), (_tagged_lines, 3), (_html, 2), (_json_lines, 2)),
)
