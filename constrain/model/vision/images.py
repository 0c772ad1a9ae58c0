"""Images as the input of a vision tower."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from constrain.arguments import refused
from constrain.model.vision.config import VisionConfig


def pixels_of(image: Any, config: VisionConfig) -> torch.Tensor:
    """Resize an image as its tower asks for, and normalise its colours.

    Args:
        image: a Pillow image.
        config: of the tower.

    Returns:
        float32 ``[3, height, width]``, both multiples of ``config.cell``.

    Raises:
        ArgumentError: ``image`` is no image, or of a form that the tower does not read.
    """
    if not hasattr(image, "convert") or not hasattr(image, "resize") or min(getattr(image, "size", (0,))) < 1:
        raise refused("image", image, "a Pillow image with at least one pixel")
    width, height = image.size
    size = config.fitted(height, width)
    resized = image.convert("RGB").resize(size[::-1], resample=config.images.resample)
    pixels = torch.from_numpy(np.array(resized, dtype=np.float32)) / 255
    mean, spread = torch.tensor(config.images.mean), torch.tensor(config.images.spread)
    return ((pixels - mean) / spread).permute(2, 0, 1)


def patches_of(pixels: torch.Tensor, size: int, merge: int) -> torch.Tensor:
    """Divide an image into patches, square by square of ``merge`` times ``merge`` of them.

    Args:
        pixels: ``[3, height, width]``.
        size: width and height of a patch.
        merge: width and height of a square in patches; 1: patches come row by row.

    Returns:
        ``[patches, 3 * size * size]``.
    """
    colours, height, width = pixels.shape
    cell = size * merge
    divided = pixels.reshape(colours, height // cell, merge, size, width // cell, merge, size)
    return divided.permute(1, 4, 2, 5, 0, 3, 6).reshape(-1, colours * size * size)
