"""The dynamic generator: pages of the KV cache, which prompts share and reuse."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from dynamic_jobs import (
    GREEDY,
    Make,
    ids,
    last,
    piece_ids,
    reference,
    run,
    streamed,
)

from constrain.errors import GenerationError
from constrain.generator import (
    ExLlamaV2DynamicGenerator,
    ExLlamaV2DynamicJob,
    ExLlamaV2Sampler,
)


def prefilled(generator: ExLlamaV2DynamicGenerator, prompt: torch.Tensor) -> tuple[dict[str, Any], list[int]]:
    """The last result for a prompt, and the progress that was reported for it."""
    job = ExLlamaV2DynamicJob(prompt, 4, gen_settings=GREEDY)
    generator.enqueue(job)
    results = run(generator)
    return last(results, job), [result["curr_progress"] for result in results if result["stage"] == "prefill"]


def test_a_prompt_is_computed_once(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    generator = make()
    prompt = ids(1, 600)
    passes: list[int] = []
    for name in ("prefill", "decode"):
        run = getattr(generator.runtime.runner, name)
        monkeypatch.setattr(
            generator.runtime.runner,
            name,
            lambda rows, *rest, run=run: passes.append(len(rows[0].ids)) or run(rows, *rest),
        )
    first, progress = prefilled(generator, prompt)
    assert first["cached_tokens"] == 0 and progress == [512, 599][-len(progress) :]
    passes.clear()
    again, _ = prefilled(generator, prompt)
    assert again["cached_tokens"] == 599 and again["cached_pages"] == 2
    assert passes == [1] * 4
    assert again["full_completion"] == first["full_completion"]
    changed = prompt.clone()
    changed[0, 550:] = 349 + 3 - changed[0, 550:]
    result, _ = prefilled(generator, changed)
    assert result["cached_tokens"] == 550
    assert result["full_completion"] == prefilled(make(), changed)[0]["full_completion"]


def test_a_prompt_of_whole_pages_is_not_even_copied(generator: ExLlamaV2DynamicGenerator) -> None:
    prompt = ids(1, 257)
    assert prefilled(generator, prompt)[1] == [256]
    again, progress = prefilled(generator, prompt)
    assert again["cached_pages"] == 1 and again["cached_tokens"] == 256 and progress == []


def test_long_prompts_go_through_in_parts(make: Make) -> None:
    generator = make(max_chunk_size=256)
    job = ExLlamaV2DynamicJob(ids(1, 700), 4, gen_settings=GREEDY)
    running = ExLlamaV2DynamicJob(ids(2, 5), 9, gen_settings=GREEDY)
    generator.enqueue([running, job])
    calls = [generator.iterate() for _ in range(4)]
    progress = [
        [(r["curr_progress"], r["max_progress"]) for r in c if r["job"] is job and "curr_progress" in r] for c in calls
    ]
    assert progress == [[], [(256, 699)], [(512, 699)], [(699, 699)]], "no chunk ends within a page"
    assert [sum(r["job"] is job and r["stage"] == "streaming" for r in call) for call in calls] == [0, 0, 0, 1]
    assert [sum(r["job"] is running and r["stage"] == "streaming" for r in call) for call in calls] == [1, 1, 1, 1]
    assert streamed([r for c in calls for r in c] + run(generator), job) == reference(generator, ids(1, 700), 4)


def test_prompts_in_the_queue_share_pages(generator: ExLlamaV2DynamicGenerator) -> None:
    jobs = [ExLlamaV2DynamicJob(ids(1, 520), 4, gen_settings=GREEDY) for _ in range(3)]
    generator.enqueue(jobs)
    results = run(generator)
    assert [last(results, job)["cached_pages"] for job in jobs] == [0, 2, 2]
    texts = {last(results, job)["full_completion"] for job in jobs}
    assert len(texts) == 1


def test_what_was_generated_is_reused(generator: ExLlamaV2DynamicGenerator) -> None:
    prompt = ids(1, 250)
    job = ExLlamaV2DynamicJob(prompt, 40, gen_settings=GREEDY)
    generator.enqueue(job)
    answer = torch.tensor([streamed(run(generator), job)])
    follow_up = torch.cat([prompt, answer, ids(2, 10)], dim=1)
    result, _ = prefilled(generator, follow_up)
    assert result["cached_tokens"] == 289
    assert result["full_completion"] == generator.tokenizer.decode(torch.tensor(reference(generator, follow_up, 4)))


def test_what_was_taken_back_is_not_reused(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("constrain.generator.dynamic.PAGED_PAGE_SIZE", 4)
    generator, fresh = make(256), make(256)
    y, he = piece_ids(generator, "y", "he")
    bias = torch.zeros(384)
    bias[y], bias[he] = 2e3, 1e3
    settings = ExLlamaV2Sampler.Settings.greedy(token_bias=bias, cfg_scale=1.0)
    prompts = [ids(1, 12), ids(2, 5)]
    job = ExLlamaV2DynamicJob(prompts, 9, gen_settings=settings, banned_strings=["yyyy"])
    generator.enqueue(job)
    run(generator)
    assert job.full_completion == "he" * 6 + "yyy"
    for prompt in prompts:
        # The tokens before the rewind, and one more.
        tried = torch.cat([prompt, torch.tensor([[y, y, y, he]])], dim=1)
        assert prefilled(generator, tried)[0]["full_completion"] == prefilled(fresh, tried)[0]["full_completion"]
        assert prefilled(generator, tried)[0]["cached_tokens"] >= prompt.shape[1]


def test_without_pages_the_last_prompt_is_reused(make: Make) -> None:
    generator = make(1024, paged=False)
    prompt = ids(1, 600)
    first, _ = prefilled(generator, prompt)
    again, _ = prefilled(generator, prompt)
    assert again["cached_tokens"] == 599 and again["full_completion"] == first["full_completion"]
    jobs = [ExLlamaV2DynamicJob(prompt, 4), ExLlamaV2DynamicJob(prompt, 4)]
    generator.enqueue(jobs)
    generator.iterate()
    assert generator.active_jobs == jobs[:1] and generator.pending_jobs == jobs[1:]
    assert run(generator)[-1]["job"] is jobs[1]


def test_adapters_make_cached_pages_worthless(generator: ExLlamaV2DynamicGenerator) -> None:
    assert generator.current_loras is None
    prompt = ids(1, 300)
    prefilled(generator, prompt)
    generator.set_loras(None)
    assert generator.current_loras == []
    assert prefilled(generator, prompt)[0]["cached_tokens"] == 0
    generator.enqueue(ExLlamaV2DynamicJob(prompt, 4))
    with pytest.raises(GenerationError, match="while there are jobs"):
        generator.set_loras([])
    generator.clear_queue()
    generator.reset_page_table()
    assert prefilled(generator, prompt)[0]["cached_tokens"] == 0
