"""LoRA: sequences with different adapters run in one runtime, but share neither forward passes nor KV cache pages."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from constrain import ExLlamaV2
from constrain.errors import GenerationError
from constrain.model import ExLlamaV2Lora
from constrain.runtime import Request, Runtime, SamplingParams
from constrain.runtime.model_runner import ModelRunner
from constrain.runtime.sampler.params import UNSHAPED

Make = Callable[..., Runtime]


@pytest.fixture
def loras(model: ExLlamaV2, tmp_path: Path) -> list[ExLlamaV2Lora]:
    """Return two adapters that change the output strongly."""
    made = []
    for number in range(2):
        folder = tmp_path / str(number)
        folder.mkdir()
        random = torch.Generator().manual_seed(number)
        name = f"model.layers.{number}.mlp.down_proj"
        weights = {"A": torch.randn(2, 64, generator=random), "B": torch.randn(32, 2, generator=random)}
        tensors = {f"{name}.lora_{part}.weight": each for part, each in weights.items()}
        save_file(tensors, folder / "adapter_model.safetensors")
        (folder / "adapter_config.json").write_text(json.dumps({"r": 2, "lora_alpha": 2}))
        made.append(ExLlamaV2Lora.from_directory(model, folder))
    return made


def asked(loras: tuple[ExLlamaV2Lora, ...], seed: int) -> Request:
    ids = torch.randint(3, 350, (1, 300), generator=torch.Generator().manual_seed(seed))
    return Request([ids], SamplingParams(temperature=2.0, top_k=0), seed=seed, max_new_tokens=12, loras=loras)


@pytest.mark.parametrize("mode", ["synchronous", "asynchronous", "graphs"])
def test_each_sequence_is_as_if_it_were_alone(
    make: Make, loras: list[ExLlamaV2Lora], monkeypatch: pytest.MonkeyPatch, mode: str
) -> None:
    groups: list[tuple[ExLlamaV2Lora, ...]] = [(), (loras[0],), (loras[1],), tuple(loras)]
    expected = {(g, s): make().submit(asked(groups[g], s)).result().text for g in range(4) for s in range(2)}
    # The same prompt and seed give a different output under each adapter.
    assert len(set(expected.values())) == 8
    monkeypatch.setattr(ModelRunner, "has_graphs", property(lambda _: mode == "graphs"))
    runtime = make(8192)
    runtime.runner.is_asynchronous = mode != "synchronous"
    used: list[tuple[ExLlamaV2Lora, ...]] = []
    decode = runtime.runner.decode
    monkeypatch.setattr(runtime.runner, "decode", lambda rows, loras, *rest: used.append(loras) or decode(rows, loras))
    handles = {key: runtime.submit(asked(groups[key[0]], key[1])) for key in expected}
    assert {key: handle.result().text for key, handle in handles.items()} == expected
    # The scheduler alternates between adapters, and none starves once the prompts of all have been computed.
    start = max(used.index(group) for group in groups)
    assert used[start : start + 4] == used[start + 4 : start + 8] and set(used[start : start + 4]) == set(groups)


def test_prefixes_of_other_adapters_are_not_reused(make: Make, loras: list[ExLlamaV2Lora]) -> None:
    runtime = make()
    for each, cached in (((), 0), ((), 299), ((loras[0],), 0), ((loras[0],), 299), ((loras[1],), 0), ((), 299)):
        handle = runtime.submit(asked(each, 0))
        handle.result()
        assert handle.sequence.rows[0].cached_tokens == cached


def test_all_of_many_adapters_count_for_the_prefix_cache(make: Make, loras: list[ExLlamaV2Lora]) -> None:
    runtime, (first, second) = make(), loras
    for last, cached in ((first, 0), (second, 0), (second, 299)):
        handle = runtime.submit(asked((first,) * 8 + (last,), 0))
        handle.result()
        assert handle.sequence.rows[0].cached_tokens == cached


@pytest.mark.parametrize("is_faithful", [False, True])
@pytest.mark.parametrize("steps", [0, 1, 4])
def test_unloading_an_adapter_ends_its_requests(
    make: Make, loras: list[ExLlamaV2Lora], steps: int, is_faithful: bool
) -> None:
    """Before the prompt has been computed, in the middle of it, and of the output; other requests go on."""
    expected = make().submit(asked((loras[1],), 1)).result().text
    runtime = make(8192, max_chunk_size=256)
    ended, going = runtime.submit(asked((loras[0],), 0)), runtime.submit(asked((loras[1],), 1))
    if is_faithful:
        ended.cancel()
        ended = runtime.submit(replace(asked((loras[0],), 0), sampling=UNSHAPED, faithful=True, particles=2))
    for _ in range(steps):
        runtime.step()
    loras[0].unload()
    with pytest.raises(GenerationError, match="has been unloaded; load it again"):
        ended.result()
    assert going.result().text == expected and not runtime.has_work
    with pytest.raises(GenerationError, match="has been unloaded; load it again"):
        runtime.submit(asked((loras[0],), 0))
    assert not any(page.users for page in runtime.allocator.pages)
