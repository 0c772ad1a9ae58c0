"""Documents recombined from parts of wordings, with altered words, so that a model cannot memorise whole wordings."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from functools import cache
from random import Random

from constrain.demo.synth import pools, template
from constrain.demo.synth.template import Node, Template

_SENTENCES = re.compile(r"(?<=[.;!?])\s+|\n+")
_CLAUSES = re.compile(r"(?<=[.;!?,)])\s+|\n+|\s+(?=\()")
_JOINS = (" ", " ", " ", "\n", ", ", "; ")


@cache
def fragments(wording: str, clauses: bool) -> tuple[Template, ...]:
    """Return the sentences and lines of a wording, or its clauses, that mention a slot."""
    boundary = _CLAUSES if clauses else _SENTENCES
    found: list[list[Node]] = [[]]
    for node in template.parse(wording):
        if not isinstance(node, str):
            found[-1].append(node)
            continue
        first, *others = boundary.split(node)
        found[-1].append(first)
        found += [[piece] for piece in others]
    return tuple(tuple(piece) for piece in found if template.keys(tuple(piece)))


def recombined(wordings: Iterable[str], rng: Random) -> Template:
    """Combine parts of several wordings in random order, with disjoint slots."""
    clauses = rng.random() < 0.5
    pieces = [piece for wording in wordings for piece in fragments(wording, clauses)]
    rng.shuffle(pieces)
    used: set[str] = set()
    out: list[Node] = []
    join = rng.choice(_JOINS)
    for piece in pieces[: rng.randint(3, 14)]:
        keys = template.keys(piece)
        if used.isdisjoint(keys):
            used |= keys
            out += [join, *piece]
    return tuple(out[1:])


def named(piece: Template, prefix: str) -> Template:
    """Return a template whose slots have a prefix before their keys."""
    return tuple(_named_node(node, prefix) for node in piece)


def _named_node(node: Node, prefix: str) -> Node:
    if isinstance(node, template.Hole):
        return node if not node.slots else template.Hole(prefix + node.key, node.mode)
    if isinstance(node, template.Choice):
        return template.Choice(tuple(named(option, prefix) for option in node.options))
    return template.Maybe(named(node.body, prefix)) if isinstance(node, template.Maybe) else node


def worn(text: str, rng: Random) -> str:
    """Alter a text: drop, replace or insert words, or change their case."""
    return re.sub(r"[^\W\d_]+", lambda match: _worn_word(match.group(), rng), text)


def _worn_word(word: str, rng: Random) -> str:
    form = rng.random()
    if form < 0.06:
        return ""
    if form < 0.10:
        return _any_word(rng)
    if form < 0.14:
        return f"{word} {_any_word(rng)}"
    if form < 0.18:
        return rng.choice([str.upper, str.capitalize, str.lower])(word)
    return word


def reworded(text: str, rng: Random) -> str:
    """Replace some words by synonyms."""

    def other(match: re.Match[str]) -> str:
        known = pools.synonyms().get(match.group())
        return rng.choice(known) if known and rng.random() < 0.25 else match.group()

    return re.sub(r"\b[a-z]{3,}\b", other, text)


def misspelled(text: str, rng: Random) -> str:
    """Make typing errors in some words: letters swapped, doubled, left out or replaced by neighbours."""
    return re.sub(r"[^\W\d_]{4,}", lambda match: _misspelled_word(match.group(), rng), text)


def _misspelled_word(word: str, rng: Random) -> str:
    if rng.random() > 0.1:
        return word
    at = rng.randrange(1, len(word) - 1)
    before, letter, after = word[:at], word[at], word[at + 1 :]
    return rng.choice([
        before + after[:1] + letter + after[1:],
        before + after,
        before + letter + letter + after,
        before + rng.choice("aeiourstln10") + after,
    ])  # fmt: skip


def _any_word(rng: Random) -> str:
    return rng.choice([pools.noun, pools.adjective, pools.verb, pools.coined])(rng)


def shuffled_join(texts: Sequence[str], rng: Random) -> str:
    """Join texts in random order with one separator."""
    return rng.choice([", ", "; ", " / ", "\n", " - ", " | ", " "]).join(rng.sample(list(texts), len(texts)))
