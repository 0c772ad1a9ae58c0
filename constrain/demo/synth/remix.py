"""Documents put together from pieces of wordings, with worn words: no wording can be learned by heart as a whole."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from functools import cache
from random import Random

from constrain.demo.synth import pools, template
from constrain.demo.synth.template import Template

_SENTENCES = re.compile(r"(?<=[.;!?])\s+|\n+")
_CLAUSES = re.compile(r"(?<=[.;!?,)])\s+|\n+|\s+(?=\()")
_JOINS = (" ", " ", " ", "\n", ", ", "; ")


@cache
def fragments(wording: str, clauses: bool) -> tuple[Template, ...]:
    """The sentences and lines of a wording, or its clauses, as far as they mention a slot."""
    boundary = _CLAUSES if clauses else _SENTENCES
    found: list[list[str | template.Hole | template.Choice | template.Maybe]] = [[]]
    for node in template.parse(wording):
        if not isinstance(node, str):
            found[-1].append(node)
            continue
        first, *others = boundary.split(node)
        found[-1].append(first)
        found += [[piece] for piece in others]
    return tuple(tuple(piece) for piece in found if template.keys(tuple(piece)))


def recombined(wordings: Iterable[str], rng: Random) -> Template:
    """Pieces of several wordings in random order, none of which mention the same slot."""
    clauses = rng.random() < 0.5
    pieces = [piece for wording in wordings for piece in fragments(wording, clauses)]
    rng.shuffle(pieces)
    used: set[str] = set()
    out: list[str | template.Hole | template.Choice | template.Maybe] = []
    join = rng.choice(_JOINS)
    for piece in pieces[: rng.randint(3, 14)]:
        keys = template.keys(piece)
        if used.isdisjoint(keys):
            used |= keys
            out += [join, *piece]
    return tuple(out[1:])


def worn(text: str, rng: Random) -> str:
    """``text`` with some of its words dropped, replaced, doubled by others, or in other case."""
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


def _any_word(rng: Random) -> str:
    return rng.choice([pools.noun, pools.adjective, pools.verb, pools.coined])(rng)


def shuffled_join(texts: Sequence[str], rng: Random) -> str:
    """``texts`` in random order with one separator throughout."""
    return rng.choice([", ", "; ", " / ", "\n", " - ", " | ", " "]).join(rng.sample(list(texts), len(texts)))
