"""Batches of training examples, generated on the fly by worker processes.

Every worker generates its own examples and sorts them by length into a few buckets; a full bucket is a batch, whose
examples are packed into one row of tokens.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import torch
from tokenizers import Tokenizer
from torch import Tensor
from torch.utils.data import DataLoader, IterableDataset, get_worker_info

from constrain.demo.synth import CLEAN, Example, Split, example
from constrain.demo.tokenizer import BOS, EOS, PAD
from constrain.extract.prompts.builtin import RECORD_MARK, TEXT_MARK, build_prompt, unmarked

LENGTHS = (512, 1024, 4096)
"""Longest examples of the buckets; longer ones are skipped."""
_SHORTEST = 64
"""Average tokens of an example at which a batch of the first bucket has its most examples."""


@dataclass(frozen=True)
class Batch:
    """Packed examples.

    Attributes:
        ids: int64 [t].
        starts: int32 [s + 1], first tokens of the examples; padded with the number of tokens, as empty examples.
        longest: limit of the length of an example.
        at: int64 [n], tokens after which a token is to be predicted.
        targets: int64 [n], what comes after them.
    """

    ids: Tensor
    starts: Tensor
    longest: int
    at: Tensor
    targets: Tensor


class Codec:
    """Encoding of examples as token ids."""

    def __init__(self, folder: Path) -> None:
        self.tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
        vocabulary = self.tokenizer.get_vocab()
        self.bos, self.eos, self.pad = (vocabulary[token] for token in (BOS, EOS, PAD))

    def prompt(self, sample: Example) -> list[int]:
        """Encode the prompt, with the examples that it gives, as :class:`BuiltinForm` writes them."""
        head, text = build_prompt(sample.schema, sample.text).split(TEXT_MARK)
        shots = "".join(
            f"{TEXT_MARK}{unmarked(shot.text.strip())}{RECORD_MARK}{shot.record}{EOS}" for shot in sample.shots
        )
        return [self.bos, *self._ids(f"{head}{shots}{TEXT_MARK}{text}")]

    def answer(self, sample: Example) -> list[int]:
        return [*self._ids(sample.answer), self.eos]

    def decode(self, ids: list[int]) -> str:
        return str(self.tokenizer.decode(ids))

    def _ids(self, text: str) -> list[int]:
        return list(self.tokenizer.encode_batch_fast([text], add_special_tokens=False)[0].ids)


class Stream(IterableDataset[Batch]):
    """Endless stream of batches of about ``tokens`` tokens, padding included, of ``clean`` documents to a share."""

    def __init__(self, folder: Path, seed: int, tokens: int, clean: float) -> None:
        self._folder, self._seed, self._tokens, self._clean = folder, seed, tokens, clean

    def __iter__(self) -> Iterator[Batch]:
        info = get_worker_info()
        index, step = (info.id, info.num_workers) if info else (0, 1)
        codec = Codec(self._folder)
        buckets = {length: _Bucket(length, max(self._tokens, length), codec.pad) for length in LENGTHS}
        while True:
            sample = example(self._seed, Split.TRAIN, index, self._clean)
            index += step
            prompt, answer = codec.prompt(sample), codec.answer(sample)
            length = next((length for length in LENGTHS if length >= len(prompt) + len(answer)), None)
            if length is None:
                continue
            if not buckets[length].fits(prompt, answer):
                yield buckets[length].batch()
                buckets[length] = _Bucket(length, max(self._tokens, length), codec.pad)
            buckets[length].add(prompt, answer)


class _Bucket:
    """Examples of up to ``longest`` tokens that become a batch of ``tokens`` tokens."""

    def __init__(self, longest: int, tokens: int, pad: int) -> None:
        self._longest, self._tokens, self._pad = longest, tokens, pad
        self._ids: list[int] = []
        self._starts = [0]
        self._at: list[int] = []

    @property
    def _slots(self) -> int:
        """Number of examples that a batch has room for, the padding at its end included."""
        shorter = max((length for length in LENGTHS if length < self._longest), default=_SHORTEST)
        return self._tokens // shorter + 1

    def fits(self, prompt: list[int], answer: list[int]) -> bool:
        return len(self._ids) + len(prompt) + len(answer) <= self._tokens and len(self._starts) < self._slots

    def add(self, prompt: list[int], answer: list[int]) -> None:
        first = len(self._ids) + len(prompt) - 1
        self._at += range(first, first + len(answer))
        self._ids += prompt + answer
        self._starts.append(len(self._ids))

    def batch(self) -> Batch:
        ids = torch.full((self._tokens,), self._pad, dtype=torch.long)
        ids[: len(self._ids)] = torch.tensor(self._ids)
        starts = torch.full((self._slots + 1,), self._tokens, dtype=torch.int32)
        starts[: len(self._starts)] = torch.tensor(self._starts, dtype=torch.int32)
        at = torch.tensor(self._at, dtype=torch.long)
        return Batch(ids, starts, self._longest, at, ids[at + 1])


def loader(folder: Path, seed: int, tokens: int, workers: int, clean: float = CLEAN) -> Iterator[Batch]:
    """Return an endless iterator of batches, generated by ``workers`` processes (0: by this one)."""
    stream = Stream(folder, seed, tokens, clean)
    prefetch = 4 if workers else None
    return iter(DataLoader(stream, batch_size=None, num_workers=workers, prefetch_factor=prefetch))
