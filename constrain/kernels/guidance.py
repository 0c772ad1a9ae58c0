"""Changes of whole rows of logits: classifier-free guidance, and a bias for each token."""

from __future__ import annotations

import torch

from constrain.kernels import cuda


def apply_guidance(logits: torch.Tensor, partner: torch.Tensor, scale: torch.Tensor) -> None:
    """Mix predictions with and without a condition, in place: ``s log p + (1 - s) log q``.

    Sanchez et al., "Stay on topic with Classifier-Free Guidance" (2023), equation 7.

    Args:
        logits: float32 ``[rows, width]``, the last dimension contiguous.
        partner: int32 ``[rows]``, contiguous: the row without the condition, for each row with it; for others -1.
        scale: float32 ``[rows]``, contiguous: 1 follows the row itself, more departs from its partner.
    """
    if logits.is_cuda and cuda.module is not None:
        with torch.cuda.device(logits.device):
            cuda.module.apply_guidance(
                logits=cuda.address(logits),
                stride=logits.stride(0),
                partner=cuda.address(partner),
                scale=cuda.address(scale),
                rows=logits.shape[0],
                width=logits.shape[1],
                stream=cuda.stream(logits),
            )
    else:
        apply_guidance_reference(logits, partner, scale)


def apply_guidance_reference(logits: torch.Tensor, partner: torch.Tensor, scale: torch.Tensor) -> None:
    """:func:`apply_guidance` in plain torch."""
    log_probs, factor = logits.log_softmax(dim=1), scale.unsqueeze(1)
    mixed = factor * log_probs + (1.0 - factor) * log_probs[partner.clamp(min=0).long()]
    logits.copy_(torch.where((partner >= 0).unsqueeze(1), mixed, logits))


def add_bias(logits: torch.Tensor, pool: torch.Tensor, chosen: torch.Tensor) -> None:
    """Add a bias to the logits of each row, in place.

    Args:
        logits: float32 ``[rows, width]``, the last dimension contiguous.
        pool: float32 ``[n, width]``, the last dimension contiguous.
        chosen: int32 ``[rows]``, contiguous: the row of the pool for each row of logits; none where it is negative.
    """
    if logits.is_cuda and cuda.module is not None:
        with torch.cuda.device(logits.device):
            cuda.module.add_bias(
                logits=cuda.address(logits),
                stride=logits.stride(0),
                pool=cuda.address(pool),
                pool_stride=pool.stride(0),
                chosen=cuda.address(chosen),
                rows=logits.shape[0],
                width=logits.shape[1],
                stream=cuda.stream(logits),
            )
    else:
        add_bias_reference(logits, pool, chosen)


def add_bias_reference(logits: torch.Tensor, pool: torch.Tensor, chosen: torch.Tensor) -> None:
    """:func:`add_bias` in plain torch."""
    bias = pool[chosen.clamp(min=0).long()]
    logits.add_(torch.where((chosen >= 0).unsqueeze(1), bias, 0.0))
