"""The model and prompts shared by all doors, and the types that describe a door."""

from __future__ import annotations

import random
import re
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, TypeAlias

import torch

from constrain.extract import build_prompt
from constrain.generator import ExLlamaV2DynamicJob, ExLlamaV2Sampler
from constrain.model import ExLlamaV2
from constrain.runtime.page_allocator import PAGED_PAGE_SIZE
from constrain.tokenizer import ExLlamaV2Tokenizer

#: Performs one run and returns tokens per second.
Run: TypeAlias = Callable[[], float]

_WORD = re.compile(r" [a-z]{3,}")
_MIN_WORDS = 64
#: Spare prompt tokens, since documents differ in length.
_MORE = 32


@dataclass(frozen=True)
class Runs:
    """A measured run and its baseline.

    Attributes:
        door: a run of the door.
        plain: a run of the baseline, which is already warmed up; each follows one of the door.
        notes: further figures, written by the runs.
        close: stops background work.
    """

    door: Run
    plain: Run
    notes: dict[str, Any] = field(default_factory=dict)
    close: Callable[[], None] = lambda: None


@dataclass(frozen=True)
class Door:
    """A benchmark of one entry point or setting.

    Attributes:
        name: of the entry point or setting.
        batch: batch size, in rows.
        wanted: target ratio to the plain rate; ``None`` if there is no target.
        prepare: creates generators and caches, right before the door runs.
    """

    name: str
    batch: int
    wanted: float | None
    prepare: Callable[[], Runs]


@dataclass(frozen=True)
class Lab:
    """A loaded model, and the sizes of its workload.

    Attributes:
        model, tokenizer: loaded.
        batches: batch sizes, ascending.
        prompt: tokens of each prompt.
        new_tokens: tokens generated per sequence.
        forced_tokens: tokens generated per sequence where speculation is measured.
        schema: of the extracted records.
        text: returns the document with a given number.
        documents: number of documents.
        record_tokens: maximum tokens of a record.
    """

    model: ExLlamaV2
    tokenizer: ExLlamaV2Tokenizer
    batches: tuple[int, ...]
    prompt: int
    new_tokens: int
    forced_tokens: int
    schema: Mapping[str, Any]
    text: Callable[[int], str]
    documents: int
    record_tokens: int
    _random: random.Random = field(default_factory=lambda: random.Random(0))

    @property
    def largest(self) -> int:
        """The largest batch."""
        return self.batches[-1]

    @property
    def vocabulary(self) -> int:
        """Number of tokens that both tokenizer and model have."""
        return min(self.tokenizer.get_vocab_size(), self.model.config.vocab_size)

    def positions(self, rows: int, tokens: int = 0) -> int:
        """Return the cache size for ``rows`` sequences of ``tokens``, by default of prompt and new tokens."""
        length = tokens or self.prompt + self.new_tokens + 1
        return rows * -(-length // PAGED_PAGE_SIZE) * PAGED_PAGE_SIZE

    def record_positions(self, rows: int) -> int:
        """Return the cache size for ``rows`` document prompts and their records."""
        prompt = self.tokenizer.encode(build_prompt(self.schema, self.text(self.documents))).shape[1]
        return self.positions(rows, prompt + _MORE + self.record_tokens)

    def prompt_ids(self) -> torch.Tensor:
        """Return a random prompt; its last token is a word, which token healing can regenerate."""
        ids = torch.randint(0, self.vocabulary, (1, self.prompt))
        ids[0, -1] = self._random.choice(self.word_ids)
        return ids

    def words(self) -> str:
        """Return a random prompt as text, of about ``prompt`` tokens, none of them cached."""
        pieces = self.tokenizer.get_id_to_piece_list()
        return "".join(pieces[token] for token in self._random.choices(self.word_ids, k=self.prompt))

    def job(
        self, number: int, settings: ExLlamaV2Sampler.Settings | None = None, **options: Any
    ) -> ExLlamaV2DynamicJob:
        """Create a job with a random prompt and, unless given, default settings."""
        given = {"input_ids": self.prompt_ids(), "max_new_tokens": self.new_tokens, "seed": number, **options}
        return ExLlamaV2DynamicJob(gen_settings=settings or ExLlamaV2Sampler.Settings(), **given)

    @cached_property
    def word_ids(self) -> list[int]:
        """Tokens that are whole words, or the upper half of the vocabulary if it has too few."""
        pieces = self.tokenizer.get_id_to_piece_list()[: self.vocabulary]
        words = [token for token, piece in enumerate(pieces) if _WORD.fullmatch(piece)]
        return words if len(words) >= _MIN_WORDS else list(range(self.vocabulary // 2, self.vocabulary))


def rate_after_prompt(generate: Callable[[int], int], tokens: int) -> float:
    """Return tokens per second without prefill, whose time is that of generating a single token.

    Args:
        generate: generates at most this many tokens from a new prompt, and returns their number.
        tokens: number of tokens after the first.
    """
    first, short = _timed(lambda: generate(1))
    count, long = _timed(lambda: generate(tokens + 1))
    return (count - first) / max(long - short, 1e-9)


def _timed(work: Callable[[], int]) -> tuple[int, float]:
    begin = time.perf_counter()
    return work(), time.perf_counter() - begin
