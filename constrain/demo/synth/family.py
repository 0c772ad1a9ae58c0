"""Families of documents, and the files that declare them.

A folder for each topic has the files for training, and ``held_out.txt`` the families that are never trained on. A file
holds any number of families::

    == invoice
    number | code INV-##### | invoice number, invoice no | identifier of the invoice | The invoice has number {}.
    items  | records 1-4 | items, lines
      name | product | item, article
      > - {name}
      >> {name}
    ---
    <Invoice|Bill> {number}

    {items}
    --- held out
    This is bill {number} ...

First the slots: key, kind, labels, and optionally a description and sentences (separated by `` / ``) that state the
value at ``{}``. Kinds of one document, or of one entry of a list, that are ``tied`` by a name, such as ``tied end enum
won, lost`` and ``tied end bool glad ~ sad``, fit each other: their first classes go together, and their last ones.
``money 10 900 sum items price`` is the sum of a column of a list, where the list stands before it. ``/`` separates
phrases, or patterns of a code, and ``//`` is a slash in one. The indented lines under a ``records`` slot are its
columns; ``>`` lines print a record on a line of its own (``¶`` breaks it, at its end with a blank line), ``>>`` within
a sentence, ``>>>`` in one or two sentences of its own. Then the wordings, templates of
:mod:`constrain.demo.synth.template`; those after ``--- held out`` are never trained on.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

from constrain.demo.synth import records
from constrain.demo.synth.kinds import Kind
from constrain.demo.synth.order import linked
from constrain.demo.synth.slots import Slot
from constrain.demo.synth.specs import parse_kind, parse_range

_FOLDER = Path(__file__).parent / "families"


@dataclass(frozen=True)
class Family:
    """A family of documents: its slots, wordings for training, and held-out wordings."""

    name: str
    slots: tuple[Slot, ...]
    wordings: tuple[str, ...] = ()
    held_out: tuple[str, ...] = ()


@cache
def trained_families() -> tuple[Family, ...]:
    """Read the families of all topics."""
    return tuple(family for path in sorted(_FOLDER.glob("*/*.txt")) for family in _read(path))


@cache
def held_out_families() -> tuple[Family, ...]:
    return tuple(_read(_FOLDER / "held_out.txt"))


def _read(path: Path) -> list[Family]:
    before, *blocks = f"\n{path.read_text(encoding='utf-8')}".split("\n== ")
    families: list[Family] = []
    line = before.count("\n") + 1
    for block in blocks:
        families.append(parse_family(block, path.name, line))
        line += block.count("\n") + 1
    return families


def parse_family(block: str, file: str = "", first: int = 1) -> Family:
    """Parse a block of a family file, without the leading ``==``.

    Args:
        file: name of the file, for errors.
        first: number of the line in which the block begins.

    Raises:
        ValueError: the line of a slot has no labels, or a kind of value is unknown or not well-formed.
    """
    head, *parts = block.split("\n---")
    name, *lines = head.split("\n")
    wordings: list[str] = []
    held_out: list[str] = []
    for part in parts:
        mark, _, body = part.partition("\n")
        (held_out if mark.strip() == "held out" else wordings).append(body.strip("\n"))
    slots = _slots([(f"{file}:{at}", line) for at, line in enumerate(lines, first + 1) if line.strip()])
    return Family(name.strip(), linked(slots, [*wordings, *held_out]), tuple(wordings), tuple(held_out))


def _slots(lines: list[tuple[str, str]]) -> list[Slot]:
    """Parse the lines of slots, each after its place in the file."""
    drafts: list[_Draft] = []
    for place, line in lines:
        body = line.strip()
        owners = [drafts, *([drafts[-1].columns] if line.startswith(" ") else [])]
        if line.startswith("    "):
            owners.append(drafts[-1].columns[-1].columns)
        if not body.startswith(">"):
            owners[-1].append(_Draft(place, _cells(body)))
            continue
        printed = f"{body.lstrip('>').strip()} ".replace(" ¶ ", "\n").rstrip(" ")
        draft = owners[max(0, len(owners) - 2)][-1]
        {">": draft.rows, ">>": draft.inline, ">>>": draft.prose}[body.split()[0]].append(printed)
    return [draft.slot() for draft in drafts]


def _cells(line: str) -> list[str]:
    return [cell.strip() for cell in re.split(r" \|(?= |$)", line)]


@dataclass
class _Draft:
    """A slot during parsing: the place and the cells of its line, and the lines below it."""

    place: str
    cells: list[str]
    columns: list[_Draft] = field(default_factory=list)
    rows: list[str] = field(default_factory=list)
    inline: list[str] = field(default_factory=list)
    prose: list[str] = field(default_factory=list)

    def slot(self) -> Slot:
        if len(self.cells) < 3:
            raise ValueError(f"{self.place}: a slot needs a key, a kind and labels, unlike {' | '.join(self.cells)!r}")
        key, spec, labels, about, says = (*self.cells, "", "")[:5]
        sentences = tuple(says.split(" / ")) if says else ()
        return Slot(key, self._kind(spec), tuple(label.strip() for label in labels.split(",")), about, sentences)

    def _kind(self, spec: str) -> Kind:
        if not spec.startswith("records"):
            try:
                return parse_kind(spec)
            except ValueError as error:
                raise ValueError(f"{self.place}: {error}") from error
        low, high = parse_range(spec.split()[1])
        return records.Records(
            linked([draft.slot() for draft in self.columns], [*self.rows, *self.inline, *self.prose]),
            low,
            high,
            tuple(self.rows),
            tuple(self.inline),
            tuple(self.prose),
        )
