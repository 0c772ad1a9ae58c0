"""Jobs of one ``ExLlamaV2DynamicGenerator.generate`` call: one for each prompt."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeAlias

from constrain.arguments import check_type
from constrain.errors import GenerationError
from constrain.generator.job import ExLlamaV2DynamicJob
from constrain.generator.prompt import embeddings_of
from constrain.tokenizer import ExLlamaV2Tokenizer

#: A prompt, or under guidance a pair: with the condition and without it.
Prompt: TypeAlias = str | tuple[str, str]


def make_jobs(
    job_type: type[ExLlamaV2DynamicJob],
    tokenizer: ExLlamaV2Tokenizer,
    prompts: Sequence[Prompt],
    each: dict[str, list[Any]],
    add_bos: bool,
    encode_special_tokens: bool,
    **options: Any,
) -> list[ExLlamaV2DynamicJob]:
    """Create a job for each prompt.

    Args:
        job_type: class of the jobs.
        tokenizer: the tokenizer of the model.
        prompts: the prompts.
        each: options that differ between prompts, with a list of one value per prompt.
        add_bos, encode_special_tokens: as for :meth:`ExLlamaV2Tokenizer.encode`.
        options: options shared by all prompts.

    Raises:
        ArgumentError: a prompt is not a string, or an option is of the wrong type.
        GenerationError: a prompt has no token, or the options contradict each other.
    """
    jobs = []
    for number, prompt in enumerate(prompts):
        own = {name: values[number] for name, values in each.items()}
        own["embeddings"] = embeddings_of(own["embeddings"])
        check_type("a prompt", prompt, (str, tuple, list), "a str, or for guidance two of them")
        texts = (prompt,) if isinstance(prompt, str) else prompt
        ids = [
            tokenizer.encode(
                text, add_bos=add_bos, encode_special_tokens=encode_special_tokens, embeddings=own["embeddings"]
            )
            for text in texts
        ]
        jobs.append(job_type(ids, **own, **options))
    return jobs


def spread(name: str, value: Any, prompts: Sequence[Prompt], single: bool) -> list[Any]:
    """Return the value of an option for each prompt; for a list of prompts, ``value`` has one entry per prompt.

    Raises:
        GenerationError: the number of entries differs from that of prompts.
    """
    if value is None or single:
        return [value] * len(prompts)
    if not isinstance(value, (list, tuple)) or len(value) != len(prompts):
        raise GenerationError(f"{name} must be a list with an entry, or None, for each of the {len(prompts)} prompts")
    return list(value)


def failure(results: Sequence[dict[str, Any]]) -> Exception | None:
    """Return the first error among the last results of jobs."""
    return next((result["exception"] for result in results if "exception" in result), None)
