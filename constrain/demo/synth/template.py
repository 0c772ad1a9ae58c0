"""The template language of wordings.

========== =====================================================================
``{key}``   the value of a slot, ``{key:mode}`` in one of its layouts, ``{key:cap}`` with a capital at its start
``{=kind}`` a value of a kind that belongs to no slot, such as ``{=money 10 900}``: a distractor
``<a|b|>``  one of the alternatives, each a template again, possibly empty
``[text]``  left out one time in three; slots in it are then not mentioned
``\\x``     the character ``x`` itself
========== =====================================================================
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from random import Random

Fill = Callable[[str, str], str]
"""Function that returns the text of a slot: ``fill(key, mode)``."""

Say = Callable[[str], str]
"""Function that returns the text printed for the words around slots."""


@dataclass(frozen=True)
class Hole:
    """A place for the value of a slot, or for a distractor, whose ``key`` is ``=`` and the specification of a kind."""

    key: str
    mode: str = ""

    @property
    def slots(self) -> set[str]:
        """The slot, if it is not a distractor."""
        return set() if self.key.startswith("=") else {self.key}


@dataclass(frozen=True)
class Choice:
    options: tuple[Template, ...]


@dataclass(frozen=True)
class Maybe:
    body: Template


Node = str | Hole | Choice | Maybe
Template = tuple[Node, ...]

_KEPT = 0.63


@cache
def parse(source: str) -> Template:
    """Parse a template.

    Raises:
        ValueError: a bracket is not closed.
    """
    return _parse(source, 0, "")[0]


def render(template: Template, rng: Random, fill: Fill, say: Say = str) -> str:
    """Render a template; ``fill`` is called once for every slot in the text, in order."""
    out: list[str] = []
    for node in template:
        if isinstance(node, str):
            out.append(say(node))
        elif isinstance(node, Hole):
            out.append(fill(node.key, node.mode))
        elif isinstance(node, Choice):
            out.append(render(rng.choice(node.options), rng, fill, say))
        elif rng.random() < _KEPT:
            out.append(render(node.body, rng, fill, say))
    return "".join(out)


def keys(template: Template) -> set[str]:
    """Return the slots that occur in a template."""
    found: set[str] = set()
    for node in template:
        if isinstance(node, Hole):
            found |= node.slots
        elif isinstance(node, Choice):
            found.update(*(keys(option) for option in node.options))
        elif isinstance(node, Maybe):
            found |= keys(node.body)
    return found


def always(template: Template) -> set[str]:
    """Return the slots that occur in every text of a template."""
    found: set[str] = set()
    for node in template:
        if isinstance(node, Hole):
            found |= node.slots
        elif isinstance(node, Choice):
            found |= set.intersection(*(always(option) for option in node.options))
    return found


def _parse(source: str, at: int, stops: str) -> tuple[Template, int]:
    nodes: list[str | Hole | Choice | Maybe] = []
    text = ""
    while at < len(source) and source[at] not in stops:
        char = source[at]
        if char in "{<[" and text:
            nodes.append(text)
            text = ""
        if char == "{":
            end = source.index("}", at)
            nodes.append(_hole(source[at + 1 : end]))
            at = end + 1
        elif char == "[":
            body, at = _parse(source, at + 1, "]")
            nodes.append(Maybe(body))
            at = _closed(source, at)
        elif char == "<":
            options: list[Template] = []
            while not options or source[at] == "|":
                option, at = _parse(source, at + 1, "|>")
                options.append(option)
                if at == len(source):
                    break
            nodes.append(Choice(tuple(options)))
            at = _closed(source, at)
        else:
            at += char == "\\"
            text += source[at]
            at += 1
    return (*nodes, text) if text else tuple(nodes), at


def _hole(text: str) -> Hole:
    return Hole(text) if text.startswith("=") else Hole(*text.split(":", 1))


def _closed(source: str, at: int) -> int:
    if at >= len(source):
        raise ValueError(f"a bracket is not closed in wording {source!r}")
    return at + 1
