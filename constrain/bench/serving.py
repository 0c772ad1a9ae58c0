"""Throughput of the server, relative to ``LLM.generate_many`` in the same run."""

from __future__ import annotations

import gc
import json
import math
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import uvicorn

from constrain.bench.device import conditions
from constrain.bench.random_model import random_model_of
from constrain.bench.shapes import Shape
from constrain.completion import Completion
from constrain.llm import LLM
from constrain.model import ExLlamaV2Cache
from constrain.runtime import Runtime
from constrain.runtime.page_allocator import PAGED_PAGE_SIZE
from constrain.serve import Models, ServerSettings, create_app
from constrain.serve.protocol.completions import CompletionRequest
from constrain.serve.sampling import make_options

_NAME = "measured"
#: Room for the prompt of a completion, in tokens.
_PROMPT = 64


def random_llm(shape: Shape, tokenizer_dir: Path, *, streams: int, tokens: int) -> LLM:
    """Return a model with random weights, whose cache holds ``streams`` streams of ``tokens`` tokens each.

    Args:
        shape: of the model; its vocabulary is that of the tokenizer.
        tokenizer_dir: has a ``tokenizer.json``.
        streams: streams at a time.
        tokens: tokens of a completion.
    """
    model, tokenizer = random_model_of(tokenizer_dir, shape)
    pages = streams * math.ceil((_PROMPT + tokens) / PAGED_PAGE_SIZE)
    cache = ExLlamaV2Cache(model, max_seq_len=pages * PAGED_PAGE_SIZE)
    return LLM(Runtime(model, cache, tokenizer, max_batch_size=streams))


def measure_serving(
    llm: LLM, *, streams: int = 32, requests: int = 128, tokens: int = 128, repeats: int = 3
) -> dict[str, Any]:
    """Measure how many tokens per second clients of a server receive, who stream their completions.

    The clients are in a process of their own.

    Args:
        llm: the model.
        streams: streams at a time.
        requests: number of completions.
        tokens: tokens of each.
        repeats: runs, in turns with runs of ``generate_many`` on the same prompts.

    Returns:
        ``rate`` of the server and ``plain`` rate of ``generate_many``, in tokens per second, and their ``ratio``:
        medians, and all ``ratios``; ``processor_ratio`` is that of tokens per second of processor time, without the
        clients, which a busy machine changes less.
    """
    models = Models.of({_NAME: llm})
    bodies = [_body(llm, number, tokens) for number in range(requests)]
    runs = {name: _Runs() for name in ("plain", "server")}
    with _running(models) as port:
        rates = {"plain": partial(_plain_rate, llm, models), "server": partial(_server_rate, port, streams)}
        for rate in rates.values():
            rate(bodies[:streams])
        gc.collect()
        gc.freeze()  # as the command of the server does
        for number in range(repeats):
            for name in runs if number % 2 == 0 else reversed(runs):
                runs[name].add(partial(rates[name], bodies))
    plain, server = runs.values()
    ratios = [of_server / of_plain for of_plain, of_server in zip(plain.rates, server.rates, strict=True)]
    return conditions() | {
        "streams": streams,
        "requests": requests,
        "tokens": tokens,
        "rate": statistics.median(server.rates),
        "plain": statistics.median(plain.rates),
        "ratio": statistics.median(ratios),
        "ratios": ratios,
        "processor_ratio": statistics.median(plain.seconds) / statistics.median(server.seconds),
    }


@dataclass
class _Runs:
    """Tokens per second of some runs, and the processor time that this process took for each."""

    rates: list[float] = field(default_factory=list)
    seconds: list[float] = field(default_factory=list)

    def add(self, run: Callable[[], float]) -> None:
        begin = time.process_time()
        self.rates.append(run())
        self.seconds.append(time.process_time() - begin)


def _body(llm: LLM, number: int, tokens: int) -> dict[str, Any]:
    """Return a request that does not end before its limit."""
    ends = {str(token): -100 for token in Models.of({_NAME: llm}).by_name[_NAME].vocabulary.eos_token_ids}
    asked = {"model": _NAME, "prompt": f"{number}. Once upon a time", "max_tokens": tokens, "seed": number}
    return {**asked, "logit_bias": ends, "stream": True, "stream_options": {"include_usage": True}}


@contextmanager
def _running(models: Models) -> Iterator[int]:
    """Run a server on a thread; yields its port."""
    app = create_app(models, ServerSettings())
    server = uvicorn.Server(uvicorn.Config(app, port=0, log_level="warning"))
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    while not server.started:
        time.sleep(0.01)
    try:
        yield server.servers[0].sockets[0].getsockname()[1]
    finally:
        server.should_exit = True
        thread.join()


def _plain_rate(llm: LLM, models: Models, bodies: list[dict[str, Any]]) -> float:
    request = CompletionRequest.model_validate(bodies[0])
    settings = make_options(request, models.by_name[_NAME], request.max_tokens).settings
    prompts = [body["prompt"] for body in bodies]
    start = time.perf_counter()
    found = list(llm.generate_many(prompts, settings=settings, max_new_tokens=request.max_tokens or 1, seed=0))
    seconds = time.perf_counter() - start
    return sum(len(each.tokens) for each in found if isinstance(each, Completion)) / seconds


def _server_rate(port: int, streams: int, bodies: list[dict[str, Any]]) -> float:
    """Return the tokens per second that clients in another process receive."""
    given = json.dumps({"port": port, "streams": streams, "bodies": bodies})
    command = [sys.executable, "-m", "constrain.bench.serving_clients"]
    run = subprocess.run(command, input=given, capture_output=True, text=True, check=True)
    return float(run.stdout)
