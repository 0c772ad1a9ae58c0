"""Filters of constrain that follow a parser of lm-format-enforcer."""

from __future__ import annotations

from collections.abc import Callable
from copy import copy
from typing import Any
from weakref import WeakKeyDictionary

import torch
from lmformatenforcer import CharacterLevelParser, TokenEnforcer, TokenEnforcerTokenizerData

from constrain import ExLlamaV2, ExLlamaV2Tokenizer
from constrain.filters import ExLlamaV2Filter, hookimpl

_tokenizer_data: WeakKeyDictionary[ExLlamaV2Tokenizer, TokenEnforcerTokenizerData] = WeakKeyDictionary()


class ExLlamaV2TokenEnforcerFilter(ExLlamaV2Filter):
    """Allows what a character-level parser accepts, and the end of the sequence where the parser may end.

    Args:
        model: the model whose tokens are filtered.
        tokenizer: its tokenizer.
        character_level_parser: for example a ``JsonSchemaParser`` or a ``RegexParser``.
    """

    def __init__(
        self, model: ExLlamaV2, tokenizer: ExLlamaV2Tokenizer, character_level_parser: CharacterLevelParser
    ) -> None:
        super().__init__(model, tokenizer)
        self.token_enforcer = TokenEnforcer(tokenizer_data(tokenizer), character_level_parser)
        self.token_sequence: list[int] = []
        self._num_read = 0

    def clone(self, c: ExLlamaV2TokenEnforcerFilter | None = None) -> ExLlamaV2TokenEnforcerFilter:
        """Copy this filter; the copies share the tokens that states of the parser allow, and nothing else."""
        c = super().clone(c)
        c.token_enforcer = copy(self.token_enforcer)
        c.token_enforcer.prefix_states = dict(self.token_enforcer.prefix_states)
        c.token_sequence, c._num_read = list(self.token_sequence), self._num_read
        return c

    def use_background_worker(self) -> bool:
        """Always true: the parsers are written in Python, and take their time."""
        return True

    def begin(self, prefix_str: str | None) -> None:
        """Start a new text."""
        self.token_enforcer.prefix_states = {}  # the enforcer itself forgets no text
        self.token_sequence, self._num_read = [], 0

    def feed(self, token: torch.Tensor) -> None:
        """Advance by a token."""
        self.token_sequence.append(int(token))

    def next(self) -> tuple[list[int], list[int]]:
        """Return the ids that the parser allows; none of them ends the text but the end of the sequence."""
        # The enforcer takes a text for a new one unless it has seen it without its last token.
        for length in range(self._num_read, len(self.token_sequence)):
            self.token_enforcer.get_allowed_tokens(self.token_sequence[:length])
        self._num_read = len(self.token_sequence)
        allowed = self.token_enforcer.get_allowed_tokens(self.token_sequence).allowed_tokens
        return sorted(set(allowed)), []


def tokenizer_data(tokenizer: ExLlamaV2Tokenizer) -> TokenEnforcerTokenizerData:
    """Return a tokenizer as lm-format-enforcer wants it; built once, kept as long as the tokenizer."""
    if tokenizer not in _tokenizer_data:
        # Pieces without text would always be allowed, and parts of characters cannot be read one by one.
        regular = [
            (token_id, piece, piece.startswith(" "))
            for token_id, piece in enumerate(tokenizer.get_id_to_piece_list())
            if piece and "\ufffd" not in piece and token_id not in tokenizer.extended_id_to_piece
        ]
        data = TokenEnforcerTokenizerData(
            regular, _decoder(tokenizer), tokenizer.eos_token_id, False, tokenizer.get_vocab_size()
        )
        _tokenizer_data[tokenizer] = data
    return _tokenizer_data[tokenizer]


def _decoder(tokenizer: ExLlamaV2Tokenizer) -> Callable[[list[int]], str]:
    # A bound method would keep the tokenizer, and with it its entry in the table, alive.
    pieces = tokenizer.get_id_to_piece_list()
    return lambda ids: "".join(pieces[i] for i in ids)


@hookimpl
def constrain_filters() -> dict[str, Callable[..., Any]]:
    """Offer the filter under the name ``lmfe``."""
    return {"lmfe": ExLlamaV2TokenEnforcerFilter}
