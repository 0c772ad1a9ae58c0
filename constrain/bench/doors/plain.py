"""The baseline of all doors: the dynamic generator with default settings."""

from __future__ import annotations

import time
from collections.abc import Callable

from constrain.bench.doors.lab import Lab, Run
from constrain.generator import ExLlamaV2DynamicGenerator, ExLlamaV2DynamicJob
from constrain.model import ExLlamaV2Cache, ExLlamaV2CacheBase


class Dynamic:
    """Measures full batches of jobs on a dynamic generator.

    Attributes:
        generator: the generator.
        batch: number of jobs.
    """

    def __init__(self, generator: ExLlamaV2DynamicGenerator, batch: int) -> None:
        self.generator, self.batch = generator, batch

    def rate(self, make_job: Callable[[int], ExLlamaV2DynamicJob]) -> float:
        """Return tokens per second of all jobs together, from when each has a token until the first job finishes."""
        jobs = [make_job(number) for number in range(self.batch)]
        self.generator.enqueue(jobs)
        try:
            while min(job.new_tokens for job in jobs) <= 0:
                self._step()
            begin, first = time.perf_counter(), _count(jobs)
            while not any(job.is_finished for job in jobs):
                self._step()
            return (_count(jobs) - first) / (time.perf_counter() - begin)
        finally:
            self.generator.clear_queue()

    def _step(self) -> None:
        for result in self.generator.iterate():
            if "exception" in result:
                raise result["exception"]


def _count(jobs: list[ExLlamaV2DynamicJob]) -> int:
    return sum(job.new_tokens for job in jobs)


class PlainRates:
    """Dynamic generators over one model, one for each batch size and cache type, and their plain rates."""

    def __init__(self, lab: Lab) -> None:
        self._lab = lab
        self._made: dict[tuple[int, type[ExLlamaV2CacheBase]], Dynamic] = {}

    def dynamic(self, batch: int, cache_type: type[ExLlamaV2CacheBase] = ExLlamaV2Cache) -> Dynamic:
        """Return the warmed-up generator for a batch size."""
        key = batch, cache_type
        if key not in self._made:
            lab = self._lab
            cache = cache_type(lab.model, max_seq_len=lab.positions(batch))
            generator = ExLlamaV2DynamicGenerator(lab.model, cache, lab.tokenizer, max_batch_size=batch)
            self._made[key] = Dynamic(generator, batch)
            self._made[key].rate(lab.job)
        return self._made[key]

    def run(self, batch: int) -> Run:
        """Return a run with default settings."""
        dynamic = self.dynamic(batch)
        return lambda: dynamic.rate(self._lab.job)
