"""A server that was written for exllamav2 loads a model in a worker thread and serves requests from its event loop."""

from __future__ import annotations

import asyncio
import importlib.metadata
import importlib.util
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch


def load(folder: Path) -> Iterator[Any]:
    """Yields progress, then model, cache and tokenizer."""
    from exllamav2 import ExLlamaV2, ExLlamaV2Cache_Q8, ExLlamaV2Config, ExLlamaV2Tokenizer

    def progress(module: int, modules: int) -> Iterator[tuple[int, int]]:
        yield module, modules

    config = ExLlamaV2Config()
    config.model_dir = str(folder)
    config.max_seq_len = 512
    config.prepare()
    config.max_seq_len = 512
    config.max_input_len = config.max_output_len = 256
    config.max_attention_size = 256**2
    config.scale_pos_emb, config.scale_alpha_value, config.no_flash_attn = 1.0, 1.0, True
    config.arch_compat_overrides()
    assert config.vision_model_type is None
    for name in ("unspecial_piece_to_id", "extended_id_to_piece"):
        setattr(ExLlamaV2Tokenizer, name, {})
    tokenizer = ExLlamaV2Tokenizer(config)
    for name in ("unspecial_piece_to_id", "extended_id_to_piece"):
        delattr(ExLlamaV2Tokenizer, name)
    model = ExLlamaV2(config)
    cache = ExLlamaV2Cache_Q8(model, max_seq_len=1024, lazy=True, batch_size=1)
    yield from model.load_autosplit_gen(cache, reserve_vram=[96], last_id_only=True, callback_gen=progress)
    ids = torch.zeros((1, config.max_input_len), dtype=torch.long)
    model.forward(ids, cache=cache, preprocess_only=True)
    yield model, cache, tokenizer


def next_of(steps: Iterator[Any]) -> Any:
    """The next step, as a worker thread of a server takes it."""
    with torch.inference_mode():
        return next(steps, None)


async def serve(folder: Path) -> list[dict[str, Any]]:
    from exllamav2.generator import ExLlamaV2DynamicGeneratorAsync, ExLlamaV2DynamicJobAsync, ExLlamaV2Sampler

    steps, done = load(folder), []
    while (step := await asyncio.to_thread(next_of, steps)) is not None:
        done.append(step)
    model, cache, tokenizer = done[-1]
    assert done[-2] == (len(model.modules), len(model.modules)) and model.loaded and model.tp_context is None
    generator = ExLlamaV2DynamicGeneratorAsync(
        model=model,
        cache=cache,
        draft_model=None,
        draft_cache=None,
        tokenizer=tokenizer,
        max_batch_size=None,
        paged=True,
    )
    assert generator.generator.max_batch_size >= 1 and not generator.generator.current_loras
    generator.generator.set_loras([])

    async def request(text: str, filters: list[Any]) -> dict[str, Any]:
        settings = ExLlamaV2Sampler.Settings()
        settings.temperature, settings.top_k, settings.min_temp, settings.max_temp = 1.5, 0, 1.0, 1.0
        settings.token_repetition_range = -1
        settings.disallow_tokens(tokenizer, [tokenizer.single_id(" fox")])
        ids = tokenizer.encode(text, add_bos=True, encode_special_tokens=True, embeddings=[])
        job = ExLlamaV2DynamicJobAsync(
            generator,
            input_ids=[ids],
            max_new_tokens=20,
            min_new_tokens=0,
            gen_settings=settings,
            stop_conditions=[tokenizer.eos_token_id, "zzz"],
            decode_special_tokens=True,
            filters=filters,
            filter_prefer_eos=bool(filters),
            return_probs=True,
            return_top_tokens=2,
            return_logits=True,
            banned_strings=[],
            token_healing=True,
            identifier=text,
            embeddings=[],
        )
        last: dict[str, Any] = {}
        async for result in job:
            if result["stage"] == "streaming" and "token_ids" in result:
                settings.token_repetition_range = 8
                assert result["top_k_tokens"].shape[2] == result["top_k_probs"].shape[2] == 2
            last = result
        return last

    from exllamav2.generator.filters import ExLlamaV2SelectFilter

    selects = [[], [ExLlamaV2SelectFilter(model, tokenizer, ["yes", "no"])], []]
    texts = ["hello there, help the lazy dog", "is it so, yes or no?", "The quick brown fox jumps over"]
    results = await asyncio.gather(*(request(text, filters) for text, filters in zip(texts, selects, strict=True)))
    # Again, from the pages that are in the cache now.
    results += await asyncio.gather(*(request(text, []) for text in texts))
    await generator.close()
    model.unload()
    return results


@pytest.mark.usefixtures("alias")
def test_a_server(tiny_dir: Path) -> None:
    assert importlib.util.find_spec("exllamav2") and importlib.metadata.version("exllamav2") >= "0.3.1"
    results = asyncio.run(asyncio.wait_for(serve(tiny_dir), 60))
    assert len(results) == 6
    for result in results:
        assert result["eos"] and result["eos_reason"] in ("stop_token", "stop_string", "max_new_tokens", "end_filter")
        times = [result[name] for name in ("time_enqueued", "time_prefill", "time_generate")]
        assert min(times) >= 0 and result["prompt_tokens"] > 1 and result["new_tokens"] > 0
    assert results[1]["full_completion"] in ("yes", "no") and results[1]["eos_reason"] == "end_filter"
    assert all(result["cached_tokens"] > 0 for result in results[3:])
