"""Expressions of a Lark grammar for texts, special tokens, unconstrained text and other grammars."""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from constrain.engine.lark import NamedGrammar
from constrain.engine.special import pieces
from constrain.engine.vocabulary import Vocabulary
from constrain.errors import StructuralTagError

#: Most characters of the texts that end unconstrained text, and of tails: a text that repeats itself has as many tails
#: as characters.
_MAX_BARRED, _MAX_TAILS = 100_000, 500_000

#: White space between parameters, bounded like that of JSON.
SPACE = r"/[ \t]{1,2}|\r?\n[ \t]{0,40}/?"


@dataclass(frozen=True)
class Barriers:
    """Texts that end unconstrained text.

    Attributes:
        texts: texts of which the first one that is complete ends unconstrained text.
        following: those of them that may end this one.
        excluded: other texts that do not occur in it.
    """

    texts: frozenset[str] = frozenset()
    following: frozenset[str] = frozenset()
    excluded: frozenset[str] = frozenset()

    def tails(self, at: str) -> frozenset[str]:
        """Return texts that unconstrained text does not end with: ``following`` would complete one of ``texts`` early.

        The first ``aa`` of ``xaaa`` follows ``x``. So the text before an ``aa`` that ends it cannot be ``xa``, although
        there is no ``aa`` in it: ``a`` is a tail.

        Args:
            at: JSON pointer to the part that ends unconstrained text.

        Raises:
            StructuralTagError: they are too long.
        """
        found = (tail for end in self.following for text in self.texts for tail in _tails(text, end))
        return frozenset(_within(_MAX_TAILS, found, at))


def _tails(barred: str, following: str) -> Iterator[str]:
    """Yield the beginnings of a text that ``following`` completes before its own end."""
    for length in range(max(1, len(barred) - len(following) + 1), len(barred)):
        if following.startswith(barred[length:]):
            yield barred[:length]


def _within(limit: int, texts: Iterable[str], at: str) -> set[str]:
    """Return texts that have at most ``limit`` characters together; ``at`` is where they end unconstrained text."""
    found: set[str] = set()
    for text in texts:
        limit -= 0 if text in found else len(text)
        found.add(text)
        if limit < 0:
            raise StructuralTagError("the texts that end unconstrained text here are too long or too many", at)
    return found


class Expressions:
    """Writes expressions, and collects the grammars that they refer to.

    Attributes:
        grammars: these grammars, by name.
        pointers: of each, the JSON pointer to the part of the tag that it comes from.
    """

    def __init__(self, vocab: Vocabulary) -> None:
        self.grammars: dict[str, NamedGrammar] = {}
        self.pointers: dict[str, str] = {}
        self._names: dict[re.Pattern[str] | str, list[str]] = {}
        self._vocab = vocab

    def refer(self, grammar: NamedGrammar, at: str) -> str:
        """Return the expression of another grammar, which comes from the part at a JSON pointer.

        A part that is written twice has the same expression, and so have equal patterns.
        """
        names = self._names.setdefault(grammar if isinstance(grammar, re.Pattern) else at, [])
        for name in names:
            if self.grammars[name] == grammar:
                return f"@{name}"
        name = f"tag{len(self.grammars)}"
        self.grammars[name], self.pointers[name] = grammar, at
        names.append(name)
        return f"@{name}"

    def literal(self, text: str) -> str:
        """Return the expression of a text, in which names of special tokens are these tokens."""
        found = [
            _special(part.text) if part.special else json.dumps(part.text, ensure_ascii=False)
            for part in pieces(text, self._vocab.special_tokens)
            if part.text
        ]
        return " ".join(found) or "()"

    def free_text(self, barriers: Barriers, at: str, counts: str = "") -> str:
        """Return the expression of any text, empty or not, up to some barriers.

        Args:
            barriers: where it ends.
            at: JSON pointer to the part that it comes from.
            counts: bounds on its characters, as a regular expression writes them; empty for none.

        Raises:
            StructuralTagError: the texts of the barriers are too long.
        """
        texts = _within(_MAX_BARRED, barriers.texts | barriers.excluded, at)
        options = [re.escape(text) for text in sorted(texts)]
        options += [rf"{re.escape(tail)}\Z" for tail in sorted(barriers.tails(at))]
        character = f"(?!{'|'.join(options)})." if options else "."
        pattern = re.compile(f"(?s:{character}){counts or '+'}")
        return self.refer(pattern, at) if counts else f"{self.refer(pattern, at)}?"

    def token(self, token: Any, at: str) -> str:
        """Return the expression of the special token that is given by name or id.

        Raises:
            StructuralTagError: there is none.
        """
        return _special(self.token_name(token, at))

    def is_special(self, name: str) -> bool:
        """Whether a text is the name of a special token."""
        return name in self._vocab.special_tokens

    def token_name(self, token: Any, at: str) -> str:
        """Return the name of the special token that is given by name or id.

        Raises:
            StructuralTagError: there is none.
        """
        names = self._vocab.special_tokens
        for name, id_ in names.items():
            if token == name or (token == id_ and not isinstance(token, bool)):
                return name
        known = ", ".join(sorted(names)) or "none with a name"
        raise StructuralTagError(f"{token!r} is not one of the special tokens: {known}", at)

    def any_tokens(self, excluded: Collection[str], barriers: Barriers, at: str) -> str:
        """Return the expression of any text with special tokens, except for the excluded ones and those that end texts.

        Args:
            excluded: names of special tokens.
            barriers: where unconstrained text ends.
            at: JSON pointer to the part that it comes from.
        """
        names = self._vocab.special_tokens
        allowed = [name for name, id_ in names.items() if name not in excluded and id_ not in self._vocab.eos_token_ids]
        text = self.free_text(barriers, at)
        return f"{text} ({any_of(map(_special, allowed))} {text})*" if allowed else text


def any_of(options: Iterable[str]) -> str:
    """Return the expression of alternatives."""
    return "(" + " | ".join(options) + ")"


def _special(name: str) -> str:
    """Return Lark's notation of a special token: ``<|name|>`` as it is, ``<[NAME]>`` for ``[NAME]``."""
    return name if name.startswith("<") and name.endswith(">") else f"<{name}>"
