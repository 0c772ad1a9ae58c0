"""A plugin of constrain with one filter: text made of given characters only."""

from __future__ import annotations

from typing import Any

from constrain.filters import ExLlamaV2Filter, hookimpl


class CharactersFilter(ExLlamaV2Filter):
    """Allows the tokens whose text has no other than the given characters, and the end of the text."""

    def __init__(self, model: Any, tokenizer: Any, characters: str) -> None:
        super().__init__(model, tokenizer)
        allowed = set(characters)
        pieces = tokenizer.get_id_to_piece_list()
        self.tokens = {token for token, piece in enumerate(pieces) if piece and allowed.issuperset(piece)}
        self.tokens.add(tokenizer.eos_token_id)

    def clone(self, c: CharactersFilter | None = None) -> CharactersFilter:
        c = super().clone(c)
        c.tokens = self.tokens
        return c

    def begin(self, prefix_str: str | None) -> None:
        """There is nothing to reset: what is allowed does not depend on the text before."""

    def feed(self, token: Any) -> None:
        """There is nothing to remember either."""

    def next(self) -> tuple[set[int], set[int]]:
        return self.tokens, set()


@hookimpl
def constrain_filters() -> dict[str, type[CharactersFilter]]:
    """Offer the filter under the name ``characters``."""
    return {"characters": CharactersFilter}
