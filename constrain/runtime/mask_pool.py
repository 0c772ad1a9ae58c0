"""Pool of token masks on a device: each mask is uploaded once, then referenced by its row."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable, Sequence

import numpy as np
import torch

from constrain.filters.masks import TokenMask, row
from constrain.kernels.graphs import Uploads


class MaskPool:
    """Token masks on a device, with LRU eviction.

    Attributes:
        bits: int32 ``[capacity, words]``.
    """

    def __init__(self, capacity: int, words: int, uploads: Uploads, device: torch.device) -> None:
        """
        Args:
            capacity: number of masks, more than a pass has rows.
            words: number of words per mask, each for 32 tokens.
            uploads: sends values to the device.
            device: device of the masks.
        """
        self.bits = torch.zeros(capacity, words, dtype=torch.int, device=device)
        self._uploads = uploads
        self._rows: OrderedDict[Hashable, int] = OrderedDict()
        # Keeps masks alive, so that no other mask gets the same id.
        self._masks: dict[Hashable, TokenMask] = {}

    def rows(self, masks: Sequence[TokenMask | None]) -> list[int]:
        """Return the row of each mask, -1 for none; new masks are uploaded, and may evict masks not among these."""
        names = [None if mask is None else mask.id for mask in masks]
        new: dict[Hashable, TokenMask] = {}
        for name, mask in zip(names, masks, strict=True):
            if name in self._rows:
                self._rows.move_to_end(name)
            elif mask is not None:
                new[name] = mask
        self._send(list(new.values()))
        return [-1 if name is None else self._rows[name] for name in names]

    def _send(self, masks: Sequence[TokenMask]) -> None:
        """Upload whole rows; of masks with few tokens only the non-zero words."""
        sparse = []
        for mask in masks:
            place, bits = self._claim(mask), row(mask, self.bits.shape[1])
            words = np.flatnonzero(bits)
            if 2 * len(words) < len(bits):
                self.bits[place].zero_()
                sparse.append(np.stack([place * len(bits) + words, bits[words]]))
            else:
                self._uploads.send(self.bits[place], torch.from_numpy(bits))
        if sparse:
            words = np.concatenate(sparse, axis=1).astype(np.int32)
            sent = torch.empty(words.shape, dtype=torch.int, device=self.bits.device)
            self._uploads.send(sent, torch.from_numpy(words))
            self.bits.view(-1)[sent[0].long()] = sent[1]

    def _claim(self, mask: TokenMask) -> int:
        place = len(self._rows)
        if place == len(self.bits):
            oldest, place = self._rows.popitem(last=False)
            del self._masks[oldest]
        self._rows[mask.id] = place
        self._masks[mask.id] = mask
        return place
