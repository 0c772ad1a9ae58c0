"""What constraints cost a GPU: tokens per second under JSON Schemas and without, what is sent, and what overlaps."""

from __future__ import annotations

import json
import statistics
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from tokenizers import Tokenizer

from constrain.bench.cases import case_files
from constrain.bench.device import device_name
from constrain.bench.random_model import random_model
from constrain.bench.shapes import Shape
from constrain.engine import CompiledGrammar, compile_json_schema
from constrain.errors import BenchmarkError, ConstrainError
from constrain.filters import ExLlamaV2EngineFilter
from constrain.filters.engine import vocabulary_of
from constrain.generator import ExLlamaV2DynamicGenerator, ExLlamaV2DynamicJob, ExLlamaV2Sampler
from constrain.generator.pipeline import Pipeline
from constrain.model import ExLlamaV2, ExLlamaV2Cache
from constrain.model.decode import Decoder
from constrain.tokenizer import ExLlamaV2Tokenizer

_PAGE = 256
# A whole page and a token, so that all prompts but the first are cached.
_PROMPT = _PAGE + 1
_REPEATS = 3
_TRACED_STEPS = 24


@dataclass(frozen=True)
class Run:
    """Some jobs, one after the other where there is no room.

    Attributes:
        seconds: from the first step to the last.
        tokens: of each job.
        bytes: sent to the device.
    """

    seconds: float
    tokens: list[int]
    bytes: int


def measure_step(
    shape: Shape, batches: Sequence[int], data_dir: Path, tokenizer_dir: Path, new_tokens: int
) -> dict[str, Any]:
    """Tokens per second with constraints and without.

    Both have the same prompts, and texts of the same lengths: those at which the constrained ones come to an end.

    Args:
        shape: of the model, whose weights are random; its vocabulary is made as large as that of the tokenizer.
        batches: numbers of sequences at a time.
        data_dir: cases whose schemas are the constraints.
        tokenizer_dir: has a ``tokenizer.json``.
        new_tokens: most tokens of a text.
    """
    size = Tokenizer.from_file(str(tokenizer_dir / "tokenizer.json")).get_vocab_size()
    with tempfile.TemporaryDirectory() as folder:
        model, tokenizer = random_model(replace(shape, vocab_size=size), Path(folder), tokenizer_dir)
    grammars = _grammars(data_dir, tokenizer, 2 * max(batches), new_tokens)
    figures = [_Bench(model, tokenizer, grammars, batch, new_tokens).measure() for batch in batches]
    return device_name() | {"vocabulary": size, "new_tokens": new_tokens, "batches": figures}


