"""Masks that were sent to a device once, and are then named by their place."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable, Sequence
from typing import Any

import torch

from constrain.filters.masks import TokenMask
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
        self._stream: Any = None
        if device.type == "cuda":
            self._stream = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]
            self._stream.wait_stream(torch.cuda.current_stream(device))

    def places(self, masks: Sequence[TokenMask | None]) -> list[int]:
        """The place of each mask, -1 for none; new ones are sent, and work that is queued from now on waits for them.

        No work that was queued before may still read a mask that is not among these.
        """
        found = [-1 if mask is None else self._places.get(mask.key, -2) for mask in masks]
        for mask, place in zip(masks, found, strict=True):
            if mask is not None and place >= 0:
                self._places.move_to_end(mask.key)
        new = {mask.key: mask for mask, place in zip(masks, found, strict=True) if mask is not None and place == -2}
        if new:
            self._send(list(new.values()))
        return [-1 if mask is None else self._places[mask.key] for mask in masks]

    def _send(self, masks: Sequence[TokenMask]) -> None:
        if self._stream is None:
            for mask in masks:
                self._uploads.send(self.bits[self._place(mask)], torch.from_numpy(mask.row()))
            return
        # Beside the model's pass, which is running.
        with torch.cuda.stream(self._stream):
            for mask in masks:
                self._uploads.send(self.bits[self._place(mask)], torch.from_numpy(mask.row()))
        torch.cuda.current_stream().wait_stream(self._stream)

    def _place(self, mask: TokenMask) -> int:
        place = len(self._places)
        if place == len(self.bits):
            oldest, place = self._places.popitem(last=False)
            del self._kept[oldest]
        self._places[mask.key] = place
        self._kept[mask.key] = mask
        return place
