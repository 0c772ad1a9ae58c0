"""Memory of models and KV caches: estimates, placement on devices, and the longest cache that fits."""

from __future__ import annotations

import math
from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from typing import Protocol, TypeVar

import torch

from constrain.errors import ModelError
from constrain.kernels import BLOCK, MAX_SCORES, PIECE, Unquantized, multiplies_packed
from constrain.model.config import ExLlamaV2Config
from constrain.model.devices import fill, first_device, free_memory, split_by_free_memory, split_by_size
from constrain.model.formats import StoredWeight
from constrain.model.kv_cache import CachedModel, ExLlamaV2CacheBase
from constrain.model.modules import Attention, Head, Module

T = TypeVar("T")

# A multiple of the page size, and of the block size of quantised caches.
_STEP = 512
# Bytes of an element of keys or values during dequantisation: float32 before and after a product, and scaled.
_DEQUANTIZE_BYTES = 12
# Products, what they become, and their softmax in float32.
_SCORE_COPIES = 4


class SizedModel(CachedModel, Protocol):
    """The part of a model that placement needs."""

    @property
    def modules(self) -> Sequence[Module]: ...


def module_sizes(model: SizedModel, layer_bytes: int = 0) -> list[int]:
    """Bytes of the weights of each module, plus ``layer_bytes`` of KV cache for attention; 0 for a tied head."""
    with nullcontext() if model.config.files is None else model.config.files.kept_open():
        return [
            sum(_bytes(model, names, count) for names, count in module.weights())
            + (layer_bytes if isinstance(module, Attention) else 0)
            for module in model.modules
        ]


def packed_forms(model: SizedModel) -> list[str]:
    """The forms in which weights stay packed when they are loaded, as ``int4``."""
    names = (name for module in model.modules for names, _ in module.weights() for name in _packed(model, names))
    return sorted({weight.form for weight in names})


def dequantized_forms(model: SizedModel) -> Counter[str]:
    """The forms of the quantised weights that become plain when they are loaded, as ``exl2``, and their numbers."""
    files = model.config.files
    if files is None:
        return Counter()
    keys = (name for module in model.modules for names, _ in module.weights() for name in names)
    kept = {name for name in keys if _packed(model, [name])}
    wanted = {name for name, _ in model.config.layout.tensors() if name in files.quantized}
    return Counter(files.quantized[name].form for name in wanted - kept)


