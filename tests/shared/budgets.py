"""Tokens that masks within a budget allow, and what they leave to be written."""

from __future__ import annotations

import numpy as np

from constrain.engine import Matcher, Vocabulary, allocate_bitmask


def tokens_of(matcher: Matcher, vocabulary: Vocabulary, budget: int | None = None) -> list[int]:
    """Return the allowed tokens, within a budget if there is one."""
    bits = allocate_bitmask(1, vocabulary.size)
    matcher.fill_bitmask(bits, budget=budget)
    return list(map(int, np.unpackbits(bits.view(np.uint8), bitorder="little").nonzero()[0]))


def needed_after(matcher: Matcher, token: int) -> int:
    """Return the fewest tokens that complete the text after an allowed one."""
    ahead = matcher.clone()
    assert ahead.accept(token)
    return ahead.min_tokens()
