"""A grammar as the list of steps that build it: independent of the vocabulary, and small enough to cache in a file."""

from __future__ import annotations

from typing import Any

from constrain import _core
from constrain.engine.compiled_grammar import CompiledGrammar, Limits, core_limits
from constrain.engine.references import retriever
from constrain.engine.vocabulary import Vocabulary, core_vocabulary
from constrain.errors import GrammarError

_WORDS = {"terminal", "special", "ignore", "json_schema", "regex", "substring"}
_RULES = {"nonterminal", "symbol", "sequence", "choice", "repeat", "define"}
_GRAMMARS = {"scope", "start", "text"}
_STEPS = _WORDS | _RULES | _GRAMMARS


class Program:
    """A recorder of the calls of the engine's grammar builder.

    Attributes:
        steps: the calls so far: names of methods of the builder, with arguments of JSON types.
    """

    def __init__(self, limits: Limits) -> None:
        self.steps: list[list[Any]] = []
        self._builder = _core.CfgBuilder(core_limits(limits), retriever(None))

    @classmethod
    def of(cls, steps: Any, limits: Limits) -> Program:
        """Replay recorded steps.

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
        """Run and record a step, and return the symbol or expression that it creates, if any."""
        if name not in _STEPS:
            raise ValueError(f"there is no step {name!r}")
        self.steps.append([name, *arguments])
        return getattr(self._builder, name)(*arguments)

    def compile(self, start: int, vocab: Vocabulary) -> CompiledGrammar:
        """Compile the grammar with a start symbol."""
        return CompiledGrammar(self._builder.compile(start, core_vocabulary(vocab)), vocab)
