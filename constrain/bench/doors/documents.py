"""Throughput of ``LLM.extract_many`` over many documents."""

from __future__ import annotations

import time
from collections.abc import Iterator
from functools import partial
from itertools import count

import torch

from constrain.bench.doors.fronts import make_llm
from constrain.bench.doors.lab import Door, Lab, Runs
from constrain.completion import Failure
from constrain.extract import build_prompt
from constrain.generator import ExLlamaV2DynamicGenerator
from constrain.model import ExLlamaV2Cache

MANY_BESIDE_LOOP = "LLM.extract_many, beside a loop"
WANTED_OF_PLAIN, WANTED_OF_LOOP = 0.90, 3.0
#: The loop runs over one in this many documents.
_LOOP_SHARE = 4


def document_doors(lab: Lab, loop: bool) -> Iterator[Door]:
    """Yield the door of ``extract_many``, compared with plain jobs of the same lengths or with an ``extract`` loop."""
    if loop:
        yield Door(MANY_BESIDE_LOOP, lab.largest, WANTED_OF_LOOP, partial(_beside_loop, lab))
    else:
        yield Door("LLM.extract_many", lab.largest, WANTED_OF_PLAIN, partial(_beside_jobs, lab))


class _Documents:
    """Runs of extraction over new documents, none of which is cached.

    Attributes:
        lengths: tokens of prompt and record of each document in the last ``extract``.
    """

    def __init__(self, lab: Lab) -> None:
        self._lab, self._llm = lab, make_llm(lab, lab.largest)
        self._numbers = count()
        self.lengths: list[tuple[int, int]] = []

    def extract(self, documents: int) -> float:
        """Return the seconds of ``extract_many``, and record ``lengths``."""
        texts = self._texts(documents)
        begin = time.perf_counter()
        records = list(self._llm.extract_many(self._lab.schema, texts, max_new_tokens=self._lab.record_tokens))
        seconds = time.perf_counter() - begin
        errors = [record.error for record in records if isinstance(record, Failure)]
        if errors:
            raise errors[0]
        prompts = [build_prompt(self._lab.schema, text) for text in texts]
        encoded = [self._lab.tokenizer.encode(prompt, add_bos=True, encode_special_tokens=True) for prompt in prompts]
        extracted = [record for record in records if not isinstance(record, Failure)]
        self.lengths = [(ids.shape[1], len(record.tokens)) for ids, record in zip(encoded, extracted, strict=True)]
        return seconds

    def loop(self, documents: int) -> float:
        """Return the seconds of a loop over ``extract``."""
        texts = self._texts(documents)
        begin = time.perf_counter()
        for text in texts:
            self._llm.extract(self._lab.schema, text, max_new_tokens=self._lab.record_tokens)
        return time.perf_counter() - begin

    def _texts(self, documents: int) -> list[str]:
        return [self._lab.text(next(self._numbers)) for _ in range(documents)]


def _beside_loop(lab: Lab) -> Runs:
    """Measure documents per minute, compared with a loop."""
    documents, few = _Documents(lab), max(1, lab.documents // _LOOP_SHARE)
    documents.loop(1)
    return Runs(lambda: 60 * lab.documents / documents.extract(lab.documents), lambda: 60 * few / documents.loop(few))


def _beside_jobs(lab: Lab) -> Runs:
    """Measure tokens per second, prefill included, compared with plain jobs."""
    documents = _Documents(lab)
    documents.extract(lab.documents)
    cache = ExLlamaV2Cache(lab.model, max_seq_len=lab.record_positions(lab.largest))
    generator = ExLlamaV2DynamicGenerator(lab.model, cache, lab.tokenizer, max_batch_size=lab.largest)

    def run() -> float:
        seconds = documents.extract(lab.documents)
        return sum(tokens for _, tokens in documents.lengths) / seconds

    def plain() -> float:
        for number, (prompt, tokens) in enumerate(documents.lengths):
            ids = torch.randint(0, lab.vocabulary, (1, prompt))
            generator.enqueue(lab.job(number, input_ids=ids, max_new_tokens=tokens))
        begin = time.perf_counter()
        while generator.num_remaining_jobs():
            generator.iterate()
        return sum(tokens for _, tokens in documents.lengths) / (time.perf_counter() - begin)

    plain()
    return Runs(run, plain)
