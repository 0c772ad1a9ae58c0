"""What all layers share in one pass: positions, masks, cache and adapters."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Protocol

import torch

from constrain.kernels import attention
from constrain.model.rope import RotaryTable

if TYPE_CHECKING:
    from constrain.model.cache import ExLlamaV2CacheBase
    from constrain.model.embeddings import IndexedEmbeddings
    from constrain.model.lora import ExLlamaV2Lora


class Sight(Protocol):
    """What the layers of one kind, full or sliding, see of what came before.

    Attributes:
        cos, sin: rotation of the new positions, see :func:`constrain.kernels.rotate`.
    """

    @property
    def cos(self) -> torch.Tensor: ...
    @property
    def sin(self) -> torch.Tensor: ...
    def to(self, device: torch.device) -> Sight: ...
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
        """Store new keys and values of a layer, and attend; shapes as for :func:`constrain.kernels.attention`."""
        ...


@dataclass(frozen=True)
class View:
    """The sight of sequences of one length, each in its row of the cache.

    Attributes:
        past: number of old positions.
        start: first position that any query sees.
        mask: added to the scores of keys from ``start``, ``[1 or batch, 1, queries, keys]``, or ``None``.
        causal: the last query sees all keys, and each before it one less; there is no mask then.
    """

    cos: torch.Tensor
    sin: torch.Tensor
    past: int
    start: int
    mask: torch.Tensor | None
    causal: bool

    def to(self, device: torch.device) -> View:
        mask = None if self.mask is None else self.mask.to(device)
        return replace(self, cos=self.cos.to(device), sin=self.sin.to(device), mask=mask)

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
        if cache is not None:
            k, v = cache.extend(layer, k, v, self.past, self.start)
        return attention(q, k, v, scale=scale, mask=self.mask, causal=self.causal, cap=cap)


@dataclass
class Step:
    """One pass over new tokens.

    Attributes:
        full, sliding: what the two kinds of layers see; the same where a model has no sliding ones.
    """

    full: Sight
    sliding: Sight
    cache: ExLlamaV2CacheBase | None = None
    loras: Sequence[ExLlamaV2Lora] = ()
    embeddings: Sequence[IndexedEmbeddings] = ()
    _copies: dict[torch.device, Step] = field(default_factory=dict)

    def on(self, device: torch.device) -> Step:
        """This step with its tensors on ``device``."""
        if device not in self._copies:
            full = self.full.to(device)
            sliding = full if self.sliding is self.full else self.sliding.to(device)
            self._copies[device] = replace(self, full=full, sliding=sliding)
        return self._copies[device]


def chunk_widths(past: int, total: int, limit: int, max_attention: int) -> Iterator[int]:
    """Widths of the passes that take ``total`` tokens behind ``past``.

    Each is at most ``limit``, and queries times keys at most ``max_attention``, but for single tokens.
    """
    end = past + total
    while past < end:
        # The largest n with n * (past + n) <= max_attention.
        bound = (math.isqrt(past**2 + 4 * max_attention) - past) // 2
        width = max(1, min(limit, bound, end - past))
        yield width
        past += width


def make_view(
    table: RotaryTable,
    window: int | None,
    *,
    past: int,
    width: int,
    padding: torch.Tensor | None,
    offsets: torch.Tensor | None,
    dtype: torch.dtype,
    device: torch.device,
) -> View:
    """The view of one kind of layers.

    Args:
        table: their rotation.
        window: a query at position ``i`` sees keys from ``i - window + 1`` on; ``None``: from 0.
        past, width: numbers of old and new positions.
        padding: additive ``[batch, <= past + width]``, float, very negative at positions that nobody may see.
        offsets: int ``[batch]``, added to the positions.
        dtype: of the mask.
        device: of all tensors.
    """
    start, mask, causal = visible(past, width, window, padding, dtype, device)
    if offsets is None:
        cos, sin = table.rows(slice(past, past + width), past + width, device)
        return View(cos, sin, past, start, mask, causal)
    # Offsets of left padding reach below zero at the padding itself, where any position will do.
    positions = (torch.arange(past, past + width) + offsets.view(-1, 1).cpu()).clamp_(min=0)
    cos, sin = table.rows(positions.to(device), int(positions.max()) + 1, device)
    return View(cos, sin, past, start, mask, causal)


def visible(
    past: int, width: int, window: int | None, padding: torch.Tensor | None, dtype: torch.dtype, device: torch.device
) -> tuple[int, torch.Tensor | None, bool]:
    """``start``, ``mask`` and ``causal`` of a :class:`View`."""
    start = 0 if window is None else max(0, past + 1 - window)
    keys = past + width - start
    narrow = window is not None and keys > window
    # On a GPU there are kernels that need no mask for old keys either; elsewhere, layers had better share one.
    maskless = keys == width or device.type == "cuda"
    if padding is None and (width == 1 or (maskless and not narrow)):
        return start, None, width > 1
    mask = torch.zeros(1, 1, width, keys, dtype=dtype, device=device)
    excluded = torch.finfo(dtype).min / 2
    if width > 1:
        query = torch.arange(past - start, keys, device=device).unsqueeze(1)
        key = torch.arange(keys, device=device)
        hidden = key > query
        if window is not None:
            hidden |= key <= query - window
        mask.masked_fill_(hidden, excluded)
    if padding is not None:
        shown = torch.zeros(padding.shape[0], 1, 1, keys, dtype=dtype, device=device)
        given = padding[:, start : past + width].to(device, dtype)
        shown[:, 0, 0, : given.shape[1]] = given
        # A row that sees nothing must still have a softmax: finite, and not doubled by another mask.
        mask = torch.minimum(mask, shown.clamp_(min=excluded))
    return start, mask, False
