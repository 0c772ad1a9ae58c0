"""A common interface of grammars and filters for generating one text, token by token."""

from __future__ import annotations

import random
from abc import ABC, abstractmethod
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from constrain.arguments import refused
from constrain.engine import CompiledGrammar, Vocabulary, allocate_bitmask
from constrain.engine.bitmask import unpacked
from constrain.errors import FilterError

if TYPE_CHECKING:
    from constrain.filters import ExLlamaV2Filter

Tokens = npt.NDArray[np.intp]

#: Maximum number of random tokens to complete a text under a filter, which need not know a shortest completion.
MAX_COMPLETION_TOKENS = 2000


class Course(ABC):
    """The state of one text under a constraint.

    Attributes:
        vocabulary: the vocabulary.
    """

    vocabulary: Vocabulary

    @abstractmethod
    def allowed(self) -> Tokens:
        """The allowed tokens, ascending, without end-of-sequence tokens at the end of the text."""

    @abstractmethod
    def may_end(self) -> bool:
        """Whether the text may end; to be called after :meth:`allowed`."""

    @abstractmethod
    def accept(self, token: int) -> None:
        """Append an allowed token."""

    @abstractmethod
    def finish(self) -> bytes:
        """Complete the text, and return the appended bytes."""

    def content(self, token: int) -> bytes:
        """The bytes of a token; for special tokens as in :func:`constrain.engine.special.spelling`."""
        return self.vocabulary.token_bytes(token) or self.vocabulary.core.spelling(token)


def follow(constraint: CompiledGrammar | ExLlamaV2Filter) -> Course:
    """Start a text under a constraint.

    Raises:
        ArgumentError: the argument is not a constraint.
    """
    if isinstance(constraint, CompiledGrammar):
        return GrammarCourse(constraint)
    if not hasattr(constraint, "tokenizer"):
        raise refused("constraint", constraint, "a compiled grammar or a filter")
    return FilterCourse(constraint)


class GrammarCourse(Course):
    """A text under a compiled grammar."""

    def __init__(self, grammar: CompiledGrammar) -> None:
        self.vocabulary = grammar.vocabulary
        self._matcher = grammar.matcher()
        self._bits = allocate_bitmask(1, self.vocabulary.size)

    def allowed(self) -> Tokens:
        self._matcher.fill_bitmask(self._bits)
        tokens = unpacked(self._bits)
        ends = self.vocabulary.eos_token_ids if self.may_end() else ()
        return np.setdiff1d(tokens, ends, assume_unique=True)

    def may_end(self) -> bool:
        return self._matcher.is_accepting()

    def accept(self, token: int) -> None:
        self._matcher.accept(token)

    def finish(self) -> bytes:
        return self._matcher.completion()


class FilterCourse(Course):
    """A text under a filter."""

    def __init__(self, target: ExLlamaV2Filter) -> None:
        from constrain.filters.adapter import adapt
        from constrain.filters.engine_filter import ExLlamaV2EngineFilter
        from constrain.filters.masks import flags
        from constrain.filters.vocabularies import vocabulary_of

        self.vocabulary = vocabulary_of(target.tokenizer)
        self._constraint = adapt(target, target.tokenizer, self.vocabulary.size)
        self._constraint.begin()
        self._flags = flags(None, self.vocabulary.size)
        self._matcher = target.matcher if isinstance(target, ExLlamaV2EngineFilter) else None
        self._texts = np.flatnonzero([bool(self.vocabulary.token_bytes(i)) for i in range(self.vocabulary.size)])
        self._special = sorted(self.vocabulary.special_token_ids.difference(self.vocabulary.eos_token_ids))
        self._ended = False
        self._name = type(target).__name__

    def allowed(self) -> Tokens:
        from constrain.filters.masks import flags

        if self._ended:
            return np.empty(0, dtype=np.intp)
        self._flags = flags(self._constraint.mask(), self.vocabulary.size)
        candidates = self._texts
        if self._matcher is not None:
            asked = () if self._matcher.is_accepting() else self.vocabulary.eos_token_ids
            candidates = np.union1d(self._texts, np.array([*self._special, *asked], dtype=np.intp))
        allowed: Tokens = candidates[self._flags[candidates]]
        return allowed

    def may_end(self) -> bool:
        if self._ended or (self._matcher is not None and not self._matcher.is_accepting()):
            return self._ended
        return any(self._flags[token] for token in self.vocabulary.eos_token_ids)

    def accept(self, token: int) -> None:
        self._ended = token in self._constraint.end_tokens
        self._constraint.accept(token)

    def finish(self) -> bytes:
        rng, added = random.Random(0), b""
        for _ in range(MAX_COMPLETION_TOKENS):
            tokens = self.allowed()
            if self.may_end() or not tokens.size:
                return added
            token = int(rng.choice(tokens))
            self.accept(token)
            added += self.content(token)
        raise FilterError(f"the text did not end within {MAX_COMPLETION_TOKENS} tokens", (self._name,))
