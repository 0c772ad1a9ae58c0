"""XTC ("exclude top choices"), in expectation."""

from __future__ import annotations

import torch

from constrain.generator.samplers.distribution import Candidates


def exclude_top_choices(c: Candidates, probability: float, threshold: float, protected: torch.Tensor) -> Candidates:
    """Shift probability from all likely candidates but the least of them to the other candidates.

    XTC (https://github.com/oobabooga/text-generation-webui/pull/6335) removes, with some probability, every candidate
    at or above a threshold except the least likely of those. This is the mean over that coin: with x the
    probability of those to be removed, theirs is multiplied by ``1 - probability``, that of all others by
    ``1 + probability * x / (1 - x)``.

    Args:
        c: candidates in descending order.
        protected: bool of shape (V,), true for tokens that are never removed.
    """
    likely = torch.nonzero((c.probs >= threshold) & ~protected[c.ids]).flatten()
    removed = likely[:-1]
    x = float(c.probs[removed].sum())
    if removed.shape[0] == 0 or x >= 1.0:
        return c
    probs = c.probs * (1.0 + probability * x / (1.0 - x))
    probs[removed] = c.probs[removed] * (1.0 - probability)
    return Candidates(probs, c.ids)
