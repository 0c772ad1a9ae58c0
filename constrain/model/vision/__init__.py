"""Vision towers: images as embeddings of a text model."""

from __future__ import annotations

from constrain.model.vision.tower import ExLlamaV2VisionTower

__all__ = ["ExLlamaV2VisionTower"]
