"""Requests on a model whose layers are split over devices have the outputs that they have on one."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from request_kinds import EOS, WIDTH
from split_models import GPUS, check_graphs, sharded_model

from constrain import ExLlamaV2, ExLlamaV2Cache, ExLlamaV2Cache_Q8, ExLlamaV2Tokenizer
from constrain.filters import ExLlamaV2RegexFilter, combine
from constrain.model import ExLlamaV2Cache_TP, ExLlamaV2CacheBase, ExLlamaV2MMEmbedding
from constrain.runtime import Request, Runtime, SamplingParams
from constrain.runtime.model_runner import ModelRunner
from constrain.runtime.speculative.draft_model import DraftModel
from constrain.runtime.speculative.ngram import NgramProposer

PROMPTS = [[5, 6, 7], [9, 30, 5, 6, 7, 5, 6], [100, 101] * 140]


#: Names of one device, to torch, and of several that have copies of their own, to a model.
DEVICES = ["cpu", "cpu:0", "cpu:1", "cpu:2"]


def load_split(tiny_dir: Path, devices: list[str]) -> ExLlamaV2:
    """Load the tiny model, of four heads of keys and values."""
    return sharded_model(tiny_dir, devices, max_seq_len=4096, no_graphs=True)


def outputs(runtime: Runtime, embedding: ExLlamaV2MMEmbedding, **options: Any) -> list[list[int]]:
    """Return the tokens of requests that run together: plain, constrained, random, of embeddings."""
    tokenizer = runtime.tokenizer
    given = {"sampling": SamplingParams(), "stop_tokens": frozenset([EOS]), "max_new_tokens": 24, **options}
    constraint = combine([ExLlamaV2RegexFilter(runtime.model, tokenizer, "(he|yes)+[0-9]{3}")], tokenizer, WIDTH)
    requests = [
        *(Request([torch.tensor([prompt])], **given) for prompt in PROMPTS),
        Request([torch.tensor([PROMPTS[0]])], constraint=constraint, **given),
        Request(
            [torch.tensor([PROMPTS[1]])], **{**given, "sampling": SamplingParams(temperature=2.0, top_k=0)}, seed=3
        ),
        Request(
            [torch.cat((embedding.get_ids_tensor(), torch.tensor([[5]])), dim=1)], embeddings=(embedding,), **given
        ),
    ]
    handles = [runtime.submit(each) for each in requests]
    for handle in handles:
        handle.result()
    return [handle.sequence.rows[0].tokens() for handle in handles]


def embedding_of(model: ExLlamaV2) -> ExLlamaV2MMEmbedding:
    return ExLlamaV2MMEmbedding(model, torch.randn(5, 32, generator=torch.Generator().manual_seed(4)))


@pytest.mark.parametrize("devices", [["cpu"] * 2, DEVICES[:1], DEVICES[:3], DEVICES])
@pytest.mark.parametrize(("base", "graphed"), [(ExLlamaV2Cache, True), (ExLlamaV2Cache_Q8, False)])
def test_requests_have_the_same_outputs(
    model: ExLlamaV2,
    tiny_dir: Path,
    tokenizer: ExLlamaV2Tokenizer,
    devices: list[str],
    monkeypatch: pytest.MonkeyPatch,
    base: type[ExLlamaV2CacheBase],
    graphed: bool,
) -> None:
    monkeypatch.setattr(ModelRunner, "has_graphs", graphed)
    sharded, embedding = load_split(tiny_dir, devices), embedding_of(model)
    expected = outputs(Runtime(model, base(model, max_seq_len=4096), tokenizer), embedding)
    cache = ExLlamaV2Cache_TP(sharded, base=base, max_seq_len=4096)
    assert outputs(Runtime(sharded, cache, tokenizer), embedding) == expected


@pytest.mark.parametrize("draft", ["n-grams", "model"])
def test_drafts_change_nothing(model: ExLlamaV2, tiny_dir: Path, tokenizer: ExLlamaV2Tokenizer, draft: str) -> None:
    sharded, embedding = load_split(tiny_dir, DEVICES[:3]), embedding_of(model)
    expected = outputs(Runtime(model, ExLlamaV2Cache(model, max_seq_len=4096), tokenizer), embedding)
    cache = ExLlamaV2Cache_TP(sharded, max_seq_len=4096)
    proposer: Any = NgramProposer(2, 3)
    if draft == "model":
        proposer = DraftModel(sharded, ExLlamaV2Cache_TP(sharded, max_seq_len=4096), 256, WIDTH, 3)
    runtime = Runtime(sharded, cache, tokenizer, proposer=proposer)
    assert outputs(runtime, embedding) == expected


@pytest.mark.parametrize("name", ["gemma3", "mixtral", "deepseek_v3", "phi3"])
def test_graphs_compute_what_one_device_does(checkpoint: Callable[[str], Any], name: str) -> None:
    model = sharded_model(checkpoint(name).folder, DEVICES[:3])
    check_graphs(model, checkpoint(name).load(), 1e-5)


@pytest.mark.gpu
@pytest.mark.parametrize("devices", GPUS)
@pytest.mark.parametrize("name", ["mistral", "qwen3", "gemma3", "mixtral", "gpt_oss", "deepseek_v3"])
def test_graphs_on_gpus(checkpoint: Callable[[str], Any], name: str, devices: list[str]) -> None:
    settings = {"compute_dtype": torch.float16}
    model = sharded_model(checkpoint(name).folder, devices, **settings)
    assert model.capturable
    check_graphs(model, checkpoint(name).load(**settings), 0.1)


@pytest.mark.gpu
@pytest.mark.parametrize("devices", GPUS)
def test_requests_on_gpus(tiny_dir: Path, tokenizer: ExLlamaV2Tokenizer, devices: list[str]) -> None:
    """Sampling is recorded too, with a head that is split."""
    settings = {"max_seq_len": 4096, "compute_dtype": torch.float32}
    models = [sharded_model(tiny_dir, used, **settings) for used in (devices, devices[:1])]
    embedding, texts = embedding_of(models[0]), []
    for model in models:
        runtime = Runtime(model, ExLlamaV2Cache_TP(model, max_seq_len=4096), tokenizer)
        texts.append(outputs(runtime, embedding))
    assert texts[0] == texts[1]
