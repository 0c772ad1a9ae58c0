"""Pools of token masks and biases on a device: each is uploaded once, then referenced by its row."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import OrderedDict
from collections.abc import Hashable, Sequence
from typing import Generic, TypeVar

import numpy as np
import torch

from constrain.filters.masks import TokenMask, row
from constrain.kernels.graphs import Uploads
from constrain.runtime.sampler.params import TokenBias

T = TypeVar("T", TokenMask, TokenBias)


class _Pool(ABC, Generic[T]):
    """Rows of a tensor on a device, at least as many as a pass has; the least recently used are overwritten."""

    def __init__(self, capacity: int, uploads: Uploads) -> None:
        self._capacity, self._uploads = capacity, uploads
        self._rows: OrderedDict[Hashable, int] = OrderedDict()
        # Keeps values alive, so that no other value gets the same name.
        self._values: dict[Hashable, T] = {}

    def rows(self, values: Sequence[T | None]) -> list[int]:
        """Return the row of each value, -1 for none; new ones are uploaded, and may overwrite others than these."""
        names = [None if value is None else value.id for value in values]
        new: dict[Hashable, T] = {}
        for name, value in zip(names, values, strict=True):
            if name in self._rows:
                self._rows.move_to_end(name)
            elif value is not None:
                new[name] = value
        self._send([(self._claim(name, value), value) for name, value in new.items()])
        return [-1 if name is None else self._rows[name] for name in names]

    def _claim(self, name: Hashable, value: T) -> int:
        place = len(self._rows)
        if place == self._capacity:
            oldest, place = self._rows.popitem(last=False)
            del self._values[oldest]
        self._rows[name], self._values[name] = place, value
        return place

    @abstractmethod
    def _send(self, placed: Sequence[tuple[int, T]]) -> None:
        """Upload values to their rows."""


class MaskPool(_Pool[TokenMask]):
    """Token masks on a device, with LRU eviction.

    Attributes:
        bits: int32 ``[capacity, words]``.
    """

    def __init__(self, capacity: int, words: int, uploads: Uploads, device: torch.device) -> None:
        super().__init__(capacity, uploads)
        self.bits = torch.zeros(capacity, words, dtype=torch.int, device=device)

    def _send(self, placed: Sequence[tuple[int, TokenMask]]) -> None:
        """Upload whole rows; of masks with few tokens only the non-zero words."""
        sparse = []
        for place, mask in placed:
            bits = row(mask, self.bits.shape[1])
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


class BiasPool(_Pool[TokenBias]):
    """Biases on a device, with LRU eviction.

    Attributes:
        biases: float32 ``[capacity, width]``; empty before the first is sent.
    """

    def __init__(self, capacity: int, width: int, uploads: Uploads, device: torch.device) -> None:
        super().__init__(capacity, uploads)
        self.biases = torch.empty(0, width, device=device)

    def _send(self, placed: Sequence[tuple[int, TokenBias]]) -> None:
        if placed and not len(self.biases):
            self.biases = self.biases.new_zeros(self._capacity, self.biases.shape[1])
        for place, bias in placed:
            given = bias.values.float()
            self.biases[place, len(given) :] = 0
            self._uploads.send(self.biases[place, : len(given)], given)
