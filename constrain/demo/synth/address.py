"""Forms of address before names, and remarks after values, which a document has but the values do not."""

from __future__ import annotations

import re
from collections.abc import Collection
from random import Random

from constrain.demo.synth.habits import habit
from constrain.demo.synth.kinds import Kind, Person, Text, Value
from constrain.demo.synth.template import Choice, Hole, Maybe, Node, Template

_TITLES = (
    "Mr", "Mr", "Mr.", "Mrs", "Mrs", "Mrs.", "Ms", "Ms", "Ms.", "Dr", "Dr", "Dr.", "Dr.", "Prof.", "Professor", "Miss",
    "Frau", "Herr", "Mme", "M.", "Señora", "Sig.", "Prof. Dr.", "Rev.", "Capt.", "Captain", "Sgt.", "Sister", "Ing.",
)  # fmt: skip
_REMARKS = (
    " (see note 2)", " (as agreed)", " (new)", " (checked)", " - see below", ", see overleaf", " *", " (1)", " (main)",
    " (provisional)", " (confirmed)", " (tbc)", " [sic]", ", as before", " (copy attached)", " - corrected",
    " (approx.)", " (unchanged)", " ✓", " (per e-mail)",
)  # fmt: skip
#: What a name may follow that has a title already, or is no name of a sentence.
_NO_TITLE = re.compile(r"(?:\b(?:Mr|Mrs|Ms|Dr|Prof|Miss|Frau|Herr|Sir|Lady|Capt|Rev|Sgt|Nurse)\.?\s|[\w@/'’-])$")

_FORMAL, _ADDRESSED, _REMARKED = 0.25, 0.6, 0.05
"""Shares of the authors who use titles, of the names that they give one, and of the labelled texts with a remark."""


def addressed(wording: Template, people: Collection[str], rng: Random) -> Template:
    """Put titles before some of the holes of ``people``, if the author is one to do so."""
    return _addressed(wording, people, "", rng) if people and _is_formal(rng) else wording


def labelled(kind: Kind, value: Value, rng: Random) -> str:
    """Return the text of a value that follows a label: perhaps with a title before it, or a remark after it."""
    text = value.text
    if isinstance(kind, Person) and _is_formal(rng) and rng.random() < _ADDRESSED:
        text = f"{rng.choice(_TITLES)} {text}"
    if isinstance(kind, (Person, Text)) and rng.random() < _REMARKED:
        text += rng.choice(_REMARKS)
    return text


def _is_formal(rng: Random) -> bool:
    return habit("titles", rng, lambda rng: rng.random() < _FORMAL)


def _addressed(wording: Template, people: Collection[str], before: str, rng: Random) -> Template:
    nodes: list[Node] = []
    for node in wording:
        if isinstance(node, Hole) and node.key in people and not _NO_TITLE.search(before) and rng.random() < _ADDRESSED:
            nodes.append(f"{rng.choice(_TITLES)} ")
        nodes.append(_inside(node, people, before, rng))
        before = node if isinstance(node, str) else "x"
    return tuple(nodes)


def _inside(node: Node, people: Collection[str], before: str, rng: Random) -> Node:
    if isinstance(node, Choice):
        return Choice(tuple(_addressed(option, people, before, rng) for option in node.options))
    return Maybe(_addressed(node.body, people, before, rng)) if isinstance(node, Maybe) else node
