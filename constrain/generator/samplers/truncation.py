"""Truncations: which of the candidates stay.

Each takes candidates in descending order and returns those that stay, at least one, renormalised and in that order.
"""

from __future__ import annotations

import torch

from constrain.generator.samplers.distribution import Candidates


def top_p(c: Candidates, threshold: float) -> Candidates:
    """Keep the fewest candidates that together reach ``threshold`` (Holtzman et al. 2020, nucleus sampling)."""
    before = c.probs.cumsum(0) - c.probs
    return c.first(max(1, int((before < threshold).sum())))


def top_a(c: Candidates, factor: float) -> Candidates:
    """Keep candidates with ``p >= factor * p_max ** 2``."""
    return _at_least(c, factor * float(c.probs[0]) ** 2)


def min_p(c: Candidates, factor: float) -> Candidates:
    """Keep candidates with ``p >= factor * p_max`` (Nguyen et al. 2024)."""
    return _at_least(c, factor * float(c.probs[0]))


def tail_free(c: Candidates, threshold: float) -> Candidates:
    """Cut where the curve of probabilities has flattened out.

    The absolute second differences, normalised, are summed from the front; the candidates up to the one at which the
    sum exceeds ``threshold`` stay (tail-free sampling, https://www.trentonbricken.com/Tail-Free-Sampling/).
    """
    if c.probs.shape[0] < 3:
        return c
    curvature = c.probs.diff(n=2).abs()
    total = float(curvature.sum())
    if total == 0.0:
        return c
    return c.first(1 + int((curvature.cumsum(0) / total <= threshold).sum()))


def typical(c: Candidates, threshold: float) -> Candidates:
    """Keep the fewest candidates of most typical surprise that together reach ``threshold``.

    Typical are those with ``-log p`` near the entropy (Meister et al. 2023, locally typical sampling).
    """
    surprise = -c.probs.clamp_min(torch.finfo(c.probs.dtype).tiny).log()
    entropy = (c.probs * surprise).sum()
    order = (surprise - entropy).abs().argsort(stable=True)
    sorted_probs = c.probs[order]
    before = sorted_probs.cumsum(0) - sorted_probs
    kept = torch.zeros_like(c.probs, dtype=torch.bool)
    kept[order] = before < threshold
    return c.keep(kept)


def mirostat(c: Candidates, mu: float) -> Candidates:
    """Keep candidates whose surprise ``-log2 p`` is at most ``mu`` bits (Basu et al. 2021, Mirostat 2.0)."""
    return _at_least(c, 2.0**-mu)


def _at_least(c: Candidates, threshold: float) -> Candidates:
    kept = c.probs >= threshold
    kept[0] = True
    return c.keep(kept)
