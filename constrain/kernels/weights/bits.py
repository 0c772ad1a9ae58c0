"""Codes of two to eight bits: streams of them, the lowest bits first, and what they stand for."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from itertools import groupby
from operator import itemgetter

import torch

WORD = 32

Groups = tuple[tuple[int, int], ...]
"""For each group of inputs, the kind of its codes and the number of inputs."""

FLOAT4, FLOAT8 = 104, 108
"""Kinds of codes that are floats, E2M1 and E4M3; the other kinds are the numbers of bits of signed integers."""

_FLOAT4_VALUES = (0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0)


def decode(codes: torch.Tensor, kind: int) -> torch.Tensor:
    """Return what codes, a byte each, stand for, as float32."""
    if kind == FLOAT8:
        return codes.view(torch.float8_e4m3fn).float()
    if kind == FLOAT4:
        values = (*_FLOAT4_VALUES, *(-value for value in _FLOAT4_VALUES))
        return torch.tensor(values, device=codes.device)[codes.long()]
    middle = 1 << kind - 1
    return (codes ^ middle).float() - middle


def runs(groups: Groups) -> Groups:
    """Return neighbouring groups of one kind as one; their codes are one stream where they fill whole words."""
    return tuple((kind, sum(inputs for _, inputs in each)) for kind, each in groupby(groups, key=itemgetter(0)))


def unpack_bits(words: torch.Tensor, bits: int) -> torch.Tensor:
    """Unpack int32 ``[..., n]`` to the codes of ``bits`` bits in them, uint8 ``[..., n * 32 // bits]``.

    Words may be given as bytes. Bits at the end that are too few for a code are dropped.
    """
    if bits == 8:
        return viewed(words, torch.uint8)
    if bits in (2, 4):
        bytes_ = viewed(words, torch.uint8)
        codes = [bytes_ >> shift & (1 << bits) - 1 for shift in range(0, 8, bits)]
        return torch.stack(codes, dim=-1).flatten(-2)
    words = viewed(words, torch.int32)
    places = torch.arange(words.shape[-1] * WORD // bits, device=words.device) * bits
    # A code that crosses the end of a word continues in the low bits of the next; none crosses the last one.
    unsigned = words.to(torch.int64) & 0xFFFFFFFF
    following = torch.nn.functional.pad(unsigned[..., 1:], (0, 1))
    pairs = unsigned[..., places // WORD] | following[..., places // WORD] << WORD
    return (pairs >> places % WORD & (1 << bits) - 1).to(torch.uint8)


def viewed(tensor: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """Return the bytes of the rows of a tensor as another dtype.

    A view of a contiguous tensor would not do: torch takes for that any transposed one with rows of one element.
    """
    width = tensor.shape[-1] * tensor.dtype.itemsize // dtype.itemsize
    return tensor.reshape(-1).view(dtype).view(*tensor.shape[:-1], width)


def pack_bits(codes: torch.Tensor, bits: int) -> torch.Tensor:
    """Pack codes uint8 ``[..., n]`` of ``bits`` bits to bytes ``[..., n * bits / 8]``; n is a multiple of eight."""
    kind = torch.int32 if bits <= 4 else torch.int64
    units = torch.zeros_like(codes[..., ::8], dtype=kind)
    for place in range(8):
        units |= codes[..., place::8].to(kind) << place * bits
    return units.unsqueeze(-1).view(torch.uint8)[..., :bits].flatten(-2)


def pack_nibbles(codes: torch.Tensor) -> torch.Tensor:
    """Pack uint8 ``[..., n]`` below 16 to ``[..., n / 2]``, the first of two in the low bits."""
    return codes[..., ::2] | codes[..., 1::2] << 4


@cache
def middles(bits: int, device: torch.device) -> torch.Tensor:
    """Return the words int32 ``[bits]`` of 32 codes ``2**(bits - 1)``; exclusive or with them makes codes signed."""
    stream = sum((1 << bits - 1) << place * bits for place in range(WORD))
    words = [stream >> WORD * i & 0xFFFFFFFF for i in range(bits)]
    return torch.tensor([word - (1 << WORD) if word >> WORD - 1 else word for word in words], device=device).int()


def bytewise(operation: Callable[[torch.Tensor], torch.Tensor], tensor: torch.Tensor) -> torch.Tensor:
    """Apply an operation that moves elements or adds zeros, which torch often lacks for floats of eight bits."""
    if tensor.dtype is not torch.float8_e4m3fn:
        return operation(tensor)
    return operation(tensor.view(torch.uint8)).view(tensor.dtype)


def concatenated(parts: Sequence[torch.Tensor]) -> torch.Tensor:
    """Concatenate rows, also of floats of eight bits, for which a GPU may lack it."""
    if parts[0].dtype is not torch.float8_e4m3fn:
        return torch.cat([*parts])
    return torch.cat([part.view(torch.uint8) for part in parts]).view(torch.float8_e4m3fn)
