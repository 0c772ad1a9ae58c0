"""https://github.com/noamgat/lm-format-enforcer"""

from __future__ import annotations

import logging
from typing import Any

from lmformatenforcer import JsonSchemaParser, TokenEnforcer, TokenEnforcerTokenizerData

from constrain.bench.engines.base import Engine, Tokens


class LMFormatEnforcer(Engine):
    """lm-format-enforcer: a character-level parser in Python, without tokens that are partial characters."""

    def __init__(self, tokens: Tokens) -> None:
        logging.disable()  # failures are counted, so they need not be logged
        texts = {i: text.decode(errors="replace") for i, text in enumerate(tokens.texts)}
        regular = [(i, text, text.startswith(" ")) for i, text in texts.items() if text and "\ufffd" not in text]
        self._data = TokenEnforcerTokenizerData(
            regular, lambda ids: "".join(texts[i] for i in ids), tokens.ends[0], False, len(texts)
        )
        self._end = tokens.ends[0]

    def compile(self, schema: Any) -> None:
        JsonSchemaParser(schema)
        self._schema = schema

    def start(self) -> None:
        self._enforcer = TokenEnforcer(self._data, JsonSchemaParser(self._schema))
        self._written: list[int] = []

    def mask(self) -> None:
        self._allowed = set(self._enforcer.get_allowed_tokens(self._written).allowed_tokens)

    def allowed(self, token: int) -> bool:
        return token in self._allowed

    def commit(self, token: int) -> bool:
        self._written.append(token)
        return True

    def may_end(self) -> bool:
        self.mask()
        return self.allowed(self._end)
