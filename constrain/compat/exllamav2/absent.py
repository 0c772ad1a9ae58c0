"""Placeholders for classes that constrain does not have; most programs only import them or use ``isinstance``."""

from __future__ import annotations

from enum import IntEnum
from typing import Any

from constrain.errors import CacheError, ModelError
from constrain.model import ExLlamaV2

_VISION_MODELS = ("pixtral", "qwen2", "qwen2.5", "siglip_vision_model")


class RopeStyle(IntEnum):
    """Layout of the pairs of elements in rotary embeddings."""

    NONE = 0
    GPTJ = 1
    NEOX = 2


class _Layer:
    def __init__(self, *args: Any, **kwargs: Any) -> None:
        raise ModelError(f"no model of constrain has an {type(self).__name__}")


class ExLlamaV2LayerNorm(_Layer):
    """A layer norm that subtracts the mean."""


class ExLlamaV2ParallelDecoder(_Layer):
    """Attention and MLP in parallel."""


class ExLlamaV2PosEmbedding(_Layer):
    """Learned position embeddings."""


class ExLlamaV2Cache_TP:  # noqa: N801 (a name of exllamav2)
    """A tensor-parallel KV cache; constrain has no tensor parallelism.

    Raises:
        CacheError: always.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        raise CacheError("a tensor-parallel cache needs a model loaded with load_tp, which constrain does not offer")


class ExLlamaV2VisionTower(ExLlamaV2):
    """The vision encoder of a multimodal model; constrain runs text models only.

    Raises:
        ModelError: always. It is a ``ValueError``, which exllamav2 raises for models without vision.
    """

    def __init__(self, config: Any) -> None:
        raise ModelError(_no_vision(config))


class ExLlamaV2MultimodalProjector(ExLlamaV2):
    """The projector of a multimodal model; constrain runs text models only.

    Raises:
        ModelError: always. It is a ``ValueError``, which exllamav2 raises for models without vision.
    """

    def __init__(self, config: Any) -> None:
        raise ModelError(_no_vision(config))


def _no_vision(config: Any) -> str:
    kinds = ", ".join(_VISION_MODELS)
    return f"vision_model_type {config.vision_model_type!r} is none of {kinds}, and constrain reads no vision model"
