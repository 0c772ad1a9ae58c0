"""The jobs of a call of ``ExLlamaV2DynamicGenerator.generate``: one for each prompt."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeAlias

from constrain.arguments import check_type
from constrain.errors import GenerationError
from constrain.generator.job import ExLlamaV2DynamicJob
from constrain.generator.prompt import embeddings_of
from constrain.tokenizer import ExLlamaV2Tokenizer

#: A prompt, or for guidance one with the condition and one without it.
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
    """The jobs.

    Args:
        job_type: class of the jobs.
        tokenizer: of the model.
        prompts: the prompts.
        each: options that differ, with a value for each prompt.
        add_bos, encode_special_tokens: how prompts are encoded.
        options: those that do not.

    Raises:
        ArgumentError: a prompt is no text, or an option is of the wrong type.
        GenerationError: a prompt has no token, or the options do not fit together.
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
    """The value of an option for each prompt: lists are lists of such where there is a list of prompts.

    Raises:
        GenerationError: there are not as many as prompts.
    """
    if value is None or single:
        return [value] * len(prompts)
    if not isinstance(value, (list, tuple)) or len(value) != len(prompts):
        raise GenerationError(f"{name} must be a list with an entry, or None, for each of the {len(prompts)} prompts")
    return list(value)


def failure(results: Sequence[dict[str, Any]]) -> Exception | None:
    """The first error among the last results of jobs."""
    return next((result["exception"] for result in results if "exception" in result), None)
