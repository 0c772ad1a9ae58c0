"""Batch programs that were written for exllamav2: many jobs, whatever the generator does to be fast."""

from __future__ import annotations

from typing import Any

import pytest
import torch

PROMPTS = ["hello there", "The quick brown fox", "yes, please", '{"name": "Ada"', "it is 2024-05-06"]
MODES: list[dict[str, Any]] = [
    {},
    {"max_batch_size": 1024, "max_q_size": 1},
    {"paged": False},
    {"use_ngram_draft": True, "num_draft_tokens": 3},
    {"draft": True, "num_draft_tokens": 4},
    {"max_chunk_size": 256, "filter_background_eval": False},
]


def generator_of(loaded: Any, mode: dict[str, Any]) -> Any:
    from exllamav2 import ExLlamaV2Cache
    from exllamav2.generator import ExLlamaV2DynamicGenerator

    options = dict(mode)
    if options.pop("draft", False):
        options |= {"draft_model": loaded.model, "draft_cache": ExLlamaV2Cache(loaded.model, max_seq_len=2048)}
    generator = ExLlamaV2DynamicGenerator(
        model=loaded.model, cache=loaded.cache, tokenizer=loaded.tokenizer, some_later_option=1, **options
    )
    generator.warmup()
    return generator


def completions(loaded: Any, mode: dict[str, Any]) -> dict[str, str]:
    """The completion of each prompt, as a program collects them."""
    from exllamav2.generator import ExLlamaV2DynamicJob, ExLlamaV2Sampler

    generator, tokenizer = generator_of(loaded, mode), loaded.tokenizer
    jobs = [
        ExLlamaV2DynamicJob(
            input_ids=tokenizer.encode(prompt, add_bos=True),
            max_new_tokens=24,
            stop_conditions=[tokenizer.eos_token_id],
            gen_settings=ExLlamaV2Sampler.Settings.greedy(),
            identifier=number,
        )
        for number, prompt in enumerate(PROMPTS)
    ]
    assert generator.enqueue(jobs) == [jobs[0].serial_number + i for i in range(len(jobs))]
    texts = dict.fromkeys(jobs, "")
    tokens: dict[Any, list[torch.Tensor]] = {job: [] for job in jobs}
    found = {}
    while generator.num_remaining_jobs():
        for result in generator.iterate():
            job = result["job"]
            assert PROMPTS[result["identifier"]] == PROMPTS[job.identifier]
            if result["stage"] == "streaming":
                texts[job] += result.get("text", "")
                tokens[job].append(result.get("token_ids", torch.empty((1, 0), dtype=torch.long)))
            if result["eos"]:
                prompt = tokenizer.decode(job.sequences[0].input_ids.torch(), decode_special_tokens=True)[0]
                assert prompt == "<s>" + PROMPTS[job.identifier]
                assert texts[job] == result["full_completion"] == job.full_completion and job.is_finished
                assert torch.cat(tokens[job], dim=-1).shape[1] >= result["new_tokens"] - 1
                assert ("accepted_draft_tokens" in result) == (generator.num_draft_tokens > 0)
                found[PROMPTS[job.identifier]] = result["full_completion"]
    return found


@pytest.fixture(scope="module")
def expected(loaded: Any) -> dict[str, str]:
    """Each prompt by itself, through the base generator."""
    from exllamav2.generator import ExLlamaV2BaseGenerator, ExLlamaV2Sampler

    generator = ExLlamaV2BaseGenerator(loaded.model, loaded.cache, loaded.tokenizer)
    settings = ExLlamaV2Sampler.Settings.greedy()
    return {
        prompt: generator.generate_simple(prompt, settings, 24, add_bos=True, completion_only=True)
        for prompt in PROMPTS
    }


@pytest.mark.parametrize("mode", MODES, ids=lambda mode: " ".join(mode) or "plain")
def test_a_batch(loaded: Any, expected: dict[str, str], mode: dict[str, Any]) -> None:
    assert completions(loaded, mode) == expected


@pytest.mark.parametrize("mode", MODES, ids=lambda mode: " ".join(mode) or "plain")
def test_filters_of_a_batch(loaded: Any, mode: dict[str, Any]) -> None:
    from exllamav2.generator.filters import ExLlamaV2PrefixFilter, ExLlamaV2SelectFilter

    generator = generator_of(loaded, mode)
    made = [
        [ExLlamaV2SelectFilter(generator.model, generator.tokenizer, ["yes", "no"], case_insensitive=True)],
        None,
        [ExLlamaV2PrefixFilter(generator.model, generator.tokenizer, ["fox: ", "dog: "])],
    ]
    chosen, free, prefixed = generator.generate(PROMPTS[:3], 16, filters=made, completion_only=True, seed=1)
    assert chosen.lower() in ("yes", "no") and free and prefixed.startswith(("fox: ", "dog: "))
