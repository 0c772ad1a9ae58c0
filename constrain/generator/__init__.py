"""Generators and their sampler, under the names of exllamav2."""

from constrain.generator.base import ExLlamaV2BaseGenerator
from constrain.generator.dynamic import ExLlamaV2DynamicGenerator
from constrain.generator.dynamic_async import ExLlamaV2DynamicGeneratorAsync, ExLlamaV2DynamicJobAsync
from constrain.generator.hooks import ExLlamaV2PostSamplingHook, ExLlamaV2PostSamplingResult
from constrain.generator.job import ExLlamaV2DynamicJob
from constrain.generator.sampler import ExLlamaV2Sampler
from constrain.generator.streaming import ExLlamaV2StreamingGenerator
from constrain.model.embeddings import ExLlamaV2MMEmbedding

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
