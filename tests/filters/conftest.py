"""A tokenizer without a model, and scripted filters of each form."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from threading import current_thread, main_thread
from typing import Any

import numpy as np
import pytest
import torch
from filter_parts import EOS, WIDTH, Begin, Script

from constrain import ExLlamaV2Tokenizer
from constrain.filters import Constraint, ExLlamaV2Filter
from constrain.filters.adapter import adapt


@dataclass
class Config:
    model_dir: str
    vocab_size: int = 380
    bos_token_id: int = 0
    eos_token_id: int = 1
    pad_token_id: int = 2


@pytest.fixture(scope="session")
def tokenizer(tiny_dir: Path) -> ExLlamaV2Tokenizer:
    return ExLlamaV2Tokenizer(Config(str(tiny_dir)))


class Ids(ExLlamaV2Filter):
    """Returns scripted results as ids, one for each call; records the calls, and whether they ran on another thread."""

    def __init__(self, *results: Any, background: bool = False) -> None:
        self.background_result = None
        self.results = list(results)
        self.background = background
        self.trace: list[str] = []

    def clone(self, c: Any = None) -> Any:
        c = type(self)(*self.results, background=self.background)
        c.trace = [*self.trace]
        return c

    def note(self, what: str) -> None:
        self.trace.append(what if current_thread() is main_thread() else f"{what} in background")

    def use_background_worker(self) -> bool:
        return self.background

    def begin(self, prefix_str: str | None) -> None:
        self.note(f"begin {prefix_str!r}")

    def feed(self, token: torch.Tensor) -> None:
        assert token.shape == (1, 1) and token.dtype is torch.long
        self.note(f"feed {int(token[0][0])}")

    def next(self) -> Any:
        self.note("next")
        return self.results.pop(0)


class Logits(Ids):
    """Returns scripted results as changes of logits: -inf for other tokens, and a bias if the result is a dict."""

    clone = Ids.clone

    def can_mask_logits(self) -> bool:
        return True

    def prepare_logit_mask(self) -> bool:
        self.note("prepare")
        return True

    def mask_logits(self, logits: torch.Tensor) -> torch.Tensor:
        self.note("mask")
        allowed = self.results.pop(0)[0]
        masked = torch.full_like(logits, -torch.inf)
        masked[list(allowed)] = logits[list(allowed)]
        for token, bias in allowed.items() if isinstance(allowed, dict) else ():
            masked[token] += bias
        return masked


class Bits(Ids):
    """Returns scripted results as bitmasks."""

    end_tokens = (EOS,)
    clone = Ids.clone

    def can_mask_logits(self) -> bool:
        return True

    def fill_bitmask(self, bits: Any, row: int) -> bool:
        self.note("fill")
        allowed = self.results.pop(0)[0]
        if allowed is None:
            return False
        flags = np.zeros(32 * bits.shape[1], dtype=np.uint8)
        flags[list(allowed)] = 1
        bits[row] = np.packbits(flags, bitorder="little").view(np.int32)
        return True


class Duck:
    """Has only the methods that every version of the protocol has."""

    def __init__(self, *results: Any) -> None:
        self.results = list(results)
        self.fed: list[int] = []

    def begin(self, prefix_str: str) -> None:
        self.fed.clear()

    def feed(self, token: torch.Tensor) -> None:
        self.fed.append(int(token))

    def next(self) -> Any:
        return self.results.pop(0)


CLASSES: dict[str, Any] = {"Ids": Ids, "Logits": Logits, "Bits": Bits, "Duck": Duck}


@pytest.fixture(scope="session")
def script() -> Script:
    """``script(form, *results)`` creates a filter with these results; the form is the name of its class."""
    return lambda form, *results, **options: CLASSES[form](*results, **options)


@pytest.fixture(name="begun", scope="session")
def begun_(tokenizer: ExLlamaV2Tokenizer) -> Begin:
    """Return a function that adapts a filter and begins it."""

    def begun(target: Any, width: int = WIDTH, time_limit: float | None = None) -> Constraint:
        made = adapt(target, tokenizer, width, time_limit)
        made.begin()
        return made

    return begun
