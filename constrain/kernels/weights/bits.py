"""Streams of codes of two to eight bits in words of 32, the lowest bits first."""

from __future__ import annotations

from functools import cache

import torch

WORD = 32


def unpack_bits(words: torch.Tensor, bits: int) -> torch.Tensor:
    """Unpack int32 ``[..., n]`` to the codes of ``bits`` bits in them, uint8 ``[..., n * 32 // bits]``.

    Bits at the end that are too few for a code are dropped.
    """
    if bits in (2, 4, 8):
        bytes_ = words.contiguous().view(torch.uint8)
        codes = [bytes_ >> shift & (1 << bits) - 1 for shift in range(0, 8, bits)]
        return torch.stack(codes, dim=-1).flatten(-2)
    places = torch.arange(words.shape[-1] * WORD // bits, device=words.device) * bits
    # A code that crosses the end of a word continues in the low bits of the next; none crosses the last one.
    unsigned = words.to(torch.int64) & 0xFFFFFFFF
    following = torch.nn.functional.pad(unsigned[..., 1:], (0, 1))
    pairs = unsigned[..., places // WORD] | following[..., places // WORD] << WORD
    return (pairs >> places % WORD & (1 << bits) - 1).to(torch.uint8)


def pack_nibbles(codes: torch.Tensor) -> torch.Tensor:
    """Pack uint8 ``[..., n]`` below 16 to ``[..., n / 2]``, the first of two in the low bits."""
    return codes[..., ::2] | codes[..., 1::2] << 4


@cache
def middles(bits: int, device: torch.device) -> torch.Tensor:
    """Return the words int32 ``[bits]`` of 32 codes ``2**(bits - 1)``; exclusive or with them makes codes signed."""
    stream = sum((1 << bits - 1) << place * bits for place in range(WORD))
    words = [stream >> WORD * i & 0xFFFFFFFF for i in range(bits)]
    return torch.tensor([word - (1 << WORD) if word >> WORD - 1 else word for word in words], device=device).int()
