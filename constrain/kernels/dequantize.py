"""Dequantization of weights in the formats EXL2 and GPTQ."""

from __future__ import annotations

import torch

_WORD = 32


def unpack_rows(words: torch.Tensor, bits: int) -> torch.Tensor:
    """Unpack numbers of ``bits`` bits (1 to 8) from a bit stream down each column, the lowest bits first.

    Args:
        words: int32 ``[q, n]``.

    Returns:
        int64 ``[q * 32 // bits, n]``.
    """
    places = torch.arange(words.shape[0] * _WORD // bits, device=words.device) * bits
    unsigned = words.to(torch.int64) & 0xFFFFFFFF
    # A number that crosses the end of a word continues in the low bits of the next word; none crosses the last one.
    following = torch.cat([unsigned[1:], torch.zeros_like(unsigned[:1])])
    pairs = unsigned[places // _WORD] | following[places // _WORD] << _WORD
    return pairs >> (places % _WORD).unsqueeze(1) & (1 << bits) - 1


def unpack_nibbles(words: torch.Tensor) -> torch.Tensor:
    """Unpack numbers of four bits, eight to a word along each row: int32 ``[g, n / 8]`` to int64 ``[g, n]``."""
    return torch.stack([words.to(torch.int64) >> 4 * i & 15 for i in range(8)], dim=-1).flatten(1)


def dequantize_exl2(
    q_weight: torch.Tensor,
    bits: list[int],
    starts: list[int],
    q_scale: torch.Tensor,
    q_scale_max: torch.Tensor,
    q_invperm: torch.Tensor,
) -> torch.Tensor:
    """Dequantize a weight in the format EXL2: groups of rows, each with its own bit width and column scales.

    With ``q`` the packed number and ``code`` the four bits of its group and column, the weight is ``(q - 2**(b - 1)) *
    (code + 1)**2 * (q_scale_max / 256)``, scales in float16.

    Args:
        q_weight: int32 ``[q, n]``, the packed numbers.
        bits: bit width of each group.
        starts: first row of each group in ``q_weight``, ascending.
        q_scale: int32 ``[groups, n / 8]``.
        q_scale_max: float16 ``[groups]``.
        q_invperm: int64 ``[k]``, the packed row of each input feature.

    Returns:
        float16 ``[n, k]``.
    """
    scales = (unpack_nibbles(q_scale) + 1).square().half() * (q_scale_max.half() / 256).unsqueeze(1)
    ends = [*starts[1:], q_weight.shape[0]]
    groups = [
        (unpack_rows(q_weight[start:end], width) - (1 << width - 1)).half() * scale
        for width, start, end, scale in zip(bits, starts, ends, scales, strict=True)
    ]
    return torch.cat(groups)[q_invperm].T


def dequantize_gptq(
    qweight: torch.Tensor, qzeros: torch.Tensor, scales: torch.Tensor, groups: torch.Tensor, zero_offset: int
) -> torch.Tensor:
    """Dequantize a weight of four bits in the format GPTQ: ``(q - (zero + zero_offset)) * scale``.

    Args:
        qweight: int32 ``[k / 8, n]``, eight rows to a word.
        qzeros: int32 ``[groups, n / 8]``.
        scales: float ``[groups, n]``.
        groups: int64 ``[k]``, the group of each input feature.
        zero_offset: 1, or 0 in the second version of the format, which stores zero points as they are.

    Returns:
        float16 ``[n, k]``.
    """
    zeros = (unpack_nibbles(qzeros) + zero_offset)[groups]
    return ((unpack_rows(qweight, 4) - zeros) * scales.float()[groups]).half().T
