"""A filter for the rest of a record that was begun."""

from __future__ import annotations

from collections.abc import Iterable

from constrain.engine import CompiledGrammar
from constrain.filters.engine_filter import ExLlamaV2EngineFilter
from constrain.runtime import Runtime


class BegunFilter(ExLlamaV2EngineFilter):
    """A filter for what may follow on tokens that stand in the prompt."""

    def __init__(self, runtime: Runtime, grammar: CompiledGrammar, tokens: Iterable[int]) -> None:
        """
        Args:
            runtime: has the model and the tokenizer.
            grammar: the grammar of the whole text.
            tokens: the tokens of its beginning.
        """
        super().__init__(runtime.model, runtime.tokenizer, grammar)
        self._begun = grammar.matcher()
        for token in tokens:
            self._begun.accept(token)

    def begin(self, prefix_str: str | None = "") -> None:
        self.matcher = self._begun.clone()
