"""Cost of confidence: throughput of extraction with it, relative to that without."""

from __future__ import annotations

import statistics
import time
from typing import Any

import torch

from constrain.bench.device import conditions
from constrain.completion import Failure, PendingResult, run_many
from constrain.demo.synth import Example, Split, example
from constrain.extract import Extraction, Target
from constrain.llm import LLM

_MAX_NEW_TOKENS = 400


def measure_confidence(llm: LLM, *, documents: int = 64, repeats: int = 5) -> dict[str, Any]:
    """Measure how many tokens of records per second an extraction writes, with confidence and without.

    Args:
        llm: the model.
        documents: number of documents, each with a schema of its own.
        repeats: runs with confidence, in turns with runs without. The prompts are cached before the first.

    Returns:
        ``rate`` with confidence and ``plain`` rate without, in tokens per second, and their ``ratio``: medians, and all
        ``ratios``. Without a GPU, the seconds are those of all threads on a processor.
    """
    examples = [example(0, Split.FAMILIES, number) for number in range(documents)]
    # Other programs take time from a run, but not from the processor time of this process.
    clock = time.perf_counter if torch.cuda.is_available() else time.process_time
    targets = [Target.of(each.schema) for each in examples]

    def rate(confidence: bool) -> float:
        def submit(number: int, each: Example) -> PendingResult[Extraction[Any]]:
            options: Any = {"max_new_tokens": _MAX_NEW_TOKENS, "confidence": confidence}
            return llm.extractor.submitter(targets[number], **options)(number, each.text)

        start = clock()
        found = list(run_many(llm.runtime, submit, examples))
        seconds = clock() - start
        return sum(len(each.tokens) for each in found if not isinstance(each, Failure)) / seconds

    rate(False), rate(True)
    plain, rates = [], []
    for _ in range(repeats):
        plain.append(rate(False))
        rates.append(rate(True))
    ratios = [one / other for one, other in zip(rates, plain, strict=True)]
    found = {"rate": statistics.median(rates), "plain": statistics.median(plain), "ratio": statistics.median(ratios)}
    return conditions() | {"documents": documents} | found | {"ratios": ratios}
