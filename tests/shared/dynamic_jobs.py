"""Jobs of the dynamic generator: prompts, settings, and what comes of them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from constrain.generator import (
    ExLlamaV2DynamicGenerator,
    ExLlamaV2DynamicJob,
    ExLlamaV2PostSamplingResult,
    ExLlamaV2Sampler,
)

EOS = 1
GREEDY = ExLlamaV2Sampler.Settings.greedy()
RANDOM = ExLlamaV2Sampler.Settings(temperature=2.0, top_k=0, top_p=0.0)
PROMPT = "hello there, the quick brown"
Make = Callable[..., ExLlamaV2DynamicGenerator]


def encode(generator: ExLlamaV2DynamicGenerator, text: str) -> torch.Tensor:
    ids: torch.Tensor = generator.tokenizer.encode(text)
    return ids


def ids(seed: int, count: int) -> torch.Tensor:
    """Random tokens of text."""
    return torch.randint(3, 350, (1, count), generator=torch.Generator().manual_seed(seed))


def run(generator: ExLlamaV2DynamicGenerator) -> list[dict[str, Any]]:
    results = []
    while generator.num_remaining_jobs():
        results += generator.iterate()
    return results


def forcing(tokens: list[int]) -> ExLlamaV2Sampler.Settings:
    """Settings whose hook puts the given tokens in place of those sampled."""
    given = iter(tokens)

    def hook(result: ExLlamaV2PostSamplingResult) -> None:
        result.sampled_token = torch.tensor([[next(given)]])

    return ExLlamaV2Sampler.Settings.greedy(post_sampling_hooks=[hook])


def reference(generator: ExLlamaV2DynamicGenerator, prompt: torch.Tensor, count: int) -> list[int]:
    """Greedy continuation without a cache."""
    sequence: list[int] = prompt[0].tolist()
    for _ in range(count):
        sequence.append(int(generator.model.forward(torch.tensor([sequence]))[0, -1, :380].argmax()))
    return sequence[prompt.shape[1] :]


def last(results: list[dict[str, Any]], job: ExLlamaV2DynamicJob) -> dict[str, Any]:
    return next(result for result in results if result["job"] is job and result["eos"])


def streamed(results: list[dict[str, Any]], job: ExLlamaV2DynamicJob) -> list[int]:
    """All tokens that were reported for a job."""
    return [t for r in results if r["job"] is job and "token_ids" in r for t in r["token_ids"][0].tolist()]


def piece_ids(generator: ExLlamaV2DynamicGenerator, *pieces: str) -> list[int]:
    return [generator.tokenizer.get_id_to_piece_list().index(piece) for piece in pieces]
