"""Plans of tensor parallelism: the device of each head, feature and row of a model.

Every device has a shard of each layer (Shoeybi et al. 2019, "Megatron-LM"): some heads of attention with their part of
the KV cache, and some of the inner features of MLPs and experts. The first products of a layer are split by outputs,
the last by inputs, so that the results of the shards have only to be summed. The head is split by its vocabulary. Norms
and routers are on all devices; the embedding is on the first.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from constrain.kernels import multiplies_packed
from constrain.model.config import ExLlamaV2Config
from constrain.model.formats import StoredWeight
from constrain.model.layout import LayerLayout, MLPLayout
from constrain.model.shares import best_unit, divide
from constrain.model.tensor_files import TensorFiles
from constrain.model.traits import QKNorm

# Codes of packed weights fill words with any multiple of this number of inputs.
_PACKED_UNIT = 32
_VOCABULARY_UNIT = 32


@dataclass(frozen=True)
class LayerShares:
    """The parts of one layer, by shard.

    Attributes:
        heads, kv_heads: query heads, and heads of keys and values.
        inner: inner features of the MLP, or of every expert.
        shared: inner features of the MLP that all tokens of a mixture of experts pass through.
        attention_outputs, mlp_outputs: outputs of the last product that each shard computes from the features of all
            shards; ``None``: each computes all of them from its own features, and they are summed.
    """

    heads: tuple[range, ...]
    kv_heads: tuple[range, ...]
    inner: tuple[range, ...]
    shared: tuple[range, ...]
    attention_outputs: tuple[range, ...] | None
    mlp_outputs: tuple[range, ...] | None


@dataclass(frozen=True)
class ShardingPlan:
    """How a model is split over devices.

    Attributes:
        devices: the device of each shard; devices may repeat.
        layers: parts of the layers.
        vocabulary: rows of the head.
    """

    devices: tuple[torch.device, ...]
    layers: tuple[LayerShares, ...]
    vocabulary: tuple[range, ...]

    @property
    def main(self) -> torch.device:
        """The device of the embedding, the states before the head, and the logits."""
        return self.devices[0]

    @property
    def cache_shards(self) -> list[int]:
        """The shards that have a part of the KV cache."""
        return [shard for shard, heads in enumerate(self.layers[0].kv_heads) if len(heads)]

    def cache_heads(self, shard: int) -> int:
        """Number of heads of keys and values that a shard has, the same in every layer."""
        return len(self.layers[0].kv_heads[shard])


def make_plan(
    config: ExLlamaV2Config, devices: Sequence[torch.device], weights: Sequence[float], dtype: torch.dtype
) -> ShardingPlan:
    """Divide a prepared model, of states of ``dtype``, among devices in proportion to ``weights``."""
    heads, kv_heads = _divide_heads(config, weights)
    working = [weight if len(own) else 0.0 for weight, own in zip(weights, heads, strict=True)]
    # Parallel attention and MLP are one step of a shard, so a shard without heads has no part of either.
    mlp_weights = working if config.arch.lm.parallel else weights
    packed = _PackedWeights(config.files if multiplies_packed(devices[0], dtype) else None, devices[0])
    return ShardingPlan(
        tuple(devices),
        tuple(_divide_layer(config, layer, heads, kv_heads, mlp_weights, packed) for layer in config.layout.layers),
        divide(config.padded_vocab_size, weights, _VOCABULARY_UNIT),
    )


@dataclass(frozen=True)
class _PackedWeights:
    """The weights in files that stay packed on a device; where there are no files, none does."""

    files: TensorFiles | None
    device: torch.device

    def unit(self, keys: Sequence[str]) -> int:
        """Return the least number of inputs by which weights can be split."""
        return _PACKED_UNIT if self._among(keys) else 1

    def have_order(self, keys: Sequence[str]) -> bool:
        """Return whether the inputs of a weight are stored in another order, so that it cannot be split by inputs."""
        return any(weight.has_order for weight in self._among(keys))

    def _among(self, keys: Sequence[str]) -> list[StoredWeight]:
        files = self.files
        return [] if files is None else [files.quantized[key] for key in keys if files.stays_packed(key, self.device)]


def _divide_heads(config: ExLlamaV2Config, weights: Sequence[float]) -> tuple[tuple[range, ...], tuple[range, ...]]:
    """Divide heads of keys and values; each group of query heads goes with its head of keys and values."""
    heads, kv_heads = config.num_attention_heads, config.num_key_value_heads
    if config.arch.lm.qk_norm is QKNorm.WHOLE and config.use_qk_norm:
        # All heads are normalised together, so they stay together.
        weights = [1.0, *[0.0] * (len(weights) - 1)]
    if config.latent:
        queries = divide(heads, weights)
        return queries, tuple(range(min(1, len(own))) for own in queries)
    group = heads // kv_heads
    keys = divide(kv_heads, weights)
    return tuple(range(own.start * group, own.stop * group) for own in keys), keys


def _divide_layer(
    config: ExLlamaV2Config,
    layer: LayerLayout,
    heads: tuple[range, ...],
    kv_heads: tuple[range, ...],
    weights: Sequence[float],
    packed: _PackedWeights,
) -> LayerShares:
    feed_forward = layer.feed_forward
    shared = None if isinstance(feed_forward, MLPLayout) else feed_forward.shared
    inner = feed_forward.down.inputs if isinstance(feed_forward, MLPLayout) else feed_forward.down.shape[2]
    downs = [name for part in (feed_forward.down, shared and shared.down) if part for name, _ in part.tensors()]
    by_outputs = packed.have_order([name for name, _ in layer.output.tensors()]), packed.have_order(downs)
    if config.arch.lm.parallel:
        by_outputs = any(by_outputs), any(by_outputs)
    parts = _divide_inner(inner, weights, least := packed.unit(downs))
    return LayerShares(
        heads,
        kv_heads,
        parts,
        _divide_inner(shared.down.inputs, weights, least) if shared else (),
        _divide_outputs(config, weights, heads) if by_outputs[0] else None,
        _divide_outputs(config, weights, parts) if by_outputs[1] else None,
    )


def _divide_inner(inner: int, weights: Sequence[float], least: int) -> tuple[range, ...]:
    return divide(inner, weights, best_unit(inner, len(weights), least))


def _divide_outputs(config: ExLlamaV2Config, weights: Sequence[float], parts: Sequence[range]) -> tuple[range, ...]:
    """Divide the hidden features among the shards that have a part of the half layer."""
    working = [weight if len(part) else 0.0 for weight, part in zip(weights, parts, strict=True)]
    return divide(config.hidden_size, working, best_unit(config.hidden_size, len(parts)))
