"""Checks of constraints: membership of a text, random texts, and a mock model."""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Callable
from typing import TYPE_CHECKING, TypeAlias

from constrain.arguments import check_count, check_text
from constrain.engine import CompiledGrammar, Vocabulary
from constrain.engine.special import MARK, shown
from constrain.errors import DeadEnd
from constrain.testing.courses import Course, Tokens, follow

if TYPE_CHECKING:
    from constrain.filters import ExLlamaV2Filter

Constraint: TypeAlias = "CompiledGrammar | ExLlamaV2Filter"

#: Function that chooses one of the tokens, or ``None`` to complete the text.
Choose: TypeAlias = Callable[[Tokens], "int | None"]

#: Probability that a random text ends where it may end.
END = 0.3


def accepts(constraint: Constraint, text: str, *, special_tokens: bool = False) -> bool:
    """Whether a text is in the language of a constraint.

    For a filter, the text is encoded with its tokenizer; some tokenizers encode names of special tokens as these tokens
    in any case.

    Args:
        constraint: a compiled grammar, or a filter.
        text: the text.
        special_tokens: read names of special tokens in it as these tokens.

    Raises:
        ResourceLimit: parsing the text exceeds the limits of the grammar.
        FilterError: the filter raised.
    """
    if isinstance(constraint, CompiledGrammar):
        return constraint.accepts(text, special_tokens=special_tokens)
    course = follow(constraint)
    for token in constraint.tokenizer.encode(text, encode_special_tokens=special_tokens)[0].tolist():
        if token not in course.allowed():
            return False
        course.accept(token)
    course.allowed()
    return course.may_end()


def sample(constraint: Constraint, seed: int = 0, *, max_tokens: int = 200) -> str:
    """Sample a random text of a constraint's language, the same one for the same seed.

    At each step a kind of character (letter, digit, quotation mark, bracket, ...) is sampled uniformly, then a token
    that starts with one of this kind. So strings and lists of a JSON Schema are short, and all branches occur. Special
    tokens of a grammar are written as their names.

    Args:
        constraint: a compiled grammar, or a filter.
        seed: seed of the random numbers.
        max_tokens: number of tokens after which the text is completed in the shortest way.

    Raises:
        DeadEnd: no token is allowed, and the text is not complete.
        VocabularyError: no text of the grammar is tokenizable.
        ResourceLimit: parsing the text exceeds the limits of the grammar.
        FilterError: the filter raised, or the text did not end.
    """
    check_count("max_tokens", max_tokens)
    rng = random.Random(seed)
    course = follow(constraint)

    def choose(tokens: Tokens) -> int | None:
        if course.may_end() and rng.random() < END:
            return None
        by_kind: dict[str, list[int]] = defaultdict(list)
        for token in tokens.tolist():
            by_kind[_kind(course.content(token)[0])].append(token)
        return rng.choice(by_kind[rng.choice(sorted(by_kind))])

    return _write(course, choose, max_tokens)


class MockModel:
    """A mock model, whose output without a constraint is one text.

    Under a constraint it writes the allowed parts of that text, in order, and skips the rest; then the output is
    completed in the shortest way. It can also be passed to filters in place of a model.

    Args:
        text: the text. Names of special tokens in it are read as these tokens where they are allowed.
    """

    def __init__(self, text: str = "") -> None:
        check_text("text", text)
        self.text = text

    def write(self, constraint: Constraint, *, max_tokens: int = 1000) -> str:
        """Generate the output under a constraint; errors as for :func:`sample`."""
        check_count("max_tokens", max_tokens)
        course = follow(constraint)
        wanted, at = self.text.encode(), 0
        by_bytes = _tokens_by_bytes(course.vocabulary)
        longest = max(map(len, by_bytes), default=0)

        def choose(tokens: Tokens) -> int | None:
            nonlocal at
            allowed = set(tokens.tolist())
            for start in range(at, len(wanted)):
                for end in range(min(start + longest, len(wanted)), start, -1):
                    for token in by_bytes.get(wanted[start:end], ()):
                        if token in allowed:
                            at = end
                            return token
            return None

        return _write(course, choose, max_tokens)


def _write(course: Course, choose: Choose, max_tokens: int) -> str:
    text = b""
    for _ in range(max_tokens):
        tokens = course.allowed()
        if not tokens.size and not course.may_end():
            raise DeadEnd("no token is allowed", tail=text.decode(errors="replace"))
        token = choose(tokens) if tokens.size else None
        if token is None:
            break
        course.accept(token)
        text += course.content(token)
    return shown(text + course.finish())


def _kind(byte: int) -> str:
    char = chr(byte)
    if byte == MARK[0]:
        return "special token"
    if byte >= 0x80:
        return "beyond ASCII"
    if char.isalpha():
        return "letter"
    if char.isdigit():
        return "digit"
    if char.isspace():
        return "space"
    return next((group for group in ('"', "[{", "]}", ",:") if char in group), "other")


def _tokens_by_bytes(vocabulary: Vocabulary) -> dict[bytes, list[int]]:
    by_bytes: dict[bytes, list[int]] = defaultdict(list)
    for token in range(vocabulary.size):
        if text := vocabulary.token_bytes(token):
            by_bytes[text].append(token)
    for name, token in vocabulary.special_tokens.items():
        by_bytes[name.encode()].append(token)
    return by_bytes
