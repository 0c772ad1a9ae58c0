"""Cost of constraints on a GPU: throughput with and without JSON Schemas, bytes uploaded, and mask/forward overlap."""

from __future__ import annotations

import gc
import json
import statistics
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from tokenizers import Tokenizer

from constrain.bench.cases import case_files
from constrain.bench.device import conditions, synchronize
from constrain.bench.overlap import watched
from constrain.bench.random_model import prefer, random_model_of
from constrain.bench.shapes import Shape
from constrain.engine import CompiledGrammar, Vocabulary, compile_json_schema
from constrain.errors import ConstrainError
from constrain.filters import ExLlamaV2EngineFilter
from constrain.filters.vocabularies import vocabulary_of
from constrain.generator import ExLlamaV2DynamicGenerator, ExLlamaV2DynamicJob, ExLlamaV2Sampler
from constrain.model import ExLlamaV2, ExLlamaV2Cache
from constrain.runtime.page_allocator import PAGED_PAGE_SIZE
from constrain.tokenizer import ExLlamaV2Tokenizer

# One full page plus one token, so that all prompts but the first are prefix-cache hits.
_PROMPT = PAGED_PAGE_SIZE + 1
_REPEATS = 5
_TRACED_STEPS = 24
_FIRST_STEPS = 4
# Total pseudo-count spread evenly over the vocabulary, so that tokens in no document can be sampled too.
_UNSEEN = 100.0
# Models prefer long tokens: factor by which each byte of a token raises its weight, and maximum bytes counted.
_PER_BYTE, _MAX_BYTES = 4.0, 8
# Selection of schemas for jump-forward: number of candidates, maximum selected, minimum share of forced tokens (above
# the target for the measured outputs, which are different ones), minimum output tokens, and trial outputs per schema.
_CANDIDATES, _JUMPS, _FORCED_SHARE, _MIN_TOKENS, _LOOKS = 1024, 8, 0.16, 16, 3


@dataclass(frozen=True)
class Run:
    """Result of running a list of jobs, queued where they exceed the batch size.

    Attributes:
        seconds: from the first step to the last.
        texts: new tokens of each job.
        bytes: uploaded to the device.
    """

    seconds: float
    texts: list[list[int]]
    bytes: int

    @property
    def tokens(self) -> int:
        return sum(map(len, self.texts))

    @property
    def rate(self) -> float:
        """Tokens per second."""
        return self.tokens / self.seconds


def measure_step(
    shape: Shape, batches: Sequence[int], data_dir: Path, tokenizer_dir: Path, new_tokens: int, within_budget: bool
) -> Iterator[dict[str, Any]]:
    """Measure tokens per second with and without constraints, yielding the figures after each batch size.

    Both runs have the same prompts and output lengths, those of the constrained outputs. The model favours tokens that
    occur in the documents of the cases, longer ones more. Finally, jump-forward is measured on the schemas with the
    most forced tokens, with compact whitespace and fixed property order.

    Args:
        shape: of the model, whose weights are random; its vocabulary size is that of the tokenizer.
        batches: batch sizes.
        data_dir: cases whose schemas are the constraints.
        tokenizer_dir: has a ``tokenizer.json``.
        new_tokens: maximum tokens of an output.
        within_budget: constrained outputs must be complete within ``new_tokens``.
    """
    words = Tokenizer.from_file(str(tokenizer_dir / "tokenizer.json"))
    model, tokenizer = random_model_of(tokenizer_dir, shape)
    cases = [json.loads(file.read_text(encoding="utf-8")) for file in case_files(data_dir)]
    prefer(model, _weights(cases, words, vocabulary_of(tokenizer)))
    grammars = _grammars(cases, tokenizer, 2 * max(*batches, 4), new_tokens)
    about = {"vocabulary": words.get_vocab_size(), "new_tokens": new_tokens, "within_budget": within_budget}
    figures: dict[str, Any] = conditions() | about | {"batches": []}
    for batch in batches:
        bench = _Bench(model, tokenizer, batch, new_tokens, within_budget, jump_forward=False)
        figures["batches"].append(bench.compare(grammars[: 2 * max(batch, 4)]) | {"trace": bench.trace(grammars)})
        yield figures
    strict = _grammars(cases, tokenizer, _CANDIDATES, new_tokens, whitespace="compact", property_order="schema")
    forced = _forced_schemas(_Bench(model, tokenizer, max(batches), new_tokens, within_budget, False), strict)
    if forced:
        bench = _Bench(model, tokenizer, 1, new_tokens, within_budget, jump_forward=True)
        figures["jump_forward"] = bench.compare(forced)
        yield figures


