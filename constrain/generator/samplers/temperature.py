"""Temperature after truncation, fixed or by entropy."""

from __future__ import annotations

import math

import torch

from constrain.generator.samplers.distribution import Candidates


def reheat(c: Candidates, temperature: float) -> Candidates:
    """Return the candidates with ``p ** (1 / temperature)``, renormalised."""
    probs = (c.probs.log() / temperature).softmax(dim=0)
    return Candidates(probs, c.ids)


def dynamic_temperature(c: Candidates, low: float, high: float, exponent: float) -> float:
    """Return a temperature between ``low`` and ``high`` that rises with the entropy of the candidates.

    ``low + (high - low) (H / H_max) ** exponent``, with H_max the logarithm of the number of candidates
    (https://github.com/LostRuins/koboldcpp/pull/516).
    """
    entropy = float(torch.special.entr(c.probs).sum())
    most = math.log(c.probs.shape[0]) or 1.0
    return low + (high - low) * math.pow(entropy / most, exponent)
