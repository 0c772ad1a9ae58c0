"""KV caches of models whose layers are split over devices."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import torch

from constrain.arguments import check_count, refused
from constrain.errors import CacheError
from constrain.kernels import KVQuantization, Parts
from constrain.model.kv_cache import CachedModel, ExLlamaV2Cache, ExLlamaV2CacheBase


class ExLlamaV2Cache_TP(ExLlamaV2CacheBase):  # noqa: N801 (a name of exllamav2)
    """KV cache of a model loaded with ``load_tp``: each device has the keys and values of its heads.

    Layers of attention number their parts across all shards: that of shard ``j`` of layer ``i`` is ``i * n + j``.

    Attributes:
        caches: the cache of each shard that has heads, in order; ``key_states`` and so on are there.
    """

    def __init__(
        self,
        model: CachedModel,
        base: type[ExLlamaV2CacheBase] = ExLlamaV2Cache,
        batch_size: int = 1,
        max_seq_len: int = -1,
        copy_from: ExLlamaV2CacheBase | None = None,
    ) -> None:
        """Create an empty cache, or with ``copy_from`` a copy.

        Args:
            model: a model loaded with ``load_tp``.
            base: class of the caches of the shards, which determines how they are quantised.
            batch_size, max_seq_len, copy_from: see :class:`~constrain.model.ExLlamaV2CacheBase`.

        Raises:
            CacheError: the model is not loaded with ``load_tp``, or an argument is invalid, or memory does not suffice.
        """
        plan = getattr(model, "tp_context", None)
        if plan is None:
            raise CacheError("a tensor-parallel cache needs a model loaded with load_tp; others take the base class")
        if not (isinstance(base, type) and issubclass(base, ExLlamaV2CacheBase)):
            raise refused("base", base, "a class of caches", CacheError)
        check_count("batch_size", batch_size, 1, error=CacheError)
        self.base = base

        def part(shard: int, length: int) -> ExLlamaV2CacheBase:
            heads, device = plan.cache_heads(shard), str(plan.devices[shard])
            return base(model, batch_size, length, None, True, heads, device)

        # Caches may round their length up, by the number of their heads.
        length = max(part(shard, max_seq_len).max_seq_len for shard in plan.cache_shards)
        self.caches = [part(shard, length) for shard in plan.cache_shards]
        super().__init__(model, batch_size, length, copy_from)

    @property
    def key_quantization(self) -> KVQuantization:
        return self.caches[0].key_quantization

    @property
    def value_quantization(self) -> KVQuantization:
        return self.caches[0].value_quantization

    @property
    def num_entries(self) -> int:
        return self.num_hidden_layers * len(self.caches)

    def update_cache_tensors(self) -> None:
        """See :class:`~constrain.model.ExLlamaV2CacheBase`."""
        for cache in self.caches:
            cache.update_cache_tensors()

    def all_tensors(self) -> list[torch.Tensor]:
        """All stored tensors of all shards."""
        return [tensor for cache in self.caches for tensor in cache.all_tensors()]

    def parts(self, layer: int) -> tuple[Parts, Parts]:
        """Stored tensors of the keys and of the values of one entry, see the class."""
        index, shard = divmod(layer, len(self.caches))
        return self.caches[shard].parts(index)

    def get_kv_state(self, *args: Any, **kwargs: Any) -> Any:
        """:meth:`ExLlamaV2CacheBase.get_kv_state` of each shard; what is given and returned as tensors are lists."""
        states = [cache.get_kv_state(*own, **named) for cache, own, named in self._for_each(args, kwargs)]
        return [keys for keys, _ in states], [values for _, values in states]

    def store_kv_state(self, *args: Any, **kwargs: Any) -> None:
        """:meth:`ExLlamaV2CacheBase.store_kv_state` of each shard; what is given as tensors are lists."""
        for cache, own, named in self._for_each(args, kwargs):
            cache.store_kv_state(*own, **named)

    def _for_each(
        self, args: Sequence[Any], kwargs: Mapping[str, Any]
    ) -> Iterator[tuple[ExLlamaV2CacheBase, list[Any], dict[str, Any]]]:
        """Yield each cache with its arguments, which have its own entry in place of a list."""
        for shard, cache in enumerate(self.caches):
            own = [each[shard] if isinstance(each, list) else each for each in args]
            yield cache, own, {name: each[shard] if isinstance(each, list) else each for name, each in kwargs.items()}

    def layer_bytes(self) -> int:
        """Bytes of the keys and values of one layer."""
        return sum(cache.layer_bytes() for cache in self.caches)

    def clone(self) -> ExLlamaV2Cache_TP:
        """Return an independent copy, ``current_seq_len`` included."""
        return ExLlamaV2Cache_TP(self.model, self.base, self.batch_size, self.max_seq_len, copy_from=self)
