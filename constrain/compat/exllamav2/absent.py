"""Placeholders for classes that constrain does not have; most programs only import them or use ``isinstance``."""

from __future__ import annotations

from enum import IntEnum
from typing import Any

from constrain.errors import ModelError
from constrain.model import ExLlamaV2


class RopeStyle(IntEnum):
    """Layout of the pairs of elements in rotary embeddings."""

    NONE = 0
    GPTJ = 1
    NEOX = 2


class _Layer:
    def __init__(self, *args: Any, **kwargs: Any) -> None:
        raise ModelError(f"no model of constrain has an {type(self).__name__}")


class ExLlamaV2PosEmbedding(_Layer):
    """Learned position embeddings."""


class ExLlamaV2MultimodalProjector(ExLlamaV2):
    """The projector of a multimodal model, which is part of the vision tower here.

    Raises:
        ModelError: always. It is a ``ValueError``, which exllamav2 raises for models without vision.
    """

    def __init__(self, config: Any) -> None:
        raise ModelError("ExLlamaV2VisionTower has the projector; load that")
