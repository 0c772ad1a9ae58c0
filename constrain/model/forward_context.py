"""The inputs of a forward pass besides states: attention metadata, adapters and indexed embeddings."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol, TypeVar

import torch

from constrain.arguments import check_type, refused
from constrain.kernels import LowRankWorkspace, attention, rotate
from constrain.model.embeddings import IndexedEmbeddings
from constrain.model.kv_cache import ExLlamaV2CacheBase
from constrain.model.prompt_images import NO_IMAGES, PromptImages, Span, whole_end
from constrain.model.rope import RotaryTable

T = TypeVar("T")
_IDS = (torch.long, torch.int)


@dataclass(frozen=True)
class AttentionLayer:
    """The constants of one attention layer.

    Attributes:
        index: number of the layer in KV caches.
        heads, kv_heads: number of query heads; number of key heads, and of value heads.
        sliding: whether the layer has a sliding window.
        scale: factor of the scores.
        cap: soft cap of the scores, see :func:`constrain.kernels.soft_cap`.
        rotary: whether queries and keys are rotated.
        sinks: see :func:`constrain.kernels.attention`; on the device of the layer, once it is loaded.
    """

    index: int
    heads: int
    kv_heads: int
    sliding: bool
    scale: float
    cap: float | None
    rotary: bool = True
    sinks: torch.Tensor | None = None


class AttentionMetadata(Protocol):
    """Positions of the tokens of a pass, the places of their keys and values, and the keys that each attends to."""

    def to(self, device: torch.device) -> AttentionMetadata:
        """Copy this metadata to ``device``."""

    def attend(self, layer: AttentionLayer, qkv: torch.Tensor) -> torch.Tensor:
        """Rotate new queries and keys, store keys and values, and attend.

        Args:
            layer: the layer.
            qkv: ``[batch, width, heads + 2 * kv_heads, head_dim]``, contiguous; may be overwritten.

        Returns:
            ``[batch, width, heads * head_dim]``.
        """


class Adapter(Protocol):
    """A low-rank adapter. Linear layers keep its matrices by its identity.

    Attributes:
        embed_tokens, lm_head: weights that replace the model's own, or ``None``.
    """

    @property
    def embed_tokens(self) -> torch.Tensor | None: ...
    @property
    def lm_head(self) -> torch.Tensor | None: ...
    def __hash__(self) -> int: ...


@dataclass
class ForwardContext:
    """The inputs of one forward pass besides the tokens.

    Attributes:
        attention: attention metadata.
        loras: adapters to apply.
        embeddings: indexed embeddings for ids outside the vocabulary.
        workspace: scratch memory of adapters; each context has its own, since contexts may be used on several streams.
        replicas: the last states on each device of a model whose layers are split over devices; to be cleared where
            states are changed in place.
    """

    attention: AttentionMetadata
    loras: Sequence[Adapter] = ()
    embeddings: Sequence[IndexedEmbeddings] = ()
    workspace: LowRankWorkspace = field(default_factory=LowRankWorkspace)
    replicas: dict[torch.device, torch.Tensor] = field(default_factory=dict)
    _copies: dict[torch.device, ForwardContext] = field(default_factory=dict)

    @property
    def embed_tokens(self) -> torch.Tensor | None:
        """The embedding of the first adapter that replaces it."""
        return next((each.embed_tokens for each in self.loras if each.embed_tokens is not None), None)

    @property
    def lm_head(self) -> torch.Tensor | None:
        """The head of the first adapter that replaces it."""
        return next((each.lm_head for each in self.loras if each.lm_head is not None), None)

    def on(self, device: torch.device) -> ForwardContext:
        """Copy this context to ``device``, once."""
        if device not in self._copies:
            self._copies[device] = replace(self, attention=self.attention.to(device), workspace=LowRankWorkspace())
        return self._copies[device]


@dataclass(frozen=True)
class _LayerMetadata:
    """Attention metadata of the layers of one kind, full or sliding, for sequences of one length.

    Attributes:
        cos, sin: rotation of the new positions, see :func:`constrain.kernels.rotate`.
        past: number of cached positions.
        start: first position that any query attends to.
        mask: added to the scores of keys from ``start``, ``[1 or batch, 1, queries, keys]``, or ``None``.
        causal: the last query attends to all keys, each earlier one to one key less; the mask is ``None`` then.
    """

    cos: torch.Tensor
    sin: torch.Tensor
    past: int
    start: int
    mask: torch.Tensor | None
    causal: bool

    def to(self, device: torch.device) -> _LayerMetadata:
        mask = None if self.mask is None else self.mask.to(device)
        return replace(self, cos=self.cos.to(device), sin=self.sin.to(device), mask=mask)


@dataclass(frozen=True)
class ContiguousAttention:
    """Attention of sequences of one length, each in its own row of a KV cache, or without a cache."""

    full: _LayerMetadata
    sliding: _LayerMetadata
    cache: ExLlamaV2CacheBase | None

    def to(self, device: torch.device) -> ContiguousAttention:
        full = self.full.to(device)
        return replace(self, full=full, sliding=full if self.sliding is self.full else self.sliding.to(device))

    def attend(self, layer: AttentionLayer, qkv: torch.Tensor) -> torch.Tensor:
        data = self.sliding if layer.sliding else self.full
        q, k, v = rotated(layer, qkv, data.cos, data.sin)
        if self.cache is not None:
            k, v = self.cache.extend(layer.index, k, v, data.past, data.start)
        return attention(
            q, k, v, scale=layer.scale, mask=data.mask, causal=data.causal, cap=layer.cap, sinks=layer.sinks
        )


def rotated(
    layer: AttentionLayer, qkv: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Split ``[batch, width, heads + 2 * kv_heads, head_dim]`` into rotated queries, rotated keys, and values."""
    num_rotated = layer.heads + layer.kv_heads
    qk = qkv.narrow(2, 0, num_rotated)
    if layer.rotary:
        qk = rotate(qk, cos, sin)
    return (
        qk.narrow(2, 0, layer.heads),
        qk.narrow(2, layer.heads, layer.kv_heads),
        qkv.narrow(2, num_rotated, layer.kv_heads),
    )


