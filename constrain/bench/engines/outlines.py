"""https://github.com/dottxt-ai/outlines-core"""

from __future__ import annotations

import json
from collections import defaultdict
from typing import Any

import numpy as np
from outlines_core import Guide, Index, Vocabulary
from outlines_core.json_schema import build_regex_from_schema

from constrain.bench.engines.base import BitmaskEngine, Tokens


class OutlinesCore(BitmaskEngine):
    """outlines-core: compiles a schema to a regular expression, and that to an index of all its states."""

    def __init__(self, tokens: Tokens) -> None:
        by_text: dict[bytes, list[int]] = defaultdict(list)
        for token, text in enumerate(tokens.texts):
            if text:
                by_text[text].append(token)
        self._vocabulary = Vocabulary(tokens.ends[0], dict(by_text))
        self.words = np.zeros((len(tokens.texts) + 31) // 32, dtype=np.int32)
        self._end = tokens.ends[0]

    def compile(self, schema: Any) -> None:
        self._index = Index(build_regex_from_schema(json.dumps(schema)), self._vocabulary)

    def start(self) -> None:
        self._guide = Guide(self._index)

    def mask(self) -> None:
        self._guide.write_mask_into(self.words.ctypes.data, self.words.size, 4)

    def commit(self, token: int) -> bool:
        try:
            self._guide.advance(token, return_tokens=False)
        except ValueError:
            return False
        return True

    def may_end(self) -> bool:
        self.mask()
        return self.allowed(self._end)
