"""Layouts of tables: lines below column labels, cards with a line for every cell, and markup."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from random import Random

from constrain.demo.synth import naming
from constrain.demo.synth.kinds import Value
from constrain.demo.synth.slots import Slot

Lines = list[list[str]]


def print_table(columns: Sequence[Slot], rows: Sequence[Mapping[str, Value]], rng: Random) -> str:
    """Write ``rows`` with column labels in one of the usual text layouts; cells may be missing."""
    style = naming.print_style(rng)
    head = [naming.printed(rng.choice(column.labels[:1] * 2 + column.labels), style, rng) for column in columns]
    cells = [[row[column.key].text if column.key in row else "" for column in columns] for row in rows]
    layout = rng.choices([layout for layout, _ in _LAYOUTS], [weight for _, weight in _LAYOUTS])[0]
    return layout(head, cells, rng)


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
    *((_cards, 5), (_tagged_lines, 3), (_html, 2), (_json_lines, 2)),
)
