"""Functions that the endpoints of chats and completions share."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from constrain.runtime.outputs import SampledToken
from constrain.serve.generation import Output
from constrain.serve.models import ServedModel

DONE = b"data: [DONE]\n\n"

#: What stands for the logarithm of 0, which JSON does not have, as OpenAI has it.
_LEAST = -9999.0


def usage(outputs: Sequence[Output]) -> dict[str, Any]:
    """Return the numbers of tokens of outputs for one prompt."""
    completions = [output.completion for output in outputs if output.completion is not None]
    prompt = completions[0].prompt_tokens if completions else 0
    written = sum(output.num_tokens for output in outputs)
    return {
        "prompt_tokens": prompt,
        "completion_tokens": written,
        "total_tokens": prompt + written,
        "prompt_tokens_details": {"cached_tokens": completions[0].cached_tokens if completions else 0},
        "completion_tokens_details": {"reasoning_tokens": sum(output.reasoning_tokens for output in outputs)},
    }


def finite(logprob: float | None) -> float:
    """Return a log probability as a number that JSON has."""
    return max(logprob or 0.0, _LEAST)


def token_entry(model: ServedModel, token: int, logprob: float) -> dict[str, Any]:
    """Return a token with its log probability, as chats report it."""
    content = None if token in model.special_names else [*model.vocabulary.token_bytes(token)]
    return {"token": model.token_text(token), "logprob": finite(logprob), "bytes": content}


def chat_logprobs(model: ServedModel, tokens: Sequence[SampledToken]) -> dict[str, Any]:
    """Return the log probabilities of tokens, as chats report them."""
    content = [
        {
            **token_entry(model, token.id, token.logprob or 0.0),
            "top_logprobs": [token_entry(model, idx, logprob) for idx, logprob in token.top_logprobs],
        }
        for token in tokens
    ]
    return {"content": content, "refusal": None}
