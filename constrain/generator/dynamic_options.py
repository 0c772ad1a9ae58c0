"""Validation of the arguments of a dynamic generator, and those of each prompt."""

from __future__ import annotations

from typing import Any, Protocol, TypeAlias

from constrain.arguments import check_count
from constrain.errors import GenerationError
from constrain.model import ExLlamaV2, ExLlamaV2CacheBase

#: A prompt, or under guidance a pair: with the condition and without it.
Prompt: TypeAlias = str | tuple[str, str]


class Limited(Protocol):
    """The attributes of a dynamic generator that have to fit each other."""

    model: ExLlamaV2
    cache: ExLlamaV2CacheBase
    draft_model: ExLlamaV2 | None
    draft_cache: ExLlamaV2CacheBase | None
    max_batch_size: int
    max_seq_len: int
    max_chunk_size: int
    max_total_tokens: int
    page_size: int
    num_draft_tokens: int


def check_limits(generator: Limited, max_q_size: int, use_ngram_draft: bool, paged: bool) -> None:
    """Raise :class:`GenerationError` if the arguments of a new generator contradict each other."""
    config, draft, rows = generator.model.config, generator.draft_model, generator.max_batch_size
    room = max(max_q_size, config.max_batch_size * config.max_input_len)
    problems = {
        f"max_batch_size={rows} times max_q_size={max_q_size} is more than a pass takes, {room} tokens": (
            rows * max_q_size > room
        ),
        f"max_seq_len={generator.max_seq_len} is more than the model takes, {config.max_seq_len}": (
            generator.max_seq_len > config.max_seq_len
        ),
        f"max_chunk_size={generator.max_chunk_size} must be a multiple of {generator.page_size}": (
            paged and generator.max_chunk_size % generator.page_size != 0
        ),
        f"num_draft_tokens={generator.num_draft_tokens} is more than max_q_size={max_q_size}": (
            generator.num_draft_tokens > max_q_size
        ),
        "a draft model needs a draft cache, and a draft cache a draft model": (
            (draft is None) != (generator.draft_cache is None)
        ),
        "use_ngram_draft and draft_model exclude each other": use_ngram_draft and draft is not None,
        "the draft model takes shorter sequences than the model": (
            draft is not None and draft.config.max_seq_len < config.max_seq_len
        ),
    }
    for cache in filter(None, (generator.cache, generator.draft_cache)):
        problems[
            f"the cache must have batch_size=1, and max_seq_len a multiple of {generator.page_size} that all caches "
            f"share, not batch_size={cache.batch_size} and max_seq_len={cache.max_seq_len}"
        ] = (
            cache.batch_size != 1
            or cache.max_seq_len % generator.page_size != 0
            or cache.max_seq_len != generator.max_total_tokens
        )
    for problem, is_found in problems.items():
        if is_found:
            raise GenerationError(problem)


def own_options(prompt: Prompt | list[Prompt], seed: int | None, **options: Any) -> list[tuple[Prompt, dict[str, Any]]]:
    """Return each prompt with its seed, and its value of each option: for a list of prompts, an entry of a list."""
    if seed is not None:
        check_count("seed", seed, minimum=None)
    prompts: list[Prompt] = prompt if isinstance(prompt, list) else [prompt]
    count = len(prompts)
    for name, value in options.items():
        is_shared = not isinstance(value, list) if name == "gen_settings" else not isinstance(prompt, list)
        if is_shared or value is None:
            options[name] = [value] * count
        elif not isinstance(value, (list, tuple)) or len(value) != count:
            raise GenerationError(f"{name} must be a list with an entry, or None, for each of the {count} prompts")
    options["seed"] = [None if seed is None else seed + number for number in range(count)]
    return [(each, {name: values[i] for name, values in options.items()}) for i, each in enumerate(prompts)]
