"""The model that all doors lead to, prompts for it, and a rate that is compared with another."""

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
from constrain.runtime.page_table import PAGED_PAGE_SIZE
from constrain.tokenizer import ExLlamaV2Tokenizer

#: One run; returns tokens per second.
Run: TypeAlias = Callable[[], float]

_WORD = re.compile(r" [a-z]{3,}")
_LEAST_WORDS = 64
#: Tokens by which a document may be longer than another.
_MORE = 32


@dataclass(frozen=True)
class Runs:
    """What is measured, and what it is compared with.

    Attributes:
        door: a run of the door.
        plain: a run of what it is compared with, which is warm already.
        notes: further figures, written by the runs.
        close: ends what goes on in the background.
    """

    door: Run
    plain: Run
    notes: dict[str, Any] = field(default_factory=dict)
    close: Callable[[], None] = lambda: None


@dataclass(frozen=True)
class Door:
    """A way to generate tokens.

    Attributes:
        name: what users know it by.
        batch: rows that run at a time.
        wanted: least share of the plain rate that it should come to; ``None`` where none is set.
        prepare: makes generators and caches, when it is its turn.
    """

    name: str
    batch: int
    wanted: float | None
    prepare: Callable[[], Runs]


@dataclass(frozen=True)
class Lab:
    """A loaded model, and how much it is made to generate.

    Attributes:
        model, tokenizer: loaded.
        batches: numbers of sequences at a time, ascending.
        prompt: tokens of each prompt.
        new_tokens: tokens generated after it.
        forced_tokens: those of sequences that speculation is measured on.
        schema: of records that are extracted.
        text: the document with a number.
        documents: number of documents.
        record_tokens: most tokens of a record.
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
        """Number of tokens."""
        return min(self.tokenizer.get_vocab_size(), self.model.config.vocab_size)

    def positions(self, rows: int, tokens: int = 0) -> int:
        """Positions of a cache for sequences of ``tokens``, by default a prompt and what is generated after it."""
        length = tokens or self.prompt + self.new_tokens + 1
        return rows * -(-length // PAGED_PAGE_SIZE) * PAGED_PAGE_SIZE

    def record_positions(self, rows: int) -> int:
        """Positions of a cache for prompts of documents and their records."""
        prompt = self.tokenizer.encode(build_prompt(self.schema, self.text(self.documents))).shape[1]
        return self.positions(rows, prompt + _MORE + self.record_tokens)

    def prompt_ids(self) -> torch.Tensor:
        """A random prompt; its last token is a word, which can be generated anew."""
        ids = torch.randint(0, self.vocabulary, (1, self.prompt))
        ids[0, -1] = self._random.choice(self.word_ids)
        return ids

    def words(self) -> str:
        """A random prompt as text, of about as many tokens; none is cached."""
        pieces = self.tokenizer.get_id_to_piece_list()
        return "".join(pieces[token] for token in self._random.choices(self.word_ids, k=self.prompt))

    def job(
        self, number: int, settings: ExLlamaV2Sampler.Settings | None = None, **options: Any
    ) -> ExLlamaV2DynamicJob:
        """A job with a random prompt; by default with default settings and nothing else."""
        given = {"input_ids": self.prompt_ids(), "max_new_tokens": self.new_tokens, "seed": number, **options}
        return ExLlamaV2DynamicJob(gen_settings=settings or ExLlamaV2Sampler.Settings(), **given)

    @cached_property
    def word_ids(self) -> list[int]:
        """Tokens that are a word, where the vocabulary has such; others else."""
        pieces = self.tokenizer.get_id_to_piece_list()[: self.vocabulary]
        words = [token for token, piece in enumerate(pieces) if _WORD.fullmatch(piece)]
        return words if len(words) >= _LEAST_WORDS else list(range(self.vocabulary // 2, self.vocabulary))


def rate_after_prompt(generate: Callable[[int], int], tokens: int) -> float:
    """Tokens per second without the time of the prompt, which is that until the first token.

    Args:
        generate: generates at most so many tokens after a prompt of its own, and returns how many they were.
        tokens: how many.
    """
    first, short = _timed(lambda: generate(1))
    count, long = _timed(lambda: generate(tokens + 1))
    return (count - first) / max(long - short, 1e-9)


def _timed(work: Callable[[], int]) -> tuple[int, float]:
    begin = time.perf_counter()
    return work(), time.perf_counter() - begin
