"""A text under a constraint, token by token, whether that is a compiled grammar or a filter."""

from __future__ import annotations

import random
from abc import ABC, abstractmethod
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from constrain.engine import CompiledGrammar, Vocabulary, allocate_bitmask
from constrain.errors import FilterError

if TYPE_CHECKING:
    from constrain.filters import ExLlamaV2Filter

Tokens = npt.NDArray[np.intp]

#: A filter cannot be asked for a short way to its end; so many further tokens are tried.
LAST_TOKENS = 2000


class Course(ABC):
    """One text under a constraint.

    Attributes:
        vocabulary: what the tokens stand for.
    """

    vocabulary: Vocabulary

    @abstractmethod
    def allowed(self) -> Tokens:
        """The tokens that may come next, ascending, without those that are no text."""

    @abstractmethod
    def may_end(self) -> bool:
        """Whether the text may end where ``allowed`` was asked last."""

    @abstractmethod
    def accept(self, token: int) -> None:
        """Go on by an allowed token."""

    @abstractmethod
    def finish(self) -> bytes:
        """Complete the text, and return what was added."""


def follow(constraint: CompiledGrammar | ExLlamaV2Filter) -> Course:
    """Start a text under a constraint."""
    return GrammarCourse(constraint) if isinstance(constraint, CompiledGrammar) else FilterCourse(constraint)


class GrammarCourse(Course):
    """A text under a compiled grammar."""

    def __init__(self, grammar: CompiledGrammar) -> None:
        self.vocabulary = grammar.vocabulary
        self._matcher = grammar.matcher()
        self._bits = allocate_bitmask(1, self.vocabulary.size)

    def allowed(self) -> Tokens:
        self._matcher.fill_bitmask(self._bits)
        tokens = np.flatnonzero(np.unpackbits(self._bits.view(np.uint8), bitorder="little"))
        return np.setdiff1d(tokens, self.vocabulary.eos_token_ids, assume_unique=True)

    def may_end(self) -> bool:
        return self._matcher.is_accepting()

    def accept(self, token: int) -> None:
        self._matcher.accept(token)

    def finish(self) -> bytes:
        return self._matcher.completion()


class FilterCourse(Course):
    """A text under a filter."""

    def __init__(self, target: ExLlamaV2Filter) -> None:
        import torch

        from constrain.filters import FilterStack
        from constrain.filters.engine import vocabulary_of

        self.vocabulary = vocabulary_of(target.tokenizer)
        self._stack = FilterStack([target], target.tokenizer, self.vocabulary.size)
        self._stack.begin()
        self._logits = torch.zeros(self.vocabulary.size)
        self._texts = np.flatnonzero([bool(self.vocabulary.token_bytes(i)) for i in range(self.vocabulary.size)])
        self._ended = False
        self._name = type(target).__name__

    def allowed(self) -> Tokens:
        if self._ended:
            return np.empty(0, dtype=np.intp)
        self._logits.zero_()
        self._stack.apply(self._logits)
        tokens: Tokens = self._texts[self._logits.numpy()[self._texts] == 0]
        return tokens

    def may_end(self) -> bool:
        return self._ended or any(float(self._logits[token]) == 0 for token in self.vocabulary.eos_token_ids)

    def accept(self, token: int) -> None:
        self._ended = self._stack.ends(token)
        self._stack.feed(token)

    def finish(self) -> bytes:
        rng, added = random.Random(0), b""
        for _ in range(LAST_TOKENS):
            tokens = self.allowed()
            if self.may_end() or not tokens.size:
                return added
            token = int(rng.choice(tokens))
            self.accept(token)
            added += self.vocabulary.token_bytes(token)
        raise FilterError(f"the text did not end within {LAST_TOKENS} tokens", (self._name,))
