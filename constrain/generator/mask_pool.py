"""Masks that were sent to a device once, and are then named by their place."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable, Sequence

import numpy as np
import torch

from constrain.filters.masks import TokenMask, row
from constrain.kernels.graphs import Uploads


class MaskPool:
    """Masks on a device; those used longest ago make room for new ones.

    Attributes:
        bits: int32 ``[places, words]``.
    """

    def __init__(self, places: int, words: int, uploads: Uploads, device: torch.device) -> None:
        """
        Args:
            places: number of masks that there is room for, more than a step has rows.
            words: of a mask.
            uploads: how they get there.
        """
        self.bits = torch.zeros(places, words, dtype=torch.int, device=device)
        self._uploads = uploads
        self._places: OrderedDict[Hashable, int] = OrderedDict()
        # Kept, so that an equal one gets the same name.
        self._kept: dict[Hashable, TokenMask] = {}

    def places(self, masks: Sequence[TokenMask | None]) -> list[int]:
        """The place of each mask, -1 for none; new ones are sent, and may take the places of some not among these."""
        names = [None if mask is None else mask.id for mask in masks]
        new: dict[Hashable, TokenMask] = {}
        for name, mask in zip(names, masks, strict=True):
            if name in self._places:
                self._places.move_to_end(name)
            elif mask is not None:
                new[name] = mask
        self._send(list(new.values()))
        return [-1 if name is None else self._places[name] for name in names]

    def _send(self, masks: Sequence[TokenMask]) -> None:
        """Send whole rows, and of those with few tokens only the words that are not zero."""
        sparse = []
        for mask in masks:
            place, bits = self._place(mask), row(mask, self.bits.shape[1])
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

    def _place(self, mask: TokenMask) -> int:
        place = len(self._places)
        if place == len(self.bits):
            oldest, place = self._places.popitem(last=False)
            del self._kept[oldest]
        self._places[mask.id] = place
        self._kept[mask.id] = mask
        return place
