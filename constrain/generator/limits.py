"""Validation of generator arguments."""

from __future__ import annotations

import threading
from typing import Protocol

from constrain.arguments import check_count, check_number, check_type, refused
from constrain.errors import GenerationError
from constrain.model import ExLlamaV2, ExLlamaV2CacheBase
from constrain.tokenizer import ExLlamaV2Tokenizer


def check_parts(model: ExLlamaV2, cache: ExLlamaV2CacheBase, tokenizer: ExLlamaV2Tokenizer) -> None:
    """Raise :class:`ArgumentError` if the model, cache or tokenizer is of the wrong type."""
    check_type("model", model, ExLlamaV2, "an ExLlamaV2")
    check_type("cache", cache, ExLlamaV2CacheBase, "an ExLlamaV2Cache")
    check_type("tokenizer", tokenizer, ExLlamaV2Tokenizer, "an ExLlamaV2Tokenizer")


def check_event(event: threading.Event | None) -> None:
    """Raise :class:`ArgumentError` if ``event`` lacks ``is_set`` or ``clear``; any class that has both is accepted."""
    if event is not None and not (hasattr(event, "is_set") and hasattr(event, "clear")):
        raise refused("abort_event", event, "a threading.Event")


def check_numbers(
    sizes: dict[str, int | None],
    max_q_size: int,
    max_ngram: int,
    num_draft_tokens: int,
    filter_time_limit: float | None,
) -> None:
    """Raise :class:`ArgumentError` if a generator argument is of the wrong type or out of range."""
    given = {name: size for name, size in sizes.items() if size is not None}
    for name, number in {**given, "max_q_size": max_q_size, "max_ngram": max_ngram}.items():
        check_count(name, number, 1)
    check_count("num_draft_tokens", num_draft_tokens)
    if filter_time_limit is not None:
        check_number("filter_time_limit", filter_time_limit, 0)


class PagedGenerator(Protocol):
    """Attributes of a dynamic generator that are validated together."""

    model: ExLlamaV2
    draft_model: ExLlamaV2 | None
    cache: ExLlamaV2CacheBase
    draft_cache: ExLlamaV2CacheBase | None
    max_batch_size: int
    max_seq_len: int
    max_chunk_size: int
    page_size: int
    num_draft_tokens: int


def check_generator(generator: PagedGenerator, max_q_size: int, use_ngram_draft: bool, paged: bool) -> None:
    """Raise :class:`GenerationError` if the arguments of a generator contradict each other."""
    g, config, draft = generator, generator.model.config, generator.draft_model
    room = max(max_q_size, config.max_batch_size * config.max_input_len)
    wrong = {
        f"max_batch_size={g.max_batch_size} times max_q_size={max_q_size} is more than a pass takes, {room} tokens": (
            g.max_batch_size * max_q_size > room
        ),
        f"max_seq_len={g.max_seq_len} is more than the model takes, {config.max_seq_len}": (
            g.max_seq_len > config.max_seq_len
        ),
        f"max_chunk_size={g.max_chunk_size} must be a multiple of {g.page_size}": (
            paged and g.max_chunk_size % g.page_size != 0
        ),
        f"num_draft_tokens={g.num_draft_tokens} is more than max_q_size={max_q_size}": g.num_draft_tokens > max_q_size,
        "a draft model needs a draft cache, and a draft cache a draft model": (draft is None)
        != (g.draft_cache is None),
        "use_ngram_draft and draft_model exclude each other": use_ngram_draft and draft is not None,
        "the draft model takes shorter sequences than the model": (
            draft is not None and draft.config.max_seq_len < config.max_seq_len
        ),
    }
    size = g.cache.max_seq_len
    for cache in (g.cache, g.draft_cache):
        if cache is not None and (
            cache.batch_size != 1 or cache.max_seq_len % g.page_size or cache.max_seq_len != size
        ):
            problem = (
                f"the cache must have batch_size=1, and max_seq_len a multiple of {g.page_size} that all caches "
                f"share, not batch_size={cache.batch_size} and max_seq_len={cache.max_seq_len}"
            )
            wrong[problem] = True
    for problem, found in wrong.items():
        if found:
            raise GenerationError(problem)
