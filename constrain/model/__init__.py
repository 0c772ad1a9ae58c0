"""The inference core: configs, models, KV caches and adapters."""

from __future__ import annotations

from typing import TYPE_CHECKING

from constrain.lazy import lazy_names

if TYPE_CHECKING:
    from constrain.model.config import ExLlamaV2Config
    from constrain.model.embeddings import EMBEDDING_INDEX, ExLlamaV2MMEmbedding
    from constrain.model.intervention import Intervention
    from constrain.model.kv_cache import ExLlamaV2Cache, ExLlamaV2CacheBase
    from constrain.model.kv_cache_quantized import (
        ExLlamaV2Cache_8bit,
        ExLlamaV2Cache_Q,
        ExLlamaV2Cache_Q4,
        ExLlamaV2Cache_Q6,
        ExLlamaV2Cache_Q8,
    )
    from constrain.model.kv_cache_tp import ExLlamaV2Cache_TP
    from constrain.model.lora import ExLlamaV2Lora
    from constrain.model.model import ExLlamaV2
    from constrain.model.seq_tensor import SeqTensor
    from constrain.model.timer import Timer
    from constrain.model.vision import ExLlamaV2VisionTower
else:
    __getattr__, __dir__ = lazy_names(
        __name__,
        {
            "constrain.model.kv_cache": ["ExLlamaV2Cache", "ExLlamaV2CacheBase"],
            "constrain.model.kv_cache_quantized": [
                "ExLlamaV2Cache_8bit",
                "ExLlamaV2Cache_Q",
                "ExLlamaV2Cache_Q4",
                "ExLlamaV2Cache_Q6",
                "ExLlamaV2Cache_Q8",
            ],
            "constrain.model.kv_cache_tp": ["ExLlamaV2Cache_TP"],
            "constrain.model.config": ["ExLlamaV2Config"],
            "constrain.model.embeddings": ["EMBEDDING_INDEX", "ExLlamaV2MMEmbedding"],
            "constrain.model.intervention": ["Intervention"],
            "constrain.model.lora": ["ExLlamaV2Lora"],
            "constrain.model.model": ["ExLlamaV2"],
            "constrain.model.seq_tensor": ["SeqTensor"],
            "constrain.model.timer": ["Timer"],
            "constrain.model.vision": ["ExLlamaV2VisionTower"],
        },
    )

__all__ = [
    "EMBEDDING_INDEX",
    "ExLlamaV2",
    "ExLlamaV2Cache",
    "ExLlamaV2CacheBase",
    "ExLlamaV2Cache_8bit",
    "ExLlamaV2Cache_Q",
    "ExLlamaV2Cache_Q4",
    "ExLlamaV2Cache_Q6",
    "ExLlamaV2Cache_Q8",
    "ExLlamaV2Cache_TP",
    "ExLlamaV2Config",
    "ExLlamaV2Lora",
    "ExLlamaV2MMEmbedding",
    "ExLlamaV2VisionTower",
    "Intervention",
    "SeqTensor",
    "Timer",
]
