"""https://github.com/guidance-ai/llguidance"""

from __future__ import annotations

import json
from typing import Any

from llguidance import LLMatcher, LLTokenizer
from llguidance.numpy import allocate_token_bitmask, fill_next_token_bitmask

from constrain.bench.engines.base import BitmaskEngine, Tokens


class LLGuidance(BitmaskEngine):
    """llguidance, set up from the tokenizer folder with default options."""

    def __init__(self, tokens: Tokens) -> None:
        self._tokenizer = LLTokenizer(str(tokens.folder / "tokenizer.json"), eos_token=tokens.ends)
        self._bits = allocate_token_bitmask(1, self._tokenizer.vocab_size)
        self.words = self._bits[0]

    def compile(self, schema: Any) -> None:
        self._compiled = LLMatcher(self._tokenizer, LLMatcher.grammar_from_json_schema(json.dumps(schema)))
        if self._compiled.is_error():
            raise ValueError(self._compiled.get_error())

    def start(self) -> None:
        self._matcher = self._compiled.deep_copy()

    def mask(self) -> None:
        fill_next_token_bitmask(self._matcher, self._bits, 0)

    def commit(self, token: int) -> bool:
        return bool(self._matcher.consume_token(token))

    def may_end(self) -> bool:
        return bool(self._matcher.is_accepting())
