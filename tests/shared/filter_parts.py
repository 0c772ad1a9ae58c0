"""Shared by the tests of filters: constants, tokens of masks, and filters that several files use."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from typing import Any

import numpy as np
import torch

from constrain import ExLlamaV2Tokenizer
from constrain.filters import Constraint, ExLlamaV2Filter
from constrain.filters.masks import TokenMask, flags

EOS = 1
WIDTH = 384
MODEL: Any = None
FORMS = ["Ids", "Logits", "Bits", "Duck"]
#: Creates a filter of a form, with scripted results.
Script = Callable[..., Any]
#: Adapts a filter, and begins it.
Begin = Callable[..., Any]


def tokens(mask: TokenMask | None, width: int = WIDTH) -> list[int]:
    allowed: list[int] = np.flatnonzero(flags(mask, width)).tolist()
    return allowed


def accept_text(constraint: Constraint, tokenizer: ExLlamaV2Tokenizer, text: str) -> None:
    for token in tokenizer.encode(text)[0].tolist():
        constraint.accept(token)


class Biasing(ExLlamaV2Filter):
    """Changes the logits that it is given, in place, and excludes none."""

    def __init__(self, change: Callable[[torch.Tensor], torch.Tensor]) -> None:
        self.change = change

    def can_mask_logits(self) -> bool:
        return True

    def begin(self, prefix_str: str | None) -> None: ...
    def feed(self, token: torch.Tensor) -> None: ...
    def prepare_logit_mask(self) -> bool:
        return True

    def mask_logits(self, logits: torch.Tensor) -> torch.Tensor:
        assert logits.dtype is torch.float32 and not logits.any()
        return self.change(logits)


class EagerFilter(ExLlamaV2Filter):
    """Starts its evaluation in the background in ``feed``."""

    def __init__(self) -> None:
        self.background_result, self.evaluated, self.dropped = None, 0, False

    def begin(self, prefix_str: str | None) -> None: ...

    def feed(self, token: torch.Tensor) -> None:
        self.background_result = Future()
        self.background_result.set_result(({int(token) + 1}, set()))

    def next(self) -> Any:
        self.evaluated += 1
        return {3}, set()

    def background_drop(self) -> None:
        self.dropped = True
        super().background_drop()
