"""Forms of address before names, and remarks after values, which a document has but the values do not."""

from __future__ import annotations

import re
from collections.abc import Collection
from random import Random

from constrain.demo.synth import pools
from constrain.demo.synth.habits import is_formal
from constrain.demo.synth.kinds import RANKS, Kind, Person, Text, Value
from constrain.demo.synth.template import Choice, Hole, Maybe, Node, Template

_TITLES = (
    "Mr", "Mr", "Mr", "Mr.", "Mr.", "Mrs", "Mrs", "Mrs", "Mrs.", "Mrs.", "Ms", "Ms", "Ms", "Ms.", "Ms.", "Miss", "Miss",
    "Frau", "Herr", "Mme", "M.", "Señora", "Sig.", "Herrn", "Sra.", "Mevrouw", "Dhr.", "Coach", "Uncle", "Site Manager",
    "Managing Director", "Head Teacher", "Team Leader", "Chef",
)  # fmt: skip
_REMARKS = (
    " (see note 2)", " (as agreed)", " (new)", " (checked)", " - see below", ", see overleaf", " *", " (1)", " (main)",
    " (provisional)", " (confirmed)", " (tbc)", " [sic]", ", as before", " (copy attached)", " - corrected",
    " (approx.)", " (unchanged)", " ✓", " (per e-mail)", ", right", ", left side", " or similar", " or equivalent",
    " (intermediate)", " (m/f/d)", " for now", ", if possible", ", probably", " (2nd floor)", " or the like",
    ", 2 of them",
)  # fmt: skip
_HEDGES = (
    "likely ", "probably ", "presumably ", "possibly ", "the usual ", "a so-called ", "mainly ", "new: ", "again ",
    "mild ", "suspected ", "a ", "the ", "our ", "?", "~ ", "prob. ", "i.e. ",
)  # fmt: skip
#: Text before a name that has a title already, or is not part of a sentence.
_NO_TITLE = re.compile(r"(?:\b(?:Mr|Mrs|Ms|Dr|Prof|Miss|Frau|Herr|Sir|Lady|Capt|Rev|Sgt|Nurse)\.?\s|[\w@/'’-])$")
_RANK = re.compile(rf"\b({'|'.join(map(re.escape, sorted(RANKS, key=len, reverse=True)))}) $")

_ADDRESSED, _REMARKED, _HEDGED, _APPOSED = 0.6, 0.06, 0.04, 0.1
"""Shares of the names that authors who use titles give one, of the labelled texts with a remark after them and with a
hedge before them, and of the names at the end of a line or sentence with more about the person."""

_DEGREES = ("MSc", "PhD", "BA (Hons)", "RN", "Dipl.-Kfm.", "M.D.", "FRCS", "LL.M.", "CPA", "MBA", "she/her", "he/him")


def addressed(wording: Template, people: Collection[str], rng: Random) -> Template:
    """Put titles before some of the holes of ``people``, and more about them after some, if the author is one to.

    Ranks that stand before holes become part of the names.
    """
    wording = _ranked(wording, people)
    return _addressed(wording, people, "", rng) if people and is_formal(rng) else wording


def _ranked(wording: Template, people: Collection[str]) -> Template:
    """Move ranks before the holes of ``people`` into their modes; names after other forms of address are bare."""
    nodes: list[Node] = []
    for node in wording:
        if isinstance(node, Choice):
            node = Choice(tuple(_ranked(option, people) for option in node.options))
        elif isinstance(node, Maybe):
            node = Maybe(_ranked(node.body, people))
        elif isinstance(node, Hole) and node.key in people and nodes and isinstance(nodes[-1], str):
            if rank := _RANK.search(nodes[-1]):
                nodes[-1] = nodes[-1][: rank.start()]
                node = Hole(node.key, rank[1])
            elif _NO_TITLE.search(nodes[-1]):
                node = Hole(node.key, node.mode or "bare")
        nodes.append(node)
    return tuple(nodes)


def labelled(kind: Kind, value: Value, rng: Random) -> str:
    """Return the text of a value that follows a label: perhaps with a title before it, or a remark after it."""
    text = titled(value.text, rng) if isinstance(kind, Person) else value.text
    if isinstance(kind, Person) and rng.random() < _APPOSED:
        text += _apposition(rng)
    if isinstance(kind, (Person, Text)) and rng.random() < _REMARKED:
        text += rng.choice(_REMARKS)
    if isinstance(kind, Text) and not kind.name and text[:1].islower() and rng.random() < _HEDGED:
        text = rng.choice(_HEDGES) + text
    return text


def titled(name: str, rng: Random) -> str:
    """Put a title before a name, if the author is one to do so."""
    return f"{rng.choice(_TITLES)} {name}" if is_formal(rng) and rng.random() < _ADDRESSED else name


def _apposition(rng: Random) -> str:
    """Sample what may follow a name that it is no part of: a degree, a firm, a town, a room."""
    more = rng.choice([
        rng.choice(_DEGREES), rng.choice(_DEGREES), pools.company(rng), pools.company(rng), pools.city(rng),
        f"ext. {rng.randint(10, 999)}", f"Room {rng.randint(1, 400)}",
    ])  # fmt: skip
    return rng.choice([", {}", ", {}", " ({})", " - {}"]).format(more)


def _addressed(wording: Template, people: Collection[str], before: str, rng: Random) -> Template:
    nodes: list[Node] = []
    for node, after in zip(wording, (*wording[1:], "x"), strict=False):
        if isinstance(node, Hole) and node.key in people and not _NO_TITLE.search(before) and rng.random() < _ADDRESSED:
            nodes.append(f"{rng.choice(_TITLES)} ")
        nodes.append(_inside(node, people, before, rng))
        ends = isinstance(after, str) and after[:1] in (".", ";", "\n")
        if isinstance(node, Hole) and node.key in people and ends and rng.random() < _APPOSED:
            nodes.append(_apposition(rng))
        before = node if isinstance(node, str) else "x"
    return tuple(nodes)


def _inside(node: Node, people: Collection[str], before: str, rng: Random) -> Node:
    if isinstance(node, Choice):
        return Choice(tuple(_addressed(option, people, before, rng) for option in node.options))
    return Maybe(_addressed(node.body, people, before, rng)) if isinstance(node, Maybe) else node
