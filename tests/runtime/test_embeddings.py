"""Prompts with indexed embeddings, which may be their last tokens."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from seeing_models import save_seeing_model

from constrain import ExLlamaV2, ExLlamaV2Cache, ExLlamaV2Config, ExLlamaV2Tokenizer
from constrain.errors import GenerationError
from constrain.model import ExLlamaV2MMEmbedding
from constrain.model.embeddings import EMBEDDING_INDEX, ID_ALLOCATOR
from constrain.runtime import Request, Runtime, SamplingParams
from constrain.runtime.model_runner import ModelRunner

Make = Callable[..., Runtime]
SAMPLING = SamplingParams(temperature=2.0, top_k=0, repetition_penalty=1.3)


def rows(model: Any, seed: int) -> ExLlamaV2MMEmbedding:
    generator = torch.Generator().manual_seed(seed)
    return ExLlamaV2MMEmbedding(model, torch.randn(5, model.config.hidden_size, generator=generator))


def request(ids: torch.Tensor, *embeddings: ExLlamaV2MMEmbedding, **options: Any) -> Request:
    return Request([ids], **{"sampling": SAMPLING, "max_new_tokens": 8, **options}, embeddings=embeddings)


@pytest.mark.parametrize("mode", ["synchronous", "asynchronous", "graphs"])
def test_prompts_may_end_in_embeddings(
    make: Make, model: ExLlamaV2, monkeypatch: pytest.MonkeyPatch, mode: str
) -> None:
    first, second = rows(model, 0), rows(model, 1)
    text = torch.randint(3, 350, (1, 270), generator=torch.Generator().manual_seed(0))
    requests = [
        request(torch.cat([text, first.get_ids_tensor()], 1), first),
        request(torch.cat([text, second.get_ids_tensor()], 1), second),
        request(torch.cat([text, second.get_ids_tensor()[:, :1]], 1), second, seed=1),
        request(text),
    ]
    greedy = request(requests[0].prompt[0], first, sampling=SamplingParams(top_k=1), max_new_tokens=1)
    logits = model.forward(greedy.prompt[0], indexed_embeddings=[first])
    assert make().submit(greedy).result().tokens[0].id == int(logits[0, -1, :380].argmax())
    expected = [make().submit(each).result().text for each in requests]
    monkeypatch.setattr(ModelRunner, "has_graphs", property(lambda _: mode == "graphs"))
    runtime = make(8192)
    runtime.runner.is_asynchronous = mode != "synchronous"
    for _ in range(2):  # with an empty prefix cache, and with a full one
        handles = [runtime.submit(each) for each in requests]
        assert [handle.result().text for handle in handles] == expected


def test_ids_of_embeddings_have_no_end(make: Make, model: ExLlamaV2, monkeypatch: pytest.MonkeyPatch) -> None:
    """Those that do not fit in 32 bits, as the runtime keeps tokens on the device, give the same output."""
    text = torch.tensor([[5, 6, 7]])

    def output() -> str:
        block = rows(model, 0)
        return make().submit(request(torch.cat([block.get_ids_tensor(), text], 1), block)).result().text

    expected = output()
    for first in (2**31 - 2, 2**31, 2**32 + 5):
        monkeypatch.setattr(ID_ALLOCATOR, "_next", first)
        assert output() == expected


@pytest.mark.parametrize("family", ["mistral3", "qwen2_5_vl", "gemma3"])
def test_prompts_that_end_within_an_image(family: str, tmp_path_factory: pytest.TempPathFactory) -> None:
    """Models whose positions or attention depend on whole images need the token after it."""
    config = ExLlamaV2Config(save_seeing_model(tmp_path_factory.mktemp(family), family))
    model = ExLlamaV2(config)
    model.load()
    runtime = Runtime(model, ExLlamaV2Cache(model, max_seq_len=512), ExLlamaV2Tokenizer(config))
    image = rows(model, 0)
    image.thw_grid, image.post_tokens = (1, 2, 2), 1
    ids = torch.cat([torch.tensor([[9, 10]]), image.get_ids_tensor()], 1)
    runtime.submit(request(ids, image)).result()
    if family == "mistral3":
        runtime.submit(request(ids[:, :-1], image)).result()
    else:
        with pytest.raises(GenerationError, match="cannot end within an image of this model"):
            runtime.submit(request(ids[:, :-1], image))
    assert ids.max() >= EMBEDDING_INDEX and not runtime.has_work
