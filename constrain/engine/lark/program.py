"""A grammar as the steps that build it: independent of the vocabulary, and small enough to be kept in a file."""

from __future__ import annotations

from typing import Any

from constrain import _core
from constrain.engine.grammar import CompiledGrammar, Limits, core_limits
from constrain.engine.references import retriever
from constrain.engine.vocabulary import Vocabulary, core_vocabulary
from constrain.errors import GrammarError

_WORDS = {"terminal", "special", "ignore", "json_schema", "regex"}
_RULES = {"nonterminal", "symbol", "sequence", "choice", "repeat", "define"}
_GRAMMARS = {"scope", "start", "text"}
_STEPS = _WORDS | _RULES | _GRAMMARS


class Program:
    """A builder of the engine that remembers its steps.

    Attributes:
        steps: the steps so far: the name of a method of the builder, and its arguments, in JSON types.
    """

    def __init__(self, limits: Limits) -> None:
        self.steps: list[list[Any]] = []
        self._builder = _core.CfgBuilder(core_limits(limits), retriever(None))

    @classmethod
    def of(cls, steps: Any, limits: Limits) -> Program:
        """The program of some steps.

        Raises:
            GrammarError: they are not the steps of a program.
        """
        program = cls(limits)
        try:
            for name, *arguments in steps:
                program.call(name, *arguments)
        except (TypeError, ValueError) as error:
            raise GrammarError(f"these are not the steps of a grammar: {error}") from error
        return program

    def call(self, name: str, *arguments: Any) -> Any:
        """Take a step, and return the symbol or expression that it makes, if any."""
        if name not in _STEPS:
            raise ValueError(f"there is no step {name!r}")
        self.steps.append([name, *arguments])
        return getattr(self._builder, name)(*arguments)

    def compile(self, start: int, vocab: Vocabulary) -> CompiledGrammar:
        """The texts that a symbol derives."""
        return CompiledGrammar(self._builder.compile(start, core_vocabulary(vocab)), vocab)
