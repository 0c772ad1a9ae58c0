"""The benchmarks of decoding, prompts and constrained steps, on a tiny model: that they run, not how fast."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch

from constrain.bench import decode, prefill, step
from constrain.bench.random_model import random_model
from constrain.bench.shapes import Shape
from constrain.engine import compile_regex
from constrain.filters.vocabularies import vocabulary_of
from constrain.model import ExLlamaV2, ExLlamaV2Cache
from constrain.tokenizer import ExLlamaV2Tokenizer


@pytest.fixture
def loaded(tiny_shape: Shape, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[ExLlamaV2, ExLlamaV2Tokenizer]:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    return random_model(tiny_shape, tmp_path)


def test_rates_of_decoding(loaded: tuple[ExLlamaV2, ExLlamaV2Tokenizer]) -> None:
    model, tokenizer = loaded
    cache = ExLlamaV2Cache(model, max_seq_len=2 * 256)
    assert decode.step_rate(model, cache, 2, 5, 3) > 0
    assert decode.generator_rate(model, cache, tokenizer, 2, 5, 4) > 0


def test_rates_of_prompts(loaded: tuple[ExLlamaV2, ExLlamaV2Tokenizer]) -> None:
    model, tokenizer = loaded
    cache = ExLlamaV2Cache(model, max_seq_len=2 * 256)
    assert prefill._passes(model, cache, 40) > 0
    assert prefill._generator(model, cache, tokenizer, 40) > 0


def test_passes_of_a_prompt_end_with_logits(
    loaded: tuple[ExLlamaV2, ExLlamaV2Tokenizer], monkeypatch: pytest.MonkeyPatch
) -> None:
    model, _ = loaded
    model.config.max_input_len = 16
    shapes = []
    forward = model.forward
    monkeypatch.setattr(model, "forward", lambda *args, **kwargs: shapes.append(forward(*args, **kwargs)))
    prefill._passes(model, ExLlamaV2Cache(model, max_seq_len=256), 40)
    first, second, last = shapes[:3]
    assert first is None and second is None and last.shape == (1, 1, 96)


def test_figures_of_constrained_steps(
    tiny_shape: Shape, tiny_dir: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(step, "_REPEATS", 1)
    monkeypatch.setattr("gc.freeze", lambda: None)
    model, tokenizer = random_model(replace(tiny_shape, vocab_size=380), tmp_path, tiny_dir)
    grammar = compile_regex("[abc]{1,5}(hello){1,3}", vocabulary_of(tokenizer))
    bench = step._Bench(model, tokenizer, 2, 8, within_budget=True, jump_forward=True)
    figures = bench.compare([grammar] * 3)
    assert figures["jobs"] == 3 and 6 <= figures["tokens"] <= 24
    assert figures["ratio"] > 0 and figures["bytes_per_token"] > 0
