"""Multi-head latent attention."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch

from constrain.kernels import RowNorm
from constrain.model.forward_context import ForwardContext
from constrain.model.latent_config import LatentConfig
from constrain.model.layout import LatentLayout
from constrain.model.modules import Attention, Linear, RMSNorm, copy_rows, fused_norm
from constrain.model.tensor_reader import TensorSource

# The models do not take it from their config.
_NORM_EPS = 1e-6


class _DenseLinear(Linear):
    """A projection whose weight is plain, however it is stored."""

    def weights(self) -> Iterator[tuple[list[str], int]]:
        # Without names, the memory is that of plain weights.
        yield from (([], count) for _, count in super().weights())

    def _load(self, source: TensorSource, dtype: torch.dtype) -> None:
        rows, inputs = sum(self.layout.outputs), self.layout.inputs
        weight = torch.empty(rows, inputs, dtype=dtype, device=self.device)
        copy_rows(source, dict(self.layout.parts()), weight)
        self.weight = weight

    def updated(self, context: ForwardContext) -> torch.Tensor:
        """Return the weight ``[outputs, inputs]`` with the active adapters."""
        assert isinstance(self.weight, torch.Tensor)
        update = self.update(context)
        return self.weight if update is None else self.weight + update.up @ update.down


class LatentAttention(Attention):
    """Attention whose keys and values are products of one latent state of each position (DeepSeek-V2 report, 2024).

    Only that state is cached, and the features of keys that are rotated, which all heads share. It is the one key of
    all heads, and their one value: the weight that makes keys of it multiplies the queries instead, and the one that
    makes values multiplies what is attended to. The value in the cache is followed by room as wide as the rotated
    features, so that it has the shape of a key.
    """

    def __init__(self, latent: LatentLayout, sizes: LatentConfig, *args: Any, **kwargs: Any) -> None:
        """Build from a layout, sizes, and the arguments of :class:`~constrain.model.modules.Attention`."""
        super().__init__(*args, **kwargs)
        self.sizes = sizes
        self.latent_norm = RMSNorm(latent.norm, (sizes.rank,), _NORM_EPS)
        self.expand = _DenseLinear(latent.expand)
        self.query = Linear(latent.query) if latent.query else None
        self.query_norm = RMSNorm(latent.query_norm, (sizes.query_rank or 0,), _NORM_EPS) if latent.query_norm else None

    def weights(self) -> Iterator[tuple[list[str], int]]:
        yield from super().weights()
        for part in self._own_parts():
            yield from part.weights()

    def submodules(self) -> Iterator[tuple[str, Linear]]:
        yield from super().submodules()
        for part in self._own_parts():
            yield from part.submodules()

    def _load(self, source: TensorSource, dtype: torch.dtype) -> None:
        super()._load(source, dtype)
        for part in self._own_parts():
            part.load(source, self.device, dtype)

    def _own_parts(self) -> Iterator[RMSNorm | Linear]:
        yield from (self.latent_norm, self.expand)
        if self.query is not None and self.query_norm is not None:
            yield from (self.query_norm, self.query)

    def attended(self, x: torch.Tensor, context: ForwardContext, norm: RowNorm | None) -> torch.Tensor:
        """Return the values ``[batch, width, heads * value]`` that the queries of ``norm(x)`` attend to."""
        sizes, heads = self.sizes, self.layer.heads
        joined = self.qkv.forward(x, context, norm=norm)
        queries = joined.shape[-1] - sizes.stored
        query, latent, rotated = torch.split(joined, [queries, sizes.rank, sizes.rotated], dim=-1)
        if self.query is not None:
            query = self.query.forward(query.contiguous(), context, norm=fused_norm(self.query_norm))
        expand = self.expand.updated(context).view(heads, -1, sizes.rank)
        to_keys, to_values = torch.split(expand, [sizes.plain, sizes.value], dim=1)
        query = query.view(*x.shape[:2], heads, -1)
        rows = x.new_empty(*x.shape[:2], heads + 2, sizes.stored)
        rows[:, :, :heads, : sizes.rotated] = query[..., sizes.plain :]
        rows[:, :, :heads, sizes.rotated :] = torch.einsum("bwhn,hnr->bwhr", query[..., : sizes.plain], to_keys)
        rows[:, :, heads:, : sizes.rotated] = rotated.unsqueeze(2)
        rows[:, :, heads:, sizes.rotated :] = self.latent_norm.forward(latent, context).unsqueeze(2)
        self.pair_halves(rows)
        out = context.attention.attend(self.layer, rows).view(*x.shape[:2], heads, -1)[..., sizes.rotated :]
        return torch.einsum("bwhr,hvr->bwhv", out, to_values).flatten(2)
