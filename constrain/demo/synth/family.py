"""Families of documents, and the files that declare them.

A family file holds any number of families::

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
value at ``{}``. The indented lines under a ``records`` slot are its columns; ``>`` lines print a record on a line of
its own, ``>>`` within a sentence. Then the wordings, templates of :mod:`constrain.demo.synth.template`; those after
``--- held out`` are never trained on.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from random import Random

from constrain.demo.synth import kinds, moments, pools, quantities, records
from constrain.demo.synth.kinds import Kind
from constrain.demo.synth.slots import Slot

HELD_OUT_FILE = "held_out"
"""The file with the held-out families."""


@dataclass(frozen=True)
class Family:
    """A family of documents: its slots, wordings for training, and held-out wordings."""

    name: str
    slots: tuple[Slot, ...]
    wordings: tuple[str, ...] = ()
    held_out: tuple[str, ...] = ()


@cache
def trained_families() -> tuple[Family, ...]:
    paths = sorted((Path(__file__).parent / "families").glob("*.txt"))
    return tuple(family for path in paths if path.stem != HELD_OUT_FILE for family in _read(path))


@cache
def held_out_families() -> tuple[Family, ...]:
    return tuple(_read(Path(__file__).parent / "families" / f"{HELD_OUT_FILE}.txt"))


def _read(path: Path) -> list[Family]:
    text = path.read_text(encoding="utf-8")
    return [parse_family(block) for block in f"\n{text}".split("\n== ")[1:]]


def parse_family(block: str) -> Family:
    """Parse a block of a family file, without the leading ``==``."""
    head, *parts = block.split("\n---")
    name, *lines = head.split("\n")
    wordings: list[str] = []
    held_out: list[str] = []
    for part in parts:
        mark, _, body = part.partition("\n")
        (held_out if mark.strip() == "held out" else wordings).append(body.strip("\n"))
    slots = _slots([line for line in lines if line.strip()])
    return Family(name.strip(), tuple(slots), tuple(wordings), tuple(held_out))


def _slots(lines: list[str]) -> list[Slot]:
    drafts: list[_Draft] = []
    for line in lines:
        body = line.strip()
        if body.startswith(">>"):
            drafts[-1].inline.append(body[2:].strip())
        elif body.startswith(">"):
            drafts[-1].rows.append(body[1:].strip())
        elif line.startswith(" "):
            drafts[-1].columns.append(_Draft(_cells(body)).slot())
        else:
            drafts.append(_Draft(_cells(body)))
    return [draft.slot() for draft in drafts]


def _cells(line: str) -> list[str]:
    return [cell.strip() for cell in re.split(r" \|(?= |$)", line)]


@dataclass
class _Draft:
    """A slot during parsing: the cells of its line, and the lines below it."""

    cells: list[str]
    columns: list[Slot] = field(default_factory=list)
    rows: list[str] = field(default_factory=list)
    inline: list[str] = field(default_factory=list)

    def slot(self) -> Slot:
        key, spec, labels, about, says = (*self.cells, "", "")[:5]
        sentences = tuple(says.split(" / ")) if says else ()
        return Slot(key, self._kind(spec), tuple(label.strip() for label in labels.split(",")), about, sentences)

    def _kind(self, spec: str) -> Kind:
        if not spec.startswith("records"):
            return parse_kind(spec)
        low, high = _range(spec.split()[1])
        return records.Records(tuple(self.columns), low, high, tuple(self.rows), tuple(self.inline))


_TEXTS: dict[str, kinds.Text] = {
    "company": kinds.Text(pools.company),
    "product": kinds.Text(pools.product),
    "city": kinds.Text(pools.city),
    "street": kinds.Text(pools.street),
    "email": kinds.Text(pools.email, ("email",)),
    "phone": kinds.Text(pools.phone),
    "url": kinds.Text(pools.url, ("uri",)),
    "topic": kinds.Text(pools.topic),
    "title": kinds.Text(lambda rng: pools.topic(rng).title()),
    "word": kinds.Text(pools.name_word),
    "noun": kinds.Text(pools.noun),
    "adjective": kinds.Text(pools.adjective),
    "first_name": kinds.Text(pools.first_name),
    "surname": kinds.Text(pools.last_name),
    "country": kinds.Text(lambda rng: rng.choice(pools.words("countries"))),
    "job": kinds.Text(lambda rng: rng.choice(pools.words("jobs"))),
    "food": kinds.Text(lambda rng: rng.choice(pools.words("foods"))),
    "package": kinds.Text(pools.package),
    "path": kinds.Text(pools.path),
    "version": kinds.Text(pools.version),
    "handle": kinds.Text(pools.handle),
    "uuid": kinds.Text(lambda rng: pools.code("~~~~~~~~-~~~~-4~~~-a~~~-~~~~~~~~~~~~", rng), ("uuid",)),
    "ip": kinds.Text(lambda rng: ".".join(str(rng.randint(1, 254)) for _ in range(4)), ("ipv4",)),
}
_NOUNS: dict[str, Callable[[], Kind]] = {
    "person": kinds.Person,
    "address": kinds.Address,
    "date": moments.Date,
    "time": moments.Time,
    "stamp": moments.Stamp,
}


@cache
def parse_kind(spec: str) -> Kind:
    """Parse the specification of a kind, such as ``int 1 40 pcs`` or ``enum low=minor/small, high``.

    Raises:
        ValueError: no kind has that name.
    """
    name, _, rest = spec.partition(" ")
    if name in _TEXTS:
        return replace(_TEXTS[name], name=name)
    if name in _NOUNS:
        return _NOUNS[name]()
    words = rest.split()
    if name == "code":
        return kinds.Text(_one_of(rest.split("/"), pools.code) if rest else _random_code, name="code")
    if name == "pick":
        return kinds.Text(_one_of(rest.split("/"), lambda text, rng: text))
    if name == "money":
        return quantities.Money(float(words[0]), float(words[1]))
    if name == "int":
        return quantities.Integer(int(words[0]), int(words[1]), " ".join(words[2:]))
    if name == "plain":
        return quantities.Integer(int(words[0]), int(words[1]), grouped=False)
    if name == "num":
        return quantities.Decimal(float(words[0]), float(words[1]), int(words[2]), " ".join(words[3:]))
    if name == "enum":
        return kinds.Enum(dict(_option(option.strip()) for option in rest.split(",")))
    if name == "bool":
        yes, no = rest.split("~")
        return kinds.Boolean(tuple(yes.strip().split("/")), tuple(no.strip().split("/")))
    if name == "list":
        return kinds.Listing(parse_kind(" ".join(words[:-1])), *_range(words[-1]))
    raise ValueError(f"no kind of value is called {name!r} (in {spec!r})")


def _one_of(texts: list[str], finish: Callable[[str, Random], str]) -> Callable[[Random], str]:
    return lambda rng: finish(rng.choice(texts), rng)


def _random_code(rng: Random) -> str:
    return pools.code(pools.code_pattern(rng), rng)


def _option(text: str) -> tuple[str, tuple[str, ...]]:
    label, _, phrases = text.partition("=")
    return label, tuple(phrases.split("/")) if phrases else (label,)


def _range(text: str) -> tuple[int, int]:
    low, high = text.split("-")
    return int(low), int(high)