def forced_share(grammar: CompiledGrammar, text: Sequence[int]) -> float:
    """Return the share of a text's tokens that equal the forced tokens predicted by the matcher."""
    matcher, forced, hits = grammar.matcher(), list[int](), 0
    for token in text:
        forced = forced or matcher.forced_tokens()
        hit = forced[:1] == [token]
        hits, forced = hits + hit, forced[1:] if hit else []
        if not matcher.accept(token):
            break
    return hits / max(1, len(text))


def _weights(cases: Sequence[dict[str, Any]], words: Tokenizer, vocabulary: Vocabulary) -> torch.Tensor:
    """Return the sampling weight of each token."""
    documents = [
        json.dumps(test["data"], separators=layout)
        for case in cases
        for test in case["tests"]
        for layout in ((", ", ": "), (",", ":"))
    ]
    tokens = [token for each in words.encode_batch(documents, add_special_tokens=False) for token in each.ids]
    size = words.get_vocab_size()
    counts = torch.bincount(torch.tensor(tokens), minlength=size)
    lengths = torch.tensor([len(vocabulary.token_bytes(token)) for token in range(size)]).clamp(max=_MAX_BYTES)
    return counts * _PER_BYTE**lengths + _UNSEEN / size


def _grammars(
    cases: Sequence[dict[str, Any]], tokenizer: ExLlamaV2Tokenizer, count: int, new_tokens: int, **layout: Any
) -> list[CompiledGrammar]:
    """Compile up to ``count`` schemas, evenly spaced over those cases that can complete within ``new_tokens``."""
    vocabulary = vocabulary_of(tokenizer)
    found: list[CompiledGrammar] = []
    for case in cases:
        try:
            grammar = compile_json_schema(case["schema"], vocabulary, **layout)
            if grammar.matcher().min_tokens() < new_tokens:
                found.append(grammar)
        except ConstrainError:
            continue  # refused schemas cannot be benchmarked
    return found[:: max(1, len(found) // count)][:count]


def _forced_schemas(bench: _Bench, grammars: Sequence[CompiledGrammar]) -> list[CompiledGrammar]:
    """Return the schemas with the largest shares of forced tokens, if above the threshold."""
    rounds = [bench.run(bench.constrained(grammars, seed)).texts for seed in range(_LOOKS)]
    found = []
    for grammar, *texts in zip(grammars, *rounds, strict=True):
        share = statistics.mean(forced_share(grammar, text) for text in texts)
        if share >= _FORCED_SHARE and min(map(len, texts)) >= _MIN_TOKENS:
            found.append((share, grammar))
    return [grammar for _, grammar in sorted(found, key=lambda each: each[0], reverse=True)[:_JUMPS]]


class _Bench:
    """Runs jobs at one batch size."""

    def __init__(
        self,
        model: ExLlamaV2,
        tokenizer: ExLlamaV2Tokenizer,
        batch: int,
        new_tokens: int,
        within_budget: bool,
        jump_forward: bool,
    ) -> None:
        self._batch, self._new_tokens, self._within_budget = batch, new_tokens, within_budget
        pages = -(-(_PROMPT + new_tokens) // PAGED_PAGE_SIZE)
        cache = ExLlamaV2Cache(model, max_seq_len=(batch * pages + 1) * PAGED_PAGE_SIZE)
        self._generator = ExLlamaV2DynamicGenerator(
            model, cache, tokenizer, max_batch_size=batch, jump_forward=jump_forward
        )
        self._prompt = torch.randint(0, min(1000, model.config.vocab_size), (1, _PROMPT))

    def compare(self, grammars: Sequence[CompiledGrammar]) -> dict[str, Any]:
        """Measure jobs under these schemas, and unconstrained jobs of the same lengths."""
        self._warm_up(grammars)
        # As servers do after start-up: long-lived objects are then not rescanned in each garbage collection.
        gc.collect()
        gc.freeze()
        pairs = []
        for seed in range(1, _REPEATS + 1):
            bound = self.run(self.constrained(grammars, seed))
            pairs.append((bound, self.run(self._free(seed, [len(text) for text in bound.texts]))))
        shares = [forced_share(*each) for bound, _ in pairs for each in zip(grammars, bound.texts, strict=True)]
        return {
            "batch": self._batch,
            "jobs": len(grammars),
            "tokens": statistics.median(bound.tokens for bound, _ in pairs),
            "constrained": statistics.median(bound.rate for bound, _ in pairs),
            "unconstrained": statistics.median(free.rate for _, free in pairs),
            "ratio": statistics.median(bound.rate / free.rate for bound, free in pairs),
            "ratios": [bound.rate / free.rate for bound, free in pairs],
            "forced_share": statistics.mean(shares),
            "bytes_per_token": statistics.mean(bound.bytes / bound.tokens for bound, _ in pairs),
        }

    def run(self, jobs: list[ExLlamaV2DynamicJob]) -> Run:
        uploads = self._generator.runtime.runner.uploads
        sent = uploads.bytes
        synchronize()
        begin = time.perf_counter()
        self._generator.enqueue(jobs)
        while self._generator.num_remaining_jobs():
            self._generator.iterate()
        synchronize()
        seconds = time.perf_counter() - begin
        texts = [job.sequences[0].tokens(_PROMPT) for job in jobs]
        return Run(seconds, texts, uploads.bytes - sent)

    def constrained(self, grammars: Sequence[CompiledGrammar], seed: int) -> list[ExLlamaV2DynamicJob]:
        """Create one job per schema."""
        model, tokenizer = self._generator.model, self._generator.tokenizer
        return [
            self._job(seed, number, self._new_tokens, [ExLlamaV2EngineFilter(model, tokenizer, grammar)])
            for number, grammar in enumerate(grammars)
        ]

    def trace(self, grammars: Sequence[CompiledGrammar]) -> dict[str, Any]:
        """Trace how mask computation overlaps with forward passes."""
        self._generator.enqueue(self.constrained(grammars[: self._batch], seed=0))
        with watched() as watch:
            while len(watch.masks) < 2 * _TRACED_STEPS and self._generator.num_remaining_jobs():
                self._generator.iterate()
        self._generator.clear_queue()
        steps = watch.steps()[-_TRACED_STEPS:]
        hidden = sum(step["masks"][1] <= step["forward"][1] for step in steps)
        return {"masks_ready_before_the_pass_ends": f"{hidden} of {len(steps)}", "steps": steps}

    def _warm_up(self, grammars: Sequence[CompiledGrammar]) -> None:
        """Capture the CUDA graphs of all batch sizes, and fill the cache of frequent masks."""
        for count in [1, 2, 4, *range(8, self._batch + 1, 8)]:
            if count <= self._batch:
                self._start(self._free(0, [self._new_tokens] * count))
                self._start(self.constrained([grammars[0]] * count, 0))
        self.run(self.constrained(grammars, seed=0))

    def _start(self, jobs: list[ExLlamaV2DynamicJob]) -> None:
        self._generator.enqueue(jobs)
        for _ in range(_FIRST_STEPS):
            self._generator.iterate()
        self._generator.clear_queue()

    def _free(self, seed: int, lengths: Sequence[int]) -> list[ExLlamaV2DynamicJob]:
        return [self._job(seed, number, length, None) for number, length in enumerate(lengths)]

    def _job(self, seed: int, number: int, tokens: int, filters: list[Any] | None) -> ExLlamaV2DynamicJob:
        return ExLlamaV2DynamicJob(
            self._prompt,
            tokens,
            gen_settings=ExLlamaV2Sampler.Settings(),
            seed=seed << 20 | number,
            filters=filters,
            complete_within_budget=self._within_budget,
        )
