"""Generators and their sampler, under the names of exllamav2."""

from __future__ import annotations

from typing import TYPE_CHECKING

from constrain.lazy import lazy_names

if TYPE_CHECKING:
    from constrain.generator.base import ExLlamaV2BaseGenerator
    from constrain.generator.dynamic import ExLlamaV2DynamicGenerator
    from constrain.generator.dynamic_async import ExLlamaV2DynamicGeneratorAsync, ExLlamaV2DynamicJobAsync
    from constrain.generator.hooks import ExLlamaV2PostSamplingHook, ExLlamaV2PostSamplingResult
    from constrain.generator.job import ExLlamaV2DynamicJob
    from constrain.generator.sampler import ExLlamaV2Sampler
    from constrain.generator.streaming import ExLlamaV2StreamingGenerator
    from constrain.model.embeddings import ExLlamaV2MMEmbedding
else:
    __getattr__, __dir__ = lazy_names(
        __name__,
        {
            "constrain.generator.base": ["ExLlamaV2BaseGenerator"],
            "constrain.generator.dynamic": ["ExLlamaV2DynamicGenerator"],
            "constrain.generator.dynamic_async": ["ExLlamaV2DynamicGeneratorAsync", "ExLlamaV2DynamicJobAsync"],
            "constrain.generator.hooks": ["ExLlamaV2PostSamplingHook", "ExLlamaV2PostSamplingResult"],
            "constrain.generator.job": ["ExLlamaV2DynamicJob"],
            "constrain.generator.sampler": ["ExLlamaV2Sampler"],
            "constrain.generator.streaming": ["ExLlamaV2StreamingGenerator"],
            "constrain.model.embeddings": ["ExLlamaV2MMEmbedding"],
        },
    )

__all__ = [
    "ExLlamaV2BaseGenerator",
    "ExLlamaV2DynamicGenerator",
    "ExLlamaV2DynamicGeneratorAsync",
    "ExLlamaV2DynamicJob",
    "ExLlamaV2DynamicJobAsync",
    "ExLlamaV2MMEmbedding",
    "ExLlamaV2PostSamplingHook",
    "ExLlamaV2PostSamplingResult",
    "ExLlamaV2Sampler",
    "ExLlamaV2StreamingGenerator",
]