def _bytes(model: SizedModel, names: Sequence[str], count: int) -> int:
    """Memory of the tensor in which tensors of these names are, with ``count`` elements in all."""
    packed, device = _packed(model, names), first_device()
    if packed and len(names) == 1:
        return packed[0].memory(count // packed[0].shape[1], device)
    rows, plain = sum(each.shape[0] for each in packed), count - sum(math.prod(each.shape) for each in packed)
    if plain or device.type == "cuda":
        together = packed[0].memory_together(packed[1:], device) if packed else 0
        return plain * model.compute_dtype.itemsize + together
    # Together they have zeros only at the end.
    parts = sum(each.shape[0] * each.row_bytes + each.order_bytes for each in packed)
    return parts + -rows % BLOCK * packed[-1].row_bytes


def _packed(model: SizedModel, names: Sequence[str]) -> list[StoredWeight]:
    """Return the weights among ``names`` that stay packed."""
    device, files = first_device(), model.config.files
    if files is None or not multiplies_packed(device, model.compute_dtype):
        return []
    return [files.quantized[name] for name in names if files.stays_packed(name, device)]


def working_bytes(model: SizedModel, cache: ExLlamaV2CacheBase) -> int:
    """Estimate the temporary memory of a prefill pass on a device, in bytes.

    It has the peak of states of a layer for ``max_input_len`` tokens, the scores of attention where these are kept, the
    rotary table of all positions, and a contiguous copy of the keys and values of the longest sequence, which eager
    attention over pages makes.
    """
    config = model.config
    heads = (config.num_attention_heads + 2 * config.num_key_value_heads) * config.head_dim
    states = 3 * config.hidden_size + max(_inner_states(config), 4 * heads)
    tokens = min(config.max_input_len, config.max_seq_len) * config.max_batch_size
    positions = min(cache.max_seq_len, config.max_seq_len)
    row = config.num_key_value_heads * config.head_dim
    rotations = 2 * (1 << (positions - 1).bit_length()) * config.head_dim
    dequantization = 0 if isinstance(cache.key_quantization, Unquantized) else positions * row * _DEQUANTIZE_BYTES
    all_scores = config.num_attention_heads * config.max_attention_size
    scores = min(all_scores, MAX_SCORES) if config.attends_by_scores else 0
    elements = tokens * states + 2 * positions * row + rotations + _SCORE_COPIES * scores
    if packed_forms(model) and first_device().type == "cuda":
        elements += PIECE
    return elements * model.compute_dtype.itemsize + dequantization


def _inner_states(config: ExLlamaV2Config) -> int:
    """Return the number of elements of gate, up and their product for each token, with all experts of a token."""
    if config.experts is None:
        return 3 * config.intermediate_size
    routed = config.experts.routing.chosen * (3 * config.experts.size + 2 * config.hidden_size)
    return max(3 * config.intermediate_size, routed + 3 * config.experts.shared_size)


def place(model: SizedModel, gpu_split: Sequence[float] | None) -> list[torch.device]:
    """Choose a device for every module by the size of weights; see :func:`constrain.model.devices.split_by_size`."""
    return _place(model, module_sizes(model), lambda sizes: split_by_size(sizes, gpu_split))


def place_with_cache(
    model: SizedModel, cache: ExLlamaV2CacheBase, reserve: int | Sequence[int] | None = None
) -> list[torch.device]:
    """Choose a device for every module by free memory, with its share of the KV cache and temporary memory.

    Args:
        model: the model, not loaded; its dtype must be chosen, see :meth:`ExLlamaV2.choose_dtype`.
        cache: a lazy cache.
        reserve: bytes to leave free on every GPU, or on each.

    Raises:
        ModelError: there is not enough memory.
    """
    working = working_bytes(model, cache)
    return _place(
        model,
        module_sizes(model, cache.layer_bytes()),
        lambda sizes: split_by_free_memory(sizes, reserve, working),
    )


def fill_in_order(model: SizedModel, gpu_split: Sequence[float], count: int) -> list[int]:
    """Choose one of ``count`` places for every module, which are filled in order up to ``gpu_split`` GB each.

    Raises:
        ModelError: the modules need more than the split allows, or it has another number of places.
    """
    if len(gpu_split) != count:
        raise ModelError(f"gpu_split has {len(gpu_split)} numbers for {count} devices")
    budgets = [int(gigabytes * 1024**3) for gigabytes in gpu_split]
    return _place(model, module_sizes(model), lambda sizes: fill(sizes, [*budgets]))


def _place(model: SizedModel, sizes: list[int], split: Callable[[list[int]], list[T]]) -> list[T]:
    devices = split(sizes)
    head = model.modules[-1]
    if isinstance(head, Head) and head.tied is not None and devices[0] != devices[-1]:
        # On another device than the embedding, a tied head needs a copy of its weight.
        devices = split([*sizes[:-1], sizes[0]])
    return devices


def token_bytes(model: SizedModel, kind: type[ExLlamaV2CacheBase]) -> int:
    """Bytes of a KV cache of some class for each token, over all layers."""
    return kind(model, max_seq_len=_STEP, lazy=True).layer_bytes() * model.config.num_hidden_layers // _STEP


def longest_cache(model: SizedModel, kind: type[ExLlamaV2CacheBase]) -> int:
    """Length of the longest KV cache that ``load_autosplit`` can place in the memory free now, in steps of 512 tokens.

    Args:
        model: the model, not loaded; its dtype must be chosen, see :meth:`ExLlamaV2.choose_dtype`.
        kind: class of the cache.
    """

    def overflows(steps: int) -> bool:
        try:
            place_with_cache(model, kind(model, max_seq_len=steps * _STEP, lazy=True))
        except ModelError:
            return True
        return False

    max_steps = sum(free_memory(None)) // (token_bytes(model, kind) * _STEP)
    return bisect_left(range(1, max_steps + 1), True, key=overflows) * _STEP
