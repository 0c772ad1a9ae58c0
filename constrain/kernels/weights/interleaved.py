"""Weights of two to eight bits as the CPU multiplies them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache
from itertools import chain

import torch
from torch.nn.functional import pad

from constrain.kernels.weights.bits import WORD, Groups, bytewise, decode, middles, runs, unpack_bits
from constrain.kernels.weights.cpu import BLOCK, pool
from constrain.kernels.weights.nibbles import IntegerRows, as_nibbles, is_integer, share_columns
from constrain.kernels.weights.packed import PackedWeight
from constrain.kernels.weights.tensor_core import multiplies_fragments

_SCALES = (torch.float32, torch.float16, torch.bfloat16, torch.float8_e4m3fn)
# Elements that are decoded at a time.
_PIECE = 1 << 24


@dataclass(frozen=True, eq=False)
class InterleavedWeight(PackedWeight):
    """A weight of ``(code - zero) * scale * factor``, for each 32 rows their words, scales and zeros side by side.

    Attributes:
        words: int32 ``[blocks, words of a row, 32]``; the codes of a group are a stream of bits, see
            :mod:`constrain.kernels.weights.bits`, signed, or floats.
        scales: ``[blocks, groups, 32]``: float32, float16, bfloat16 or float8.
        zeros: int8 like ``scales``, or ``None`` for zeros everywhere.
        order: int64 ``[inputs]``, or ``None``: column ``j`` is of input ``order[j]``.
        groups: bits and inputs of each group; its codes fill whole words.
        outputs: number of rows; the last block may have more, of zeros.
        factors: float32 ``[blocks * 32]``, one for each row, or ``None`` for ones.
    """

    words: torch.Tensor
    scales: torch.Tensor
    zeros: torch.Tensor | None
    order: torch.Tensor | None
    groups: Groups
    outputs: int
    factors: torch.Tensor | None = None

    @classmethod
    def of_rows(
        cls,
        words: torch.Tensor,
        scales: torch.Tensor,
        zeros: torch.Tensor | None,
        order: torch.Tensor | None,
        groups: Groups,
        factors: torch.Tensor | None = None,
    ) -> InterleavedWeight:
        """Interleave words ``[outputs, n]``, scales and zeros ``[outputs, groups]``; factors are ``[outputs]``."""
        parts = [None if part is None else _interleaved(part) for part in (words, scales, zeros)]
        assert parts[0] is not None and parts[1] is not None
        order = None if order is None else order.long()
        factors = None if factors is None else pad(factors, (0, -len(words) % BLOCK))
        return cls(parts[0], parts[1], parts[2], order, groups, len(words), factors)

    @property
    def shape(self) -> tuple[int, int]:
        return self.outputs, sum(inputs for _, inputs in self.groups)

    def __getitem__(self, rows: torch.Tensor) -> InterleavedWeight:
        """See :class:`PackedWeight`; products with it are to the last bit those of all rows."""
        words, scales, zeros = (None if part is None else _rows(part, rows) for part in self._parts())
        assert words is not None and scales is not None
        factors = None if self.factors is None else self.factors[rows]
        return InterleavedWeight.of_rows(words, scales, zeros, self.order, self.groups, factors)

    def padded(self, outputs: int) -> InterleavedWeight:
        """See :class:`PackedWeight`."""
        blocks = (0, 0, 0, 0, 0, -(-outputs // BLOCK) - len(self.words))
        words, scales, zeros = (None if part is None else _padded(part, blocks) for part in self._parts())
        assert words is not None and scales is not None
        factors = None if self.factors is None else pad(self.factors, (0, len(words) * BLOCK - len(self.factors)))
        return replace(self, words=words, scales=scales, zeros=zeros, outputs=outputs, factors=factors)

    def dequantized(self, rows: torch.Tensor | slice, dtype: torch.dtype) -> torch.Tensor:
        """See :class:`PackedWeight`."""
        if isinstance(rows, slice):
            rows = torch.arange(self.outputs, device=self.device)[rows]
        scales = _rows(self.scales, rows).float()
        zeros = None if self.zeros is None else _rows(self.zeros, rows)
        columns = []
        for group, codes in enumerate(self._decoded(rows, self.groups)):
            centred = codes if zeros is None else codes - zeros[..., group, None]
            columns.append(centred * scales[..., group, None])
        weight = torch.cat(columns, dim=-1)
        if self.factors is not None:
            weight *= self.factors[rows].unsqueeze(-1)
        if self.order is not None:
            weight = torch.empty_like(weight).index_copy_(-1, self.order, weight)
        return weight.to(dtype)

    @classmethod
    def merged(cls, parts: Sequence[PackedWeight]) -> PackedWeight | None:
        """See :class:`PackedWeight`; for a GPU, where the order of the inputs is the same."""
        same = [part for part in parts if isinstance(part, InterleavedWeight) and part._fits(parts[0])]
        tables, outputs = [part.groups for part in same], [part.outputs for part in same]
        if len(same) < len(parts) or not share_columns(tables, outputs):
            return None
        return as_nibbles(chain(*(part._integers() for part in same)), tables, same[0].order, torch.float16)

    def prepared(self, dtype: torch.dtype) -> PackedWeight:
        """See :class:`PackedWeight`."""
        if not (multiplies_fragments(self.device, dtype) and self._is_plain()):
            return self
        return as_nibbles(self._integers(), [self.groups], self.order, dtype)

    def _fits(self, other: PackedWeight) -> bool:
        multiplied = multiplies_fragments(self.device, torch.float16) and self._is_plain()
        if not (multiplied and isinstance(other, InterleavedWeight)):
            return False
        if self.order is None or other.order is None:
            return self.order is other.order
        return torch.equal(self.order, other.order)

    def _is_plain(self) -> bool:
        """Return whether there are integers and scales of the type that :func:`as_nibbles` keeps, and nothing else."""
        is_bare = self.zeros is None and self.factors is None
        return is_integer(self.groups) and is_bare and self.scales.dtype is torch.float16

    def _integers(self) -> Iterator[IntegerRows]:
        """Decode all rows, some at a time, which takes less memory."""
        for rows in torch.split(torch.arange(self.outputs, device=self.device), max(1, _PIECE // self.shape[1])):
            values = torch.cat([codes.to(torch.int8) for codes in self._decoded(rows, runs(self.groups))], dim=-1)
            yield IntegerRows(values, _rows(self.scales, rows), self.groups)

    def _decoded(self, rows: torch.Tensor, groups: Groups) -> Iterator[torch.Tensor]:
        """Decode the codes of rows ``[...]``, for each of ``groups`` float32 ``[..., inputs]``."""
        words, start = _rows(self.words, rows), 0
        for kind, inputs in groups:
            end = start + inputs * (kind % 100) // WORD
            yield decode(unpack_bits(words[..., start:end], kind % 100), kind)
            start = end

    def product(self, x: torch.Tensor) -> torch.Tensor:
        """Multiply float32 ``[..., inputs]``; each row gives the same ``[..., outputs]`` whatever others there are."""
        x = x.contiguous() if self.order is None else x.index_select(-1, self.order)
        blocks, block_words, _ = self.words.shape
        inputs = self.shape[1]
        out = x.new_empty(*x.shape[:-1], blocks * BLOCK)
        pool().grouped_product(
            x=x.data_ptr(),
            words=self.words.data_ptr(),
            scales=self.scales.data_ptr(),
            zeros=0 if self.zeros is None else self.zeros.data_ptr(),
            out=out.data_ptr(),
            groups=_group_table(self.groups).data_ptr(),
            group_count=len(self.groups),
            rows=x.numel() // max(1, inputs),
            inputs=inputs,
            blocks=blocks,
            block_words=block_words,
            scale_type=_SCALES.index(self.scales.dtype),
        )
        if self.factors is not None:
            out *= self.factors
        return out if self.outputs == blocks * BLOCK else out[..., : self.outputs].contiguous()

    def _parts(self) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor | None]:
        return self.words, self.scales, self.zeros


def fills_words(groups: Groups) -> bool:
    """Return whether the codes of every group fill whole words, as :class:`InterleavedWeight` needs."""
    return all(inputs * (kind % 100) % WORD == 0 for kind, inputs in groups)


def signed_words(codes: torch.Tensor, bits: int) -> torch.Tensor:
    """Return unsigned codes in bytes ``[outputs, n]``, a stream of ``bits`` bits, as words of codes less the middle."""
    words = codes.contiguous().view(torch.int32)
    return words ^ middles(bits, words.device).repeat(-(-words.shape[-1] // bits))[: words.shape[-1]]


def _interleaved(rows: torch.Tensor) -> torch.Tensor:
    return bytewise(_in_blocks, rows)


def _in_blocks(rows: torch.Tensor) -> torch.Tensor:
    blocks = pad(rows, (0, 0, 0, -len(rows) % BLOCK)).view(-1, BLOCK, rows.shape[1])
    return blocks.transpose(1, 2).contiguous()


def _padded(part: torch.Tensor, amounts: tuple[int, ...]) -> torch.Tensor:
    return bytewise(lambda each: pad(each, amounts), part)


def _rows(part: torch.Tensor, rows: torch.Tensor) -> torch.Tensor:
    return bytewise(lambda each: each[rows // BLOCK, :, rows % BLOCK], part)


@cache
def _group_table(groups: Groups) -> torch.Tensor:
    return torch.tensor(groups, dtype=torch.int32)