def _grammars(data_dir: Path, tokenizer: ExLlamaV2Tokenizer, count: int, new_tokens: int) -> list[CompiledGrammar]:
    """``count`` schemas from all over the folder, of those whose texts fit."""
    files = case_files(data_dir)
    vocabulary = vocabulary_of(tokenizer)
    found: list[CompiledGrammar] = []
    for file in files[:: max(1, len(files) // (2 * count))]:
        try:
            grammar = compile_json_schema(json.loads(file.read_text(encoding="utf-8"))["schema"], vocabulary)
            if grammar.matcher().min_tokens() < new_tokens:
                found.append(grammar)
        except ConstrainError:
            continue  # a schema that is refused is none to decode under
    if len(found) < count:
        raise BenchmarkError(f"{data_dir} has only {len(found)} schemas for texts of {new_tokens} tokens, not {count}")
    return found[:count]


class _Bench:
    """Runs at one batch size, of twice as many jobs."""

    def __init__(
        self,
        model: ExLlamaV2,
        tokenizer: ExLlamaV2Tokenizer,
        grammars: Sequence[CompiledGrammar],
        batch: int,
        new_tokens: int,
    ) -> None:
        self._batch, self._new_tokens = batch, new_tokens
        self._grammars = grammars[: 2 * max(batch, 4)]
        pages = -(-(_PROMPT + new_tokens) // _PAGE)
        cache = ExLlamaV2Cache(model, max_seq_len=(batch * pages + 1) * _PAGE)
        self._decoder = cache.decoder(_PAGE)
        self._generator = ExLlamaV2DynamicGenerator(model, cache, tokenizer, max_batch_size=batch, jump_forward=False)
        self._prompt = torch.randint(0, 1000, (1, _PROMPT))

    def measure(self) -> dict[str, Any]:
        self._run(self._constrained(0))  # makes the graphs
        pairs = []
        for repeat in range(1, _REPEATS + 1):
            bound = self._run(self._constrained(repeat))
            pairs.append((bound, self._run(self._free(repeat, bound.tokens))))
        rates = [(sum(bound.tokens) / bound.seconds, sum(free.tokens) / free.seconds) for bound, free in pairs]
        constrained, unconstrained = (statistics.median(each) for each in zip(*rates, strict=True))
        return {
            "batch": self._batch,
            "jobs": len(self._grammars),
            "tokens": sum(pairs[0][0].tokens),
            "constrained": constrained,
            "unconstrained": unconstrained,
            "ratio": statistics.median(bound / free for bound, free in rates),
            "ratios": [bound / free for bound, free in rates],
            "bytes_per_token": statistics.mean(bound.bytes / sum(bound.tokens) for bound, _ in pairs),
            "trace": self._trace(),
        }

    def _constrained(self, seed: int) -> list[ExLlamaV2DynamicJob]:
        model, tokenizer = self._generator.model, self._generator.tokenizer
        filters = [ExLlamaV2EngineFilter(model, tokenizer, grammar) for grammar in self._grammars]
        return [self._job(seed, number, self._new_tokens, [each]) for number, each in enumerate(filters)]

    def _free(self, seed: int, lengths: Sequence[int]) -> list[ExLlamaV2DynamicJob]:
        return [self._job(seed, number, length, None) for number, length in enumerate(lengths)]

    def _job(self, seed: int, number: int, tokens: int, filters: list[Any] | None) -> ExLlamaV2DynamicJob:
        settings = ExLlamaV2Sampler.Settings()
        return ExLlamaV2DynamicJob(
            self._prompt, tokens, gen_settings=settings, seed=seed << 20 | number, filters=filters
        )

    def _run(self, jobs: list[ExLlamaV2DynamicJob]) -> Run:
        sent = self._decoder.uploads.bytes
        torch.cuda.synchronize()
        begin = time.perf_counter()
        self._generator.enqueue(jobs)
        while self._generator.num_remaining_jobs():
            self._generator.iterate()
        torch.cuda.synchronize()
        seconds = time.perf_counter() - begin
        return Run(seconds, [job.new_tokens for job in jobs], self._decoder.uploads.bytes - sent)

    def _trace(self) -> list[dict[str, list[float]]]:
        """Microseconds from the first of some steps: the model's pass on the GPU, and masks on the host."""
        with _watched() as seen:
            self._generator.enqueue(self._constrained(99))
            while len(seen) < 2 * _TRACED_STEPS and self._generator.num_remaining_jobs():
                self._generator.iterate()
        self._generator.clear_queue()
        return seen.steps()


class _Watch(list[tuple[Any, Any, float, float]]):
    """Begin and end of passes, as events, and of masks, as seconds."""

    def __init__(self) -> None:
        super().__init__()
        torch.cuda.synchronize()
        self.origin: Any = torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]
        self.origin.record()
        self.origin.synchronize()
        self.start = time.perf_counter()

    def steps(self) -> list[dict[str, list[float]]]:
        torch.cuda.synchronize()
        first = None
        told = []
        for begin, end, masks, masked in self[_TRACED_STEPS:]:
            passed = [self.origin.elapsed_time(event) * 1e3 for event in (begin, end)]
            first = passed[0] if first is None else first
            host = [(moment - self.start) * 1e6 for moment in (masks, masked)]
            told.append({"forward": [t - first for t in passed], "masks": [t - first for t in host]})
        return told


@contextmanager
def _watched() -> Iterator[_Watch]:
    """Notes when passes and masks begin and end."""
    watch, passes = _Watch(), []
    run, constrain = Decoder.run, Pipeline._constrain

    def watched_run(self: Decoder, *args: Any) -> Any:
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))  # type: ignore[no-untyped-call]
        begin.record()
        shape = run(self, *args)
        end.record()
        passes.append((begin, end))
        return shape

    def watched_constrain(self: Pipeline, *args: Any) -> Any:
        begin = time.perf_counter()
        outcomes = constrain(self, *args)
        if passes:
            watch.append((*passes[-1], begin, time.perf_counter()))
        return outcomes

    Decoder.run = watched_run  # type: ignore[method-assign, assignment]
    Pipeline._constrain = watched_constrain  # type: ignore[method-assign, assignment]
    try:
        yield watch
    finally:
        Decoder.run, Pipeline._constrain = run, constrain  # type: ignore[method-assign]
