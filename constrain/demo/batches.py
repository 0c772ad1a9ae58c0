"""Batches of training examples, made on the fly by worker processes.

Every worker writes examples of its own and sorts them by length into buckets; a full bucket is a batch. All batches
have about the same number of tokens, and few different shapes.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import torch
from tokenizers import Tokenizer
from torch import Tensor
from torch.utils.data import DataLoader, IterableDataset, get_worker_info

from constrain.demo.synth import Example, Split, example
from constrain.demo.tokenizer import BOS, EOS, PAD
from constrain.extract.prompt import build_prompt

LENGTHS = (128, 192, 256, 320, 416, 576, 1024)
"""The row lengths of batches; longer examples are left out."""


@dataclass(frozen=True)
class Batch:
    """``ids``, int64 [b, t]; after its flat positions ``at``, int64 [n], come the records' ``targets``, int64 [n]."""

    ids: Tensor
    at: Tensor
    targets: Tensor


class Codec:
    """Token ids of examples."""

    def __init__(self, folder: Path) -> None:
        self.tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
        vocabulary = self.tokenizer.get_vocab()
        self.bos, self.eos, self.pad = (vocabulary[token] for token in (BOS, EOS, PAD))

    def prompt(self, sample: Example) -> list[int]:
        return [self.bos, *self._ids(build_prompt(sample.schema, sample.text))]

    def answer(self, sample: Example) -> list[int]:
        return [*self._ids(sample.answer), self.eos]

    def decode(self, ids: list[int]) -> str:
        return str(self.tokenizer.decode(ids))

    def _ids(self, text: str) -> list[int]:
        return list(self.tokenizer.encode(text, add_special_tokens=False).ids)


class Stream(IterableDataset[Batch]):
    """Endless batches of about ``tokens`` tokens, padding included."""

    def __init__(self, folder: Path, seed: int, tokens: int) -> None:
        self._folder, self._seed, self._tokens = folder, seed, tokens

    def __iter__(self) -> Iterator[Batch]:
        info = get_worker_info()
        index, step = (info.id, info.num_workers) if info else (0, 1)
        codec = Codec(self._folder)
        buckets: dict[int, list[tuple[list[int], int]]] = defaultdict(list)
        while True:
            sample = example(self._seed, Split.TRAIN, index)
            index += step
            prompt, answer = codec.prompt(sample), codec.answer(sample)
            length = next((length for length in LENGTHS if length >= len(prompt) + len(answer)), None)
            if length is None:
                continue
            buckets[length].append((prompt + answer, len(prompt)))
            if len(buckets[length]) >= max(1, self._tokens // length):
                yield _collate(buckets.pop(length), length, codec.pad)


def loader(folder: Path, seed: int, tokens: int, workers: int) -> Iterator[Batch]:
    """Endless batches from ``workers`` processes (0: from this one)."""
    stream = Stream(folder, seed, tokens)
    prefetch = 4 if workers else None
    return iter(DataLoader(stream, batch_size=None, num_workers=workers, prefetch_factor=prefetch))


def _collate(rows: list[tuple[list[int], int]], length: int, pad: int) -> Batch:
    ids = torch.tensor([row + [pad] * (length - len(row)) for row, _ in rows], dtype=torch.long)
    at = torch.cat([torch.arange(start - 1, len(row) - 1) + index * length for index, (row, start) in enumerate(rows)])
    return Batch(ids, at, ids.flatten()[at + 1])
