"""Images as the input of a vision tower."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from constrain.arguments import refused
from constrain.model.vision_config import VisionConfig

_BICUBIC = 3  # PIL's number


def pixels_of(image: Any, config: VisionConfig) -> torch.Tensor:
    """Resize an image to whole cells, at most as large as the tower reads, and normalise its colours.

    Args:
        image: an image of PIL.
        config: of the tower.

    Returns:
        float32 ``[3, height, width]``, both multiples of ``config.cell``.

    Raises:
        ArgumentError: ``image`` is no image.
    """
    if not hasattr(image, "convert") or not hasattr(image, "resize") or min(getattr(image, "size", (0,))) < 1:
        raise refused("image", image, "an image of PIL, with at least one pixel")
    width, height = image.size
    size = fitted(height, width, config)
    resized = image.convert("RGB").resize(size[::-1], resample=_BICUBIC)
    pixels = torch.from_numpy(np.array(resized, dtype=np.float32)) / 255
    mean, spread = torch.tensor(config.images.mean), torch.tensor(config.images.spread)
    return ((pixels - mean) / spread).permute(2, 0, 1)


def fitted(height: int, width: int, config: VisionConfig) -> tuple[int, int]:
    """Return the height and width to which an image is resized: as it is, or smaller, rounded up to whole cells."""
    largest, cell = config.images.longest_edge, config.cell
    ratio = max(height / largest, width / largest, 1.0)
    cells = ((max(1, int(side / ratio)) - 1) // cell + 1 for side in (height, width))
    rows, columns = cells
    return rows * cell, columns * cell
