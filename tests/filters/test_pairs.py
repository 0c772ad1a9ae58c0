"""Each filter alone and in pairs: every form allows the same tokens."""

from __future__ import annotations

import random
from itertools import combinations_with_replacement
from typing import Any

import numpy as np
import pytest
import torch

from constrain import ExLlamaV2Tokenizer
from constrain.filters import Constraint, ExLlamaV2Filter, combine, create
from constrain.filters.masks import flags

EOS = 1
WIDTH = 384
MODEL: Any = None
SCHEMA = {
    "type": "object",
    "properties": {"a": {"enum": [1, 12, 123]}},
    "required": ["a"],
    "additionalProperties": False,
}
ARGUMENTS: dict[str, dict[str, Any]] = {
    "prefix": {"prefix_strings": ['{"a', '{ "a"']},
    "select": {"options": ['{"a": 12}', '{"a": 1}', '{ "a":1}']},
    "regex": {"pattern": r'\{ ?"[ab]": ?[0-9]{1,3}\}'},
    "grammar": {"grammar": r'start: "{" SPACE? "\"a\":" SPACE? ("12" | "1" | "34") "}"' + '\nSPACE: " "'},
    "json_schema": {"schema": SCHEMA},
    "characters": {},
}


class Characters(ExLlamaV2Filter):
    """Allows tokens of certain characters; returns sets."""

    def begin(self, prefix_str: str | None) -> None:
        pieces = self.tokenizer.get_id_to_piece_list()
        self.allowed = {i for i, piece in enumerate(pieces) if piece and set(piece) <= set('{}" abc:123')} | {EOS}

    def feed(self, token: torch.Tensor) -> None: ...

    def next(self) -> Any:
        return self.allowed, set()

    def use_background_worker(self) -> bool:
        return True


class Lists:
    """A wrapper of a filter that has the form with ids only, without background work."""

    def __init__(self, inner: ExLlamaV2Filter) -> None:
        self.begin, self.feed, self.next = inner.begin, inner.feed, inner.next


class Masks(Lists):
    """A wrapper of a filter that hides its form with bitmasks."""

    def __init__(self, inner: ExLlamaV2Filter) -> None:
        super().__init__(inner)
        self.can_mask_logits = inner.can_mask_logits
        self.prepare_logit_mask, self.mask_logits = inner.prepare_logit_mask, inner.mask_logits


def make(name: str, tokenizer: ExLlamaV2Tokenizer) -> ExLlamaV2Filter:
    if name == "characters":
        return Characters(MODEL, tokenizer)
    made: ExLlamaV2Filter = create(name, MODEL, tokenizer, **ARGUMENTS[name])
    return made


def allowed_by(constraint: Constraint) -> list[int]:
    allowed: list[int] = np.flatnonzero(flags(constraint.mask(), WIDTH)).tolist()
    return allowed


@pytest.mark.parametrize("names", [*combinations_with_replacement(ARGUMENTS, 2), *((name,) for name in ARGUMENTS)])
def test_all_forms_allow_the_same(tokenizer: ExLlamaV2Tokenizer, names: tuple[str, ...]) -> None:
    def constraint(view: Any = lambda inner: inner) -> Constraint:
        made = combine([view(make(name, tokenizer)) for name in names], tokenizer, WIDTH)
        made.begin()
        return made

    choose = random.Random(repr(names))
    best, ids, logits = constraint(), constraint(Lists), constraint(Masks)
    for _ in range(16):
        allowed = allowed_by(best)
        assert allowed_by(ids) == allowed
        assert allowed_by(logits) == allowed
        token = choose.choice(allowed)
        if token == EOS or token in ids.end_tokens:
            break
        for each in (best, ids, logits):
            each.accept(token)
