"""Drawing tokens where the logits are."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from constrain.kernels import cuda
from constrain.kernels.bitmask import ChosenRows, apply_bitmask, check_bitmask

#: Below it, the most likely token is taken.
GREEDY_TEMPERATURE = 0.01


@dataclass(frozen=True)
class DrawParameters:
    """How the token of each row is drawn.

    Attributes:
        temperatures: float32 ``[rows]``, divide the logits; below 0.01, the most likely token is taken.
        top_k: int32 ``[rows]``, the number of most likely tokens that stay (0: all).
        top_p: float32 ``[rows]``, then the fewest that together reach this probability stay (0, or 1 and above: all).
        min_p: float32 ``[rows]``, then those with this part of the largest probability stay (0, or 1 and above: all).
        seeds, steps: int64 and int32 ``[rows]``, key and counter of the random number, see :func:`philox`.
    """

    temperatures: torch.Tensor
    top_k: torch.Tensor
    top_p: torch.Tensor
    min_p: torch.Tensor
    seeds: torch.Tensor
    steps: torch.Tensor


def draw(
    logits: torch.Tensor,
    parameters: DrawParameters,
    out: tuple[torch.Tensor, torch.Tensor] | None = None,
    allowed: ChosenRows | None = None,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Draw a token for each row.

    Tokens of equal logits count in the order of their ids. What is drawn depends on the row's own logits and parameters
    alone. Logits that are not finite count as -inf.

    Args:
        logits: float32 ``[rows, width]``, the last dimension contiguous.
        parameters: of each row, on the same device, contiguous.
        out: where what is returned goes; contiguous.
        allowed: tokens to draw from, by default all; the logits of others are not looked at.

    Returns:
        The tokens, int64 ``[rows]``, -1 where no logit is finite; and their probabilities among those that stayed,
        float32 ``[rows]``.

    Raises:
        BitmaskError: ``allowed`` has the wrong type, shape, layout or device.
    """
    if allowed is not None:
        check_bitmask(logits, *allowed)
    if out is None:
        rows = len(logits)
        out = torch.empty(rows, dtype=torch.int64, device=logits.device), logits.new_empty(rows, dtype=torch.float32)
    if logits.is_cuda and cuda.module is not None:
        _draw_cuda(logits, parameters, *out, allowed)
    else:
        for given, drawn in zip(out, draw_reference(logits, parameters, allowed), strict=True):
            given.copy_(drawn)
    return out


def draw_reference(
    logits: torch.Tensor, parameters: DrawParameters, allowed: ChosenRows | None = None
) -> tuple[torch.Tensor, torch.Tensor]:
    """:func:`draw` in plain torch."""
    if allowed is not None:
        logits = logits.clone()
        apply_bitmask(logits, *allowed)
    fields = vars(parameters).values()
    drawn = [
        _draw_row(row, *values) for row, *values in zip(logits, *(field.tolist() for field in fields), strict=True)
    ]
    tokens, probabilities = zip(*drawn, strict=True)
    return torch.tensor(tokens, device=logits.device), torch.tensor(probabilities, device=logits.device)


def kept_probabilities(
    logits: torch.Tensor, temperature: float, top_k: int, top_p: float, min_p: float
) -> torch.Tensor:
    """Probabilities of the tokens of one row ``[width]`` that stay, float64 ``[width]``, zero for the others."""
    values, ids = logits.double().masked_fill(~logits.isfinite(), -torch.inf).sort(descending=True, stable=True)
    if temperature < GREEDY_TEMPERATURE or top_k == 1:
        return torch.nn.functional.one_hot(ids[0], len(logits)).double()
    probs = (values / temperature).softmax(0)
    if 0 < top_k < len(probs):
        probs[top_k:] = 0
    if 0 < top_p < 1:
        probs[probs.cumsum(0) - probs >= top_p * probs.sum()] = 0
    if 0 < min_p < 1:
        probs[probs < min_p * probs[0]] = 0
    return torch.zeros_like(probs).index_copy_(0, ids, probs / probs.sum())


def _draw_row(
    logits: torch.Tensor, temperature: float, top_k: int, top_p: float, min_p: float, seed: int, step: int
) -> tuple[int, float]:
    if not logits.isfinite().any():
        return -1, 0.0
    probs = kept_probabilities(logits, temperature, top_k, top_p, min_p)
    sums = probs.cumsum(0)
    token = int(torch.searchsorted(sums, philox(seed, step) / 2**64 * float(sums[-1]), right=True))
    return token, float(probs[token])


def philox(seed: int, step: int) -> int:
    """64 random bits: Philox 4x32 with ten rounds (Salmon et al. 2011), the lower half of what it gives."""
    word = 0xFFFFFFFF
    counter, key = [step & word, step >> 32 & word, 0, 0], [seed & word, seed >> 32 & word]
    for _ in range(10):
        a, b = 0xD2511F53 * counter[0], 0xCD9E8D57 * counter[2]
        counter = [b >> 32 ^ counter[1] ^ key[0], b & word, a >> 32 ^ counter[3] ^ key[1], a & word]
        key = [key[0] + 0x9E3779B9 & word, key[1] + 0xBB67AE85 & word]
    return counter[1] << 32 | counter[0]


def _draw_cuda(
    logits: torch.Tensor,
    parameters: DrawParameters,
    tokens: torch.Tensor,
    probabilities: torch.Tensor,
    allowed: ChosenRows | None,
) -> None:
    rows, width = logits.shape
    bits, chosen = (None, None) if allowed is None else allowed
    with torch.cuda.device(logits.device):
        cuda.module.draw(
            logits=cuda.address(logits),
            stride=logits.stride(0),
            **{name: cuda.address(values) for name, values in vars(parameters).items()},
            tokens=cuda.address(tokens),
            probabilities=cuda.address(probabilities),
            bits=cuda.address(bits),
            bits_stride=0 if bits is None else bits.stride(0),
            chosen=cuda.address(chosen),
            rows=rows,
            width=width,
            stream=cuda.stream(logits),
        )
