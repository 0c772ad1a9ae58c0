"""Mixtures of experts through a generator."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from tokenizers import Tokenizer, models, pre_tokenizers

from constrain import ExLlamaV2, ExLlamaV2Cache, ExLlamaV2Config, ExLlamaV2Tokenizer
from constrain.generator import ExLlamaV2DynamicGenerator, ExLlamaV2Sampler
from constrain.kernels import router

TOKENS, PROMPTS = 24, 16
# Differences of logits, of tokens or of experts, up to which rounding to 16 bits may change a choice.
MARGIN = 0.01


@pytest.fixture
def folder(checkpoint: Any, tmp_path: Path, request: pytest.FixtureRequest) -> Path:
    """A checkpoint with a tokenizer of a word for each token."""
    copied = Path(shutil.copytree(checkpoint(request.param).folder, tmp_path / "model"))
    size = json.loads((copied / "config.json").read_text())["vocab_size"]
    words = Tokenizer(models.WordLevel({f"t{token}": token for token in range(size)}, unk_token="t0"))
    words.pre_tokenizer = pre_tokenizers.Whitespace()
    words.save(str(copied / "tokenizer.json"))
    return copied


def greedy(folder: Path, prompts: list[torch.Tensor], dtype: torch.dtype) -> tuple[ExLlamaV2, list[list[int]]]:
    """The model, and each prompt with the tokens after it."""
    config = ExLlamaV2Config(folder)
    config.compute_dtype = dtype
    model = ExLlamaV2(config)
    model.load()
    generator = ExLlamaV2DynamicGenerator(
        model, ExLlamaV2Cache(model, max_seq_len=PROMPTS * 256), ExLlamaV2Tokenizer(config), max_batch_size=PROMPTS
    )
    if dtype is not torch.float32:
        assert generator.runtime.runner.has_graphs
    texts = [" ".join(f"t{token}" for token in prompt.tolist()) for prompt in prompts]
    found = generator.generate(texts, max_new_tokens=TOKENS, gen_settings=ExLlamaV2Sampler.Settings.greedy())
    return model, [[int(number) for number in re.findall(r"\d+", text)] for text in found]


def clear_tokens(model: ExLlamaV2, tokens: list[int], prompt: int, monkeypatch: pytest.MonkeyPatch) -> int:
    """Number of tokens up to the first choice, of a token or of experts, that is close."""
    margins = []

    def observed(logits: torch.Tensor, routing: Any, correction: Any = None) -> Any:
        best = logits.topk(routing.chosen + 1, dim=-1).values
        margins.append(best[:, -2] - best[:, -1])
        return route(logits, routing, correction)

    route = router.route
    with monkeypatch.context() as patch:
        patch.setattr(router, "route", observed)
        logits = model.forward(torch.tensor([tokens]))[0]
    best = logits.topk(2).values
    clear = torch.stack(margins).min(dim=0).values > MARGIN
    clear[prompt - 1 :] &= (best[:, 0] - best[:, 1])[prompt - 1 :] > MARGIN * best[:, 0].abs().max()
    return len(tokens) if bool(clear.all()) else max(prompt, int(clear.int().argmin()) + 1)


@pytest.mark.gpu
@pytest.mark.parametrize("folder", ["mixtral_wide", "qwen3_moe_wide"], indirect=True)
def test_the_same_text_on_a_gpu(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In float16; it may only differ after a choice that was close."""
    generator = torch.Generator().manual_seed(0)
    prompts = [torch.randint(3, 99, (5 + number,), generator=generator) for number in range(PROMPTS)]
    with monkeypatch.context() as patch:
        patch.setattr(torch.cuda, "is_available", lambda: False)
        model, expected = greedy(folder, prompts, torch.float32)
        clear = [
            clear_tokens(model, tokens, len(prompt), monkeypatch)
            for tokens, prompt in zip(expected, prompts, strict=True)
        ]
    _, found = greedy(folder, prompts, torch.float16)
    assert sum(tokens == wanted for tokens, wanted in zip(found, expected, strict=True)) >= PROMPTS // 2
    for number, tokens, wanted in zip(clear, found, expected, strict=True):
        assert tokens[:number] == wanted[:number]
