"""How much memory a model and its caches take, and how long a cache fits."""

from __future__ import annotations

from bisect import bisect_left
from typing import TYPE_CHECKING

from constrain.errors import ModelError
from constrain.model.devices import free_memory, split_by_free_memory
from constrain.model.modules import Attention

if TYPE_CHECKING:
    from constrain.model.cache import ExLlamaV2CacheBase
    from constrain.model.model import ExLlamaV2

# Pages of the dynamic generator; and a multiple of what quantised caches round up to.
_STEP = 512


def module_sizes(model: ExLlamaV2, layer_bytes: int = 0) -> list[int]:
    """Bytes of the weights of each module, and of each attention's share of a cache."""
    return [
        module.parameters() * model.compute_dtype.itemsize + (layer_bytes if isinstance(module, Attention) else 0)
        for module in model.modules
    ]


def token_bytes(model: ExLlamaV2, kind: type[ExLlamaV2CacheBase]) -> int:
    """What a cache of some kind takes for each token, over all layers."""
    return kind(model, max_seq_len=_STEP, lazy=True).layer_bytes() * model.config.num_hidden_layers // _STEP


def longest_cache(model: ExLlamaV2, kind: type[ExLlamaV2CacheBase]) -> int:
    """Tokens that a cache has room for where ``load_autosplit`` may fill all memory that is free now, in steps of 512.

    Args:
        model: not loaded; its dtype must be known, see :meth:`ExLlamaV2.choose_dtype`.
        kind: of the cache.
    """

    def overflows(steps: int) -> bool:
        cache = kind(model, max_seq_len=steps * _STEP, lazy=True)
        try:
            split_by_free_memory(module_sizes(model, cache.layer_bytes()), None)
        except ModelError:
            return True
        return False

    most = sum(free_memory(None)) // (token_bytes(model, kind) * _STEP)
    return bisect_left(range(1, most + 1), True, key=overflows) * _STEP
