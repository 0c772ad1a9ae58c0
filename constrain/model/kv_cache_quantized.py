"""Quantised KV caches."""

from __future__ import annotations

import math

from constrain.errors import CacheError
from constrain.kernels import GroupQuantization, KVQuantization, TruncatedFloat
from constrain.model.kv_cache import ExLlamaV2CacheBase

_BLOCK = 512


class ExLlamaV2Cache_8bit(ExLlamaV2CacheBase):
    """KV cache of one byte an element, a truncated float (see :class:`constrain.kernels.TruncatedFloat`)."""

    @property
    def key_quantization(self) -> KVQuantization:
        return TruncatedFloat()

    value_quantization = key_quantization


class ExLlamaV2Cache_Q(ExLlamaV2CacheBase):
    """KV cache of integers with a scale for each group (see :class:`constrain.kernels.GroupQuantization`).

    ``max_seq_len`` is rounded up until the elements of a row of a layer are a multiple of 512.

    Attributes:
        key_bits, value_bits: bits of an element.
    """

    has_scales = True
    key_bits: int
    value_bits: int

    @property
    def key_quantization(self) -> KVQuantization:
        return GroupQuantization(self.key_bits)

    @property
    def value_quantization(self) -> KVQuantization:
        return GroupQuantization(self.value_bits)

    def _whole_blocks(self, positions: int) -> int:
        if self.head_dim * min(self.key_bits, self.value_bits) % 8:
            raise CacheError(f"heads of {self.head_dim} elements do not fill whole bytes; use ExLlamaV2Cache")
        step = _BLOCK // math.gcd(_BLOCK, self.num_key_value_heads * self.head_dim)
        return -(-positions // step) * step


class ExLlamaV2Cache_Q4(ExLlamaV2Cache_Q):
    """KV cache of 4-bit keys and values: 4.5 bits an element with the scales."""

    key_bits = value_bits = 4


class ExLlamaV2Cache_Q6(ExLlamaV2Cache_Q):
    """KV cache of 8-bit keys, whose errors matter more, and 4-bit values: 6.5 bits an element with the scales."""

    key_bits, value_bits = 8, 4


class ExLlamaV2Cache_Q8(ExLlamaV2Cache_Q):
    """KV cache of 8-bit keys and values: 8.5 bits an element with the scales."""

    key_bits = value_bits = 8
