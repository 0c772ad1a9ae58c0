"""Passes over sequences that are scattered over the pages of one cache."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from itertools import accumulate
from typing import TYPE_CHECKING

import torch

from constrain.kernels import attention
from constrain.model.rope import RotaryTable
from constrain.model.step import visible

if TYPE_CHECKING:
    from constrain.model.cache import ExLlamaV2CacheBase, Slots


@dataclass(frozen=True)
class PagedRow:
    """The part of one sequence that goes through a pass.

    Attributes:
        ids: int64 ``[width]``, the new tokens.
        past: number of positions before them.
        pages: numbers of the pages that hold the sequence, in order; page ``i`` is positions ``i * page_size`` and on
            of the cache's row.
        page_size: positions in a page.
        logits: of how many of the last positions the logits are wanted.
    """

    ids: torch.Tensor
    past: int
    pages: Sequence[int]
    page_size: int
    logits: int

    @property
    def width(self) -> int:
        """Number of new tokens."""
        return self.ids.shape[0]

    def slots(self, start: int, end: int, device: torch.device) -> Slots:
        """Where positions ``start`` to ``end - 1`` lie; a range, which needs no copy, where the pages lie together."""
        first, size = start // self.page_size, self.page_size
        pages = self.pages[first : (end - 1) // size + 1]
        shift = start - first * size
        if all(pages[0] + i == page for i, page in enumerate(pages)):
            begin = pages[0] * size + shift
            return slice(begin, begin + end - start)
        positions = torch.tensor(pages, device=device).unsqueeze(1) * size + torch.arange(size, device=device)
        return positions.flatten()[shift : shift + end - start]


def places(rows: Sequence[PagedRow]) -> list[slice]:
    """Where each row lies in a pass over all of them."""
    ends = list(accumulate(row.width for row in rows))
    return [slice(end - row.width, end) for row, end in zip(rows, ends, strict=True)]


@dataclass(frozen=True)
class _Span:
    """A row of a pass: its place in it, where its keys go and come from, and what its queries see of them."""

    place: slice
    write: Slots
    read: Slots
    mask: torch.Tensor | None
    causal: bool

    def to(self, device: torch.device) -> _Span:
        write, read = (s if isinstance(s, slice) else s.to(device) for s in (self.write, self.read))
        return replace(self, write=write, read=read, mask=None if self.mask is None else self.mask.to(device))


@dataclass(frozen=True)
class PagedView:
    """The sight of rows that follow one another in a batch of one.

    Each row attends by itself, so that its result does not depend on what runs beside it.
    """

    cos: torch.Tensor
    sin: torch.Tensor
    spans: list[_Span] = field(repr=False)

    def to(self, device: torch.device) -> PagedView:
        return PagedView(self.cos.to(device), self.sin.to(device), [span.to(device) for span in self.spans])

    def attend(
        self,
        cache: ExLlamaV2CacheBase | None,
        layer: int,
        q: torch.Tensor,
        k: torch.Tensor,
        v: torch.Tensor,
        *,
        scale: float,
        cap: float | None,
    ) -> torch.Tensor:
        assert cache is not None
        out = []
        for span in self.spans:
            at = span.place
            keys, values = cache.extend_slots(layer, k[:, at], v[:, at], span.write, span.read)
            out.append(attention(q[:, at], keys, values, scale=scale, mask=span.mask, causal=span.causal, cap=cap))
        return torch.cat(out, dim=1)


def make_paged_view(
    table: RotaryTable, window: int | None, *, rows: Sequence[PagedRow], dtype: torch.dtype, device: torch.device
) -> PagedView:
    """The view of one kind of layers; arguments as for :func:`constrain.model.step.make_view`."""
    rotations, spans = [], []
    for row, place in zip(rows, places(rows), strict=True):
        end = row.past + row.width
        start, mask, causal = visible(row.past, row.width, window, None, dtype, device)
        # Row by row: with some scaling methods, the rotation depends on how long a sequence is.
        rotations.append(table.rows(slice(row.past, end), end, device))
        spans.append(_Span(place, row.slots(row.past, end, device), row.slots(start, end, device), mask, causal))
    cos, sin = (torch.cat(parts, dim=1) for parts in zip(*rotations, strict=True))
    return PagedView(cos, sin, spans)