def chunk_widths(
    past: int, total: int, limit: int, max_attention: int, both_ways: Sequence[Span] = ()
) -> Iterator[int]:
    """Split ``total`` tokens after ``past`` cached ones into passes, and yield their widths.

    A width is at most ``limit``, and queries times keys at most ``max_attention``, except for single tokens, and where
    a range of ``both_ways`` is not to be divided, see :class:`~constrain.model.prompt_images.PromptImages`.
    """
    end = past + total
    while past < end:
        # The largest n with n * (past + n) <= max_attention.
        bound = (math.isqrt(past**2 + 4 * max_attention) - past) // 2
        width = whole_end(past + max(1, min(limit, bound, end - past)), both_ways) - past
        yield width
        past += width


def contiguous_attention(
    tables: tuple[RotaryTable, RotaryTable],
    window: int | None,
    cache: ExLlamaV2CacheBase | None,
    *,
    past: int,
    width: int,
    padding: torch.Tensor | None,
    offsets: torch.Tensor | None,
    dtype: torch.dtype,
    device: torch.device,
    images: PromptImages = NO_IMAGES,
) -> ContiguousAttention:
    """Build the metadata of a pass whose sequences all have ``past`` cached and ``width`` new positions.

    Args:
        tables: rotations of full and of sliding layers.
        window: size of the sliding window: a query at position ``i`` attends to keys from ``i - window + 1`` on.
        cache: the KV cache.
        padding: additive mask of keys, float ``[batch, <= past + width]``, very negative at excluded positions.
        offsets: int ``[batch]``, added to the positions.
        dtype: dtype of masks.
        device: device of all tensors.
        images: the images of the prompt that the new positions belong to.
    """

    def build(table: RotaryTable, limit: int | None) -> _LayerMetadata:
        start, mask, causal = visible(past, width, limit, padding, dtype, device, images.both_ways)
        if offsets is None:
            cos, sin = rotations(table, past, past + width, images, device)
        else:
            # Offsets for left padding give negative positions to the padding, whose rotation does not matter.
            positions = (torch.arange(past, past + width) + offsets.view(-1, 1).cpu()).clamp_(min=0)
            cos, sin = table.rows(positions.to(device), int(positions.max()) + 1, device)
        return _LayerMetadata(cos, sin, past, start, mask, causal)

    return ContiguousAttention(*full_and_sliding(build, tables, window, past + width), cache)


