"""Checks of the tensors that a forward pass is given."""

from __future__ import annotations

import torch

from constrain.arguments import check_type, refused
from constrain.model.kv_cache import ExLlamaV2CacheBase

_IDS = (torch.long, torch.int)


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
