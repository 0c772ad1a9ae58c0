"""How much memory a model and its caches take, where it has room, and how long a cache fits."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Sequence
from typing import Protocol

import torch

from constrain.errors import ModelError
from constrain.kernels import Unquantized
from constrain.model.cache import CachedModel, ExLlamaV2CacheBase
from constrain.model.devices import free_memory, split_by_free_memory, split_by_size
from constrain.model.modules import Attention, Head, Module

# Pages of the dynamic generator; and a multiple of what quantised caches round up to.
_STEP = 512
# Of an element of keys or values, while codes are turned into states: float32 before and after a product, and scaled.
_DECODING_BYTES = 12


class SizedModel(CachedModel, Protocol):
    """What is needed to know of a model in order to place it."""

    @property
    def modules(self) -> Sequence[Module]: ...


def module_sizes(model: SizedModel, layer_bytes: int = 0) -> list[int]:
    """Bytes of the weights of each module, and of each attention's share of a cache; a tied head has no own."""
    return [
        module.parameters() * model.compute_dtype.itemsize + (layer_bytes if isinstance(module, Attention) else 0)
        for module in model.modules
    ]


def working_bytes(model: SizedModel, cache: ExLlamaV2CacheBase) -> int:
    """Estimate of what a pass over a part of a prompt takes beside weights and cache, on the device of its layer.

    These are the states of ``max_input_len`` tokens where a layer has most of them, the rotations of all positions, and
    copies of the keys and values of the longest sequence, which attention reads where pages do not lie in order.
    """
    config = model.config
    heads = (config.num_attention_heads + 2 * config.num_key_value_heads) * config.head_dim
    states = 3 * config.hidden_size + max(3 * config.intermediate_size, 4 * heads)
    tokens = min(config.max_input_len, config.max_seq_len) * config.max_batch_size
    positions = min(cache.max_seq_len, config.max_seq_len)
    row = config.num_key_value_heads * config.head_dim
    rotations = 2 * (1 << (positions - 1).bit_length()) * config.head_dim
    decoding = 0 if isinstance(cache.key_quantization, Unquantized) else positions * row * _DECODING_BYTES
    return (tokens * states + 2 * positions * row + rotations) * model.compute_dtype.itemsize + decoding


def place(model: SizedModel, gpu_split: Sequence[float] | None) -> list[torch.device]:
    """A device for every module, see :func:`constrain.model.devices.split_by_size`."""
    return _place(model, module_sizes(model), lambda sizes: split_by_size(sizes, gpu_split))


def place_with_cache(
    model: SizedModel, cache: ExLlamaV2CacheBase, reserve: int | Sequence[int] | None = None
) -> list[torch.device]:
    """A device for every module, where there is room for its share of the cache and for what passes take besides.

    Args:
        model: not loaded; its dtype must be known, see :meth:`ExLlamaV2.choose_dtype`.
        cache: lazy.
        reserve: bytes to leave free on every GPU, or on each.

    Raises:
        ModelError: there is not enough room.
    """
    working = working_bytes(model, cache)
    return _place(
        model,
        module_sizes(model, cache.layer_bytes()),
        lambda sizes: split_by_free_memory(sizes, reserve, working),
    )


def _place(model: SizedModel, sizes: list[int], split: Callable[[list[int]], list[torch.device]]) -> list[torch.device]:
    devices = split(sizes)
    head = model.modules[-1]
    if isinstance(head, Head) and head.tied is not None and devices[0] != devices[-1]:
        # A head that is the embedding needs a copy of it where it is not on the same device.
        devices = split([*sizes[:-1], sizes[0]])
    return devices


def token_bytes(model: SizedModel, kind: type[ExLlamaV2CacheBase]) -> int:
    """What a cache of some kind takes for each token, over all layers."""
    return kind(model, max_seq_len=_STEP, lazy=True).layer_bytes() * model.config.num_hidden_layers // _STEP


def longest_cache(model: SizedModel, kind: type[ExLlamaV2CacheBase]) -> int:
    """Tokens that a cache has room for where ``load_autosplit`` may fill all memory that is free now, in steps of 512.

    Args:
        model: not loaded; its dtype must be known, see :meth:`ExLlamaV2.choose_dtype`.
        kind: of the cache.
    """

    def overflows(steps: int) -> bool:
        try:
            place_with_cache(model, kind(model, max_seq_len=steps * _STEP, lazy=True))
        except ModelError:
            return True
        return False

    most = sum(free_memory(None)) // (token_bytes(model, kind) * _STEP)
    return bisect_left(range(1, most + 1), True, key=overflows) * _STEP
