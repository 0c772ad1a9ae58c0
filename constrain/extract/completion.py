"""One constrained completion of one prompt: what was written, and why it stopped."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

from constrain.arguments import check_count, check_text
from constrain.errors import GenerationError
from constrain.generator import ExLlamaV2BaseGenerator, ExLlamaV2Sampler

FinishReason: TypeAlias = Literal["stop", "length"]


@dataclass(frozen=True)
class Completion:
    """What a model wrote after a prompt.

    Attributes:
        text: the new text, without special tokens.
        tokens: its token ids, without the end-of-sequence token.
        finish_reason: ``"stop"`` where the model or a filter ended the text, ``"length"`` where the tokens ran out.
    """

    text: str
    tokens: list[int]
    finish_reason: FinishReason


def complete(
    generator: ExLlamaV2BaseGenerator,
    prompt: str,
    *,
    filters: Sequence[Any] = (),
    max_new_tokens: int,
    settings: ExLlamaV2Sampler.Settings,
    seed: int | None = None,
) -> Completion:
    """Continue a prompt.

    Args:
        generator: holds the model, the tokenizer and the cache.
        prompt: text to continue, in which the text of special tokens means these tokens; a beginning-of-sequence token
            is put before it where the model has one.
        filters: all of them hold for the new text.
        max_new_tokens: upper bound; lowered to what the model's context still takes.
        settings: how tokens are drawn.
        seed: seeds the draw.

    Raises:
        ArgumentError: an argument is of the wrong type, or out of its bounds.
        GenerationError: the prompt leaves no room in the context.
    """
    check_text("prompt", prompt)
    check_count("max_new_tokens", max_new_tokens, 1)
    tokenizer = generator.tokenizer
    context = min(generator.model.config.max_seq_len, generator.cache.max_seq_len)
    length = tokenizer.encode(prompt, add_bos=True, encode_special_tokens=True).shape[-1]
    if length >= context:
        raise GenerationError(
            f"the prompt has {length} tokens and the context {context}, which leaves no room for an answer: "
            "shorten the text, or load the model with a larger max_seq_len"
        )
    limit = min(max_new_tokens, context - length)
    text = generator.generate_simple(
        prompt,
        settings,
        limit,
        seed=seed,
        add_bos=True,
        encode_special_tokens=True,
        completion_only=True,
        filters=filters,
    )
    assert generator.sequence_ids is not None
    tokens = generator.sequence_ids[0, length:].tolist()
    return Completion(text, tokens, "length" if len(tokens) == limit else "stop")
