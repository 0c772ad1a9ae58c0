"""The head of a model, split over devices by its vocabulary."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from constrain.model.forward_context import ForwardContext
from constrain.model.modules import Head
from constrain.model.shard_group import ShardGroup
from constrain.model.shard_layout import Slice
from constrain.model.shard_source import ShardSource, WholeTensors
from constrain.model.tensor_reader import TensorSource


class ShardedHead(Head):
    """A head of which every device computes the logits of some tokens; they are gathered on the main device.

    A tied head shares the weight of the embedding where that is, on the main device; others have copies of their rows.
    """

    def __init__(self, whole: Head, group: ShardGroup, rows: Sequence[range]) -> None:
        """Split ``whole``; ``rows`` are those of its padded vocabulary that each shard has."""
        super().__init__(whole.key, whole.size, whole.padded_size, whole.hidden_size, whole.cap, whole.tied)
        self.device, self._group = group.main, group
        self._shards = [
            (device, own, self._part(own)) for device, own in zip(group.shards, rows, strict=True) if len(own)
        ]

    def _part(self, rows: range) -> Head:
        size = max(0, min(rows.stop, self.size) - rows.start)
        return Head(self.key, size, len(rows), self.hidden_size, self.cap, None)

    def _load(self, source: TensorSource, dtype: torch.dtype) -> None:
        whole = WholeTensors(source)
        for device, rows, part in self._shards:
            part.device = device if self.device.type != "meta" else self.device
            if self.tied is None:
                stored = Slice((self.size, self.hidden_size), 0, (range(rows.start, rows.start + part.size),))
                part.load(ShardSource(whole, {f"{self.key}.weight": stored}), part.device, dtype)
            else:
                tied = self.tied.weight
                own = tied[rows.start : rows.stop] if isinstance(tied, torch.Tensor) else tied.rows(rows)
                part.weight = own.to(part.device)

    def forward(self, x: torch.Tensor, context: ForwardContext, tokens: torch.Tensor | None = None) -> torch.Tensor:
        """See :class:`~constrain.model.modules.Head`."""
        replaced = context.lm_head
        if replaced is not None:
            return super().forward(x, context, tokens)
        if tokens is not None:
            return self._of_tokens(x, context, tokens)
        parts = [
            part.forward(x.to(device), self._group.context(context, device)).to(self.device)
            for device, _, part in self._shards
        ]
        return torch.cat(parts, dim=-1)

    def _of_tokens(self, x: torch.Tensor, context: ForwardContext, tokens: torch.Tensor) -> torch.Tensor:
        """Compute the logits of some tokens.

        Each shard computes a logit for every token; those for tokens of other shards are discarded.
        """
        logits: torch.Tensor | None = None
        for device, rows, part in self._shards:
            theirs = (tokens - rows.start).clamp(0, len(rows) - 1).to(device)
            own = part.forward(x.to(device), self._group.context(context, device), theirs).to(self.device)
            logits = own if logits is None else torch.where(tokens >= rows.start, own, logits)
        assert logits is not None
        return logits
