"""https://github.com/mlc-ai/xgrammar"""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import xgrammar

from constrain.bench.engines.base import BitmaskEngine, Tokens


class XGrammar(BitmaskEngine):
    """XGrammar with one thread and no cache, like the others; objects allow additional properties by default."""

    def __init__(self, tokens: Tokens) -> None:
        info = xgrammar.TokenizerInfo(tokens.texts, vocab_size=len(tokens.texts), stop_token_ids=tokens.ends)
        self._compiler = xgrammar.GrammarCompiler(info, max_threads=1, cache_enabled=False)
        self._bits = np.zeros((1, (len(tokens.texts) + 31) // 32), dtype=np.int32)
        self.words = self._bits[0]
        self._end = tokens.ends[0]

    def compile(self, schema: Any) -> None:
        self._compiled = self._compiler.compile_json_schema(json.dumps(schema), strict_mode=False)

    def start(self) -> None:
        self._matcher = xgrammar.GrammarMatcher(self._compiled)

    def mask(self) -> None:
        # The mask is not written if every token is allowed.
        if not self._matcher.fill_next_token_bitmask(self._bits):
            self._bits.fill(-1)

    def commit(self, token: int) -> bool:
        return bool(self._matcher.accept_token(token))

    def may_end(self) -> bool:
        return bool(self._matcher.accept_token(self._end))