def rotations(
    table: RotaryTable, past: int, end: int, images: PromptImages, device: torch.device
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return cosines and sines of the tokens from ``past`` to ``end - 1`` of a prompt, see ``RotaryTable.rows``."""
    positions = images.between(past, end)
    if positions is None:
        return table.rows(slice(past, end), end, device)
    return table.mixed_rows(positions, images.start + images.num_tokens, device)


def full_and_sliding(
    build: Callable[[RotaryTable, int | None], T], tables: tuple[RotaryTable, RotaryTable], window: int | None, end: int
) -> tuple[T, T]:
    """Build metadata of full and of sliding layers for positions below ``end``; one object if they are equal."""
    full_table, local_table = tables
    full = build(full_table, None)
    is_same = window is None or (local_table is full_table and end <= window)
    return full, full if is_same else build(local_table, window)


def visible(
    past: int,
    width: int,
    window: int | None,
    padding: torch.Tensor | None,
    dtype: torch.dtype,
    device: torch.device,
    both_ways: Sequence[Span] = (),
) -> tuple[int, torch.Tensor | None, bool]:
    """Compute ``start``, ``mask`` and ``causal`` for ``width`` queries after ``past`` keys, see ``_LayerMetadata``.

    Queries in a range of ``both_ways`` attend to later keys of it too.
    """
    spans = [(first, last) for first, last in both_ways if first < past + width and last > past]
    start = 0 if window is None else max(0, past + 1 - window)
    keys = past + width - start
    narrow = window is not None and keys > window
    # On a GPU, attention kernels support causal attention with cached keys. Elsewhere each layer would make a mask.
    maskless = keys == width or device.type == "cuda"
    if padding is None and not spans and (width == 1 or (maskless and not narrow)):
        return start, None, width > 1
    mask = torch.zeros(1, 1, width, keys, dtype=dtype, device=device)
    excluded = torch.finfo(dtype).min / 2
    if width > 1:
        mask.masked_fill_(_hidden(past, width, start, window, spans, device), excluded)
    if padding is not None:
        shown = torch.zeros(padding.shape[0], 1, 1, keys, dtype=dtype, device=device)
        given = padding[:, start : past + width].to(device, dtype)
        shown[:, 0, 0, : given.shape[1]] = given
        # If all keys of a row are excluded, its softmax must not be NaN: the mask is finite, and excluded only once.
        mask = torch.minimum(mask, shown.clamp_(min=excluded))
    return start, mask, False


def _hidden(
    past: int, width: int, start: int, window: int | None, spans: Sequence[Span], device: torch.device
) -> torch.Tensor:
    """Return which keys from ``start`` on each query does not attend to, bool ``[width, keys]``."""
    keys = past + width - start
    query = torch.arange(past - start, keys, device=device).unsqueeze(1)
    key = torch.arange(keys, device=device)
    hidden = key > query
    for first, last in spans:
        hidden[max(0, first - past) : last - past, max(0, first - start) : last - start] = False
    if window is not None:
        hidden |= key <= query - window
    return hidden


def check_ids(input_ids: object) -> None:
    """Raise unless ids are int64, or int32, of shape ``[batch, width]``."""
    if not isinstance(input_ids, torch.Tensor) or input_ids.dim() != 2 or input_ids.dtype not in _IDS:
        raise refused("input_ids", input_ids, "ids, int64 of shape (batch, width)")


def check_rows(batch: int, cache: object, input_mask: object, position_offsets: object) -> None:
    """Raise unless cache, mask and offsets are what they have to be, the latter for ``batch`` rows, or for one."""
    check_type("cache", cache, (ExLlamaV2CacheBase, type(None)), "a KV cache")
    if input_mask is not None and not _is_mask(input_mask, batch):
        raise refused("input_mask", input_mask, f"floats to be added to scores, of shape ({batch}, positions)")
    if position_offsets is not None and not _are_offsets(position_offsets, batch):
        raise refused("position_offsets", position_offsets, f"whole numbers of shape ({batch},)")


def _is_mask(given: object, batch: int) -> bool:
    if not isinstance(given, torch.Tensor) or given.dim() != 2:
        return False
    return given.is_floating_point() and given.shape[0] in (1, batch)


def _are_offsets(given: object, batch: int) -> bool:
    if not isinstance(given, torch.Tensor) or given.is_floating_point() or given.dtype is torch.bool:
        return False
    return given.numel() in (1, batch)
