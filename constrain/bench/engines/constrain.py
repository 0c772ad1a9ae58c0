"""The engine of this package."""

from __future__ import annotations

from typing import Any

import tokenizers  # noqa: F401 - keeps the import out of the timed set-up

from constrain.bench.engines.base import BitmaskEngine, Tokens
from constrain.engine import Vocabulary, allocate_bitmask, compile_json_schema
from constrain.errors import UnsatisfiableSchema


class Constrain(BitmaskEngine):
    """constrain, set up from the tokenizer folder with default options."""

    unsatisfiable = UnsatisfiableSchema

    def __init__(self, tokens: Tokens) -> None:
        self._vocabulary = Vocabulary.from_pretrained(tokens.folder)
        self.words = allocate_bitmask(1, self._vocabulary.size)[0]

    def compile(self, schema: Any) -> None:
        self._grammar = compile_json_schema(schema, self._vocabulary)

    def start(self) -> None:
        self._matcher = self._grammar.matcher()

    def mask(self) -> None:
        self._matcher.fill_bitmask(self.words)

    def commit(self, token: int) -> bool:
        return self._matcher.accept(token)

    def may_end(self) -> bool:
        return self._matcher.is_accepting()

    def counters(self) -> dict[str, int]:
        return self._grammar.counters
