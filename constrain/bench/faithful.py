"""Cost of faithful sampling, relative to as many independent outputs of masked sampling."""

from __future__ import annotations

import statistics
import time
from typing import Any

import torch

from constrain.bench.device import conditions, synchronize
from constrain.llm import LLM

_PROMPT = "Order 4711 of Ada Lovelace, 3 May 2024: two lamps, 120.00 EUR."
_CASES: dict[str, dict[str, Any]] = {
    "choice": {"choices": ["paid", "open", "cancelled", "not stated"]},
    "date": {"regex": r"20\d\d-(0[1-9]|1[0-2])-(0[1-9]|[12]\d|3[01])"},
    "words": {"regex": "[a-z]{1,8}( [a-z]{1,8}){3,5}"},
    "record": {
        "json_schema": {
            "type": "object",
            "properties": {
                "name": {"type": "string", "maxLength": 16},
                "kind": {"enum": ["order", "invoice", "offer"]},
                "count": {"type": "integer", "minimum": 0, "maximum": 999},
            },
            "required": ["name", "kind", "count"],
            "additionalProperties": False,
        }
    },
}
_MASKED: dict[str, Any] = {"temperature": 1.0, "top_k": 0, "top_p": 0.0}


def measure_faithful(llm: LLM, *, outputs: int = 64, repeats: int = 3, max_new_tokens: int = 64) -> dict[str, Any]:
    """Measure faithful sampling and, in turns with it, as many independent outputs at temperature 1.

    Args:
        llm: the model; as many outputs have to fit in a batch.
        outputs: number of outputs.
        repeats: runs of each kind for each constraint, with different seeds. The prompt is cached before the first.
        max_new_tokens: maximum number of tokens of an output.

    Returns:
        ``ratio`` of the times of all constraints together, ``token_ratio`` of the times per token, and ``cases``: for
        each constraint the ratios, and for both kinds the median ``seconds`` and ``tokens`` of a run. Tokens are all
        that were sampled, also those of particles that did not go on. Without a GPU, the seconds are those of all
        threads on a processor.
    """
    cases = [
        {"name": name} | _measure(llm, options | {"n": outputs, "max_new_tokens": max_new_tokens}, repeats)
        for name, options in _CASES.items()
    ]
    sums = {
        key: {kind: sum(case[kind][key] for case in cases) for kind in ("masked", "faithful")}
        for key in ("seconds", "tokens")
    }
    return conditions() | {"outputs": outputs} | _ratios(sums["seconds"], sums["tokens"]) | {"cases": cases}


def _measure(llm: LLM, options: dict[str, Any], repeats: int) -> dict[str, Any]:
    found: dict[str, list[tuple[float, int]]] = {"masked": [], "faithful": []}
    for seed in range(-1, repeats):  # the first run warms up
        for kind, settings in (("masked", _MASKED), ("faithful", {"faithful": True})):
            run = _run(llm, options | settings | {"seed": seed * options["n"]})
            if seed >= 0:
                found[kind].append(run)
    seconds = {kind: statistics.median(run[0] for run in runs) for kind, runs in found.items()}
    tokens = {kind: statistics.median(run[1] for run in runs) for kind, runs in found.items()}
    runs = {kind: {"seconds": seconds[kind], "tokens": tokens[kind]} for kind in found}
    return _ratios(seconds, tokens) | runs


def _ratios(seconds: dict[str, float], tokens: dict[str, float]) -> dict[str, float]:
    ratio = seconds["faithful"] / seconds["masked"]
    return {"ratio": ratio, "token_ratio": ratio * tokens["masked"] / tokens["faithful"]}


def _run(llm: LLM, options: dict[str, Any]) -> tuple[float, int]:
    """Return the seconds of a run, and the number of tokens that it sampled."""
    # Other programs take time from a run, but not from the processor time of this process.
    clock = time.perf_counter if torch.cuda.is_available() else time.process_time
    loop = llm.runtime.decode_loop
    before, start = loop.num_tokens, clock()
    llm.generate(_PROMPT, **options)
    synchronize()
    return clock() - start, loop.num_tokens - before
