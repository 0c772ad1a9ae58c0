"""Memory of the shards of a model, and the choice of their sizes."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from constrain.errors import ModelError
from constrain.model.devices import free_memory, listed_devices
from constrain.model.kv_cache import ExLlamaV2CacheBase
from constrain.model.memory import SizedModel, module_sizes, working_bytes
from constrain.model.modules import Attention, Head, Module
from constrain.model.sharding import LayerShares, ShardingPlan, make_plan

_GIGABYTE = 1024**3


def plan_shards(
    model: SizedModel,
    gpu_split: Sequence[float] | None,
    cache: ExLlamaV2CacheBase,
    devices: Sequence[str | torch.device] | None = None,
) -> ShardingPlan:
    """Choose devices and parts of the shards of a model.

    Args:
        model: the model, not loaded; its dtype must be chosen.
        gpu_split: gigabytes for each device; ``None``: free memory.
        cache: a lazy cache as large as that of the model will be.
        devices: the devices; ``None``: as many GPUs as ``gpu_split`` has numbers, or all, or else the CPU.

    Raises:
        ModelError: a shard does not fit, or the devices are of several types.
    """
    chosen = _devices(gpu_split, devices)
    budgets = _budgets(chosen, gpu_split, working_bytes(model, cache))
    if budgets is None:
        return _plan(model, chosen, [1.0] * len(chosen))
    equal = _plan(model, chosen, [1.0] * len(chosen))
    if gpu_split is None and not _overflows(shard_bytes(model, equal, cache), budgets):
        return equal
    # The embedding is on the first device only.
    only_first = module_sizes(model)[0]
    plan = _plan(model, chosen, [max(1, budgets[0] - only_first), *budgets[1:]])
    sizes = shard_bytes(model, plan, cache)
    for number in _overflows(sizes, budgets):
        raise ModelError(
            f"Insufficient VRAM for model and cache: shard {number}, on {chosen[number]}, needs "
            f"{sizes[number] / _GIGABYTE:.2f} GiB of {budgets[number] / _GIGABYTE:.2f}"
        )
    return plan


def _plan(model: SizedModel, devices: Sequence[torch.device], weights: Sequence[float]) -> ShardingPlan:
    return make_plan(model.config, devices, weights, model.compute_dtype)


def shard_bytes(model: SizedModel, plan: ShardingPlan, cache: ExLlamaV2CacheBase) -> list[int]:
    """Estimate the bytes of weights and cache of each shard of a model that is not loaded."""
    layer, layers = cache.layer_bytes(), model.config.num_hidden_layers
    caches = (int(layer * layers * share) for share in cache_shares(model, plan))
    return [weights + own for weights, own in zip(shard_weights(model, plan), caches, strict=True)]


def cache_shares(model: SizedModel, plan: ShardingPlan) -> list[float]:
    """Return the fraction of the KV cache that each shard has; their sum exceeds 1 if shards share heads."""
    return [plan.cache_heads(shard) / model.config.num_key_value_heads for shard in range(len(plan.devices))]


def shard_weights(model: SizedModel, plan: ShardingPlan) -> list[int]:
    """Estimate the bytes of the weights of each shard of a model that is not loaded."""
    totals = [0] * len(plan.devices)
    layers = iter(plan.layers)
    shares: LayerShares | None = None
    for module, size in zip(model.modules, module_sizes(model), strict=True):
        shares = next(layers) if isinstance(module, Attention) else shares
        for shard in range(len(totals)):
            totals[shard] += int(size * _share(module, plan, shares, shard))
    return totals


def _share(module: Module, plan: ShardingPlan, shares: LayerShares | None, shard: int) -> float:
    """Estimate the fraction of the weights of a module that a shard has."""
    if isinstance(module, Head):
        parts = plan.vocabulary
    elif module.key.endswith("norm") or shares is None:
        return float(shard == 0)
    else:
        parts = shares.heads if isinstance(module, Attention) else shares.inner
    return len(parts[shard]) / parts[-1].stop


def _devices(
    gpu_split: Sequence[float] | None, devices: Sequence[str | torch.device] | None
) -> tuple[torch.device, ...]:
    if devices is not None:
        return listed_devices(devices)
    if not torch.cuda.is_available():
        return (torch.device("cpu"),)
    count = len(gpu_split) if gpu_split else torch.cuda.device_count()
    return tuple(torch.device("cuda", i) for i in range(count))


def _budgets(devices: Sequence[torch.device], gpu_split: Sequence[float] | None, working: int) -> list[float] | None:
    """Bytes for weights and cache of each device; ``None`` where nothing limits them."""
    if gpu_split:
        if len(gpu_split) != len(devices):
            raise ModelError(f"gpu_split has {len(gpu_split)} numbers for {len(devices)} devices")
        return [gigabytes * _GIGABYTE for gigabytes in gpu_split]
    if devices[0].type == "cpu":
        return None
    free = free_memory(None)
    return [free[device.index or 0] / devices.count(device) - working for device in devices]


def _overflows(sizes: Sequence[int], budgets: Sequence[float]) -> list[int]:
    return [i for i, (size, budget) in enumerate(zip(sizes, budgets, strict=True)) if size > budget]
