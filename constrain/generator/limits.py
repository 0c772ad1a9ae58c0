"""What generators can be made of, and which jobs a dynamic one can take."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

from constrain.arguments import check_count, check_number, check_type, refused
from constrain.errors import GenerationError
from constrain.model import EMBEDDING_INDEX, ExLlamaV2, ExLlamaV2CacheBase
from constrain.tokenizer import ExLlamaV2Tokenizer

if TYPE_CHECKING:
    from constrain.generator.dynamic import ExLlamaV2DynamicGenerator
    from constrain.generator.job import ExLlamaV2DynamicJob


def check_parts(model: ExLlamaV2, cache: ExLlamaV2CacheBase, tokenizer: ExLlamaV2Tokenizer) -> None:
    """Raise :class:`ArgumentError` where something is not what a generator is made of."""
    check_type("model", model, ExLlamaV2, "an ExLlamaV2")
    check_type("cache", cache, ExLlamaV2CacheBase, "an ExLlamaV2Cache")
    check_type("tokenizer", tokenizer, ExLlamaV2Tokenizer, "an ExLlamaV2Tokenizer")


def check_event(event: threading.Event | None) -> None:
    """Raise :class:`ArgumentError` where something is no event; those of other libraries will do."""
    if event is not None and not (hasattr(event, "is_set") and hasattr(event, "clear")):
        raise refused("abort_event", event, "a threading.Event")


def check_numbers(
    sizes: dict[str, int | None],
    max_q_size: int,
    max_ngram: int,
    num_draft_tokens: int,
    filter_time_limit: float | None,
) -> None:
    """Raise :class:`ArgumentError` where an argument of a generator is of the wrong type, or out of its bounds."""
    given = {name: size for name, size in sizes.items() if size is not None}
    for name, number in {**given, "max_q_size": max_q_size, "max_ngram": max_ngram}.items():
        check_count(name, number, 1)
    check_count("num_draft_tokens", num_draft_tokens)
    if filter_time_limit is not None:
        check_number("filter_time_limit", filter_time_limit, 0)


def check_generator(generator: ExLlamaV2DynamicGenerator, max_q_size: int, use_ngram_draft: bool, paged: bool) -> None:
    """Raise :class:`GenerationError` where the arguments of a generator do not fit together."""
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
    for problem, found in wrong.items():
        if found:
            raise GenerationError(problem)


def check_job(generator: ExLlamaV2DynamicGenerator, job: ExLlamaV2DynamicJob) -> None:
    """Raise :class:`GenerationError` where there can never be room for a job, or its prompt is no text."""
    lengths = [len(sequence.input_ids) + job.max_new_tokens for sequence in job.sequences]
    pages = sum(-(-length // generator.page_size) for length in lengths)
    if pages > generator.max_pages:
        raise GenerationError(
            f"Job requires {pages} pages (only {generator.max_pages} available) and cannot be enqueued. Use a larger "
            "cache, a shorter prompt, or a smaller max_new_tokens."
        )
    if len(lengths) > generator.max_batch_size:
        raise GenerationError(f"{len(lengths)} sequences are more than max_batch_size={generator.max_batch_size}")
    if max(lengths) > generator.max_seq_len:
        raise GenerationError(
            f"prompt and max_new_tokens add up to {max(lengths)}, more than max_seq_len={generator.max_seq_len}"
        )
    size = generator.model.config.vocab_size
    for sequence in job.sequences:
        ids = sequence.input_ids.torch()
        least, most = ids.aminmax()
        if least >= 0 and most < size:
            continue
        for token in set(ids[(ids < 0) | (ids >= size)].tolist()):
            if not any(0 <= token - each.first_index < each.length for each in job.embeddings):
                what = (
                    "a row of embeddings that were not given" if token >= EMBEDDING_INDEX else "outside the vocabulary"
                )
                raise GenerationError(f"the prompt holds id {token}, which is {what}")
