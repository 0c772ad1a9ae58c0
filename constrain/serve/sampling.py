"""Options of an output, from the fields of a request."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import torch

from constrain.completion import Options
from constrain.generator.settings import Settings
from constrain.serve.errors import APIError, pointer
from constrain.serve.models import ServedModel
from constrain.serve.protocol.fields import SamplingFields

#: Fields of a model's generation_config.json that are its defaults here.
_DEFAULTS = ("temperature", "top_p", "top_k", "min_p", "repetition_penalty")


@dataclass
class OutputSettings(Settings):
    """Settings whose penalties for frequency and presence count what was written, not the prompt, as OpenAI's do.

    Attributes:
        frequency_start: number of tokens of the prompt.
    """

    frequency_start: int = 0

    @property
    def counts_tokens(self) -> bool:
        """Whether the penalties have an effect."""
        return self.token_frequency_penalty != 0 or self.token_presence_penalty != 0


def make_options(
    request: SamplingFields,
    model: ServedModel,
    max_tokens: int | None,
    *,
    logprobs: int | None = None,
    special_tokens: bool = False,
) -> Options:
    """Return the options of an output.

    Args:
        request: the request.
        model: the model.
        max_tokens: most tokens of the output; ``None``: what fits in the context.
        logprobs: report the log probability of each token, and of this number of most likely ones.
        special_tokens: show special tokens in the text.

    Raises:
        APIError: a field refers to a token that the model does not have.
    """
    stop = [request.stop] if isinstance(request.stop, str) else request.stop or []
    for number, token in enumerate(request.stop_token_ids or ()):
        _check_token(token, pointer("stop_token_ids", number), model.llm.model.config.vocab_size)
    return Options(
        max_new_tokens=max_tokens or model.llm.runtime.max_seq_len,
        settings=_settings(request, model),
        stop=[*filter(None, stop), *(request.stop_token_ids or ())],
        seed=request.seed,
        logprobs=logprobs,
        priority=request.priority,
        loras=model.loras,
        special_tokens=special_tokens,
    )


def _settings(request: SamplingFields, model: ServedModel) -> OutputSettings:
    config = model.llm.model.config
    given: dict[str, Any] = {name: config.generation_config.get(name) for name in _DEFAULTS}
    given |= {name: getattr(request, name) for name in _DEFAULTS if getattr(request, name) is not None}
    numbers = {name: value for name, value in given.items() if isinstance(value, (int, float))}
    biases = request.logit_bias or {}
    for token in biases:
        _check_token(token, pointer("logit_bias", token), config.vocab_size)
    penalties = request.frequency_penalty, request.presence_penalty
    return _settings_of(frozenset(numbers.items()), penalties, frozenset(biases.items()), config.padded_vocab_size)


@lru_cache(maxsize=32)
def _settings_of(
    given: frozenset[tuple[str, float]],
    penalties: tuple[float, float],
    biases: frozenset[tuple[int, float]],
    width: int,
) -> OutputSettings:
    """Return the settings that all requests with these fields share: nothing changes them."""
    numbers = dict(given)
    # With a top_p of 0 the most likely token is left; settings take 0 for "off".
    top_p = numbers.get("top_p", 1.0)
    top_k = max(0, int(numbers.get("top_k", 0))) if top_p else 1
    frequency, presence = penalties
    return OutputSettings(
        temperature=numbers.get("temperature", 1.0),
        top_p=top_p,
        top_k=top_k,
        min_p=numbers.get("min_p", 0.0),
        token_repetition_penalty=numbers.get("repetition_penalty", 1.0),
        token_frequency_penalty=frequency,
        token_presence_penalty=presence,
        token_bias=_bias(dict(biases), width) if biases else None,
    )


def _bias(biases: dict[int, float], width: int) -> torch.Tensor:
    bias = torch.zeros(width)
    bias[[*biases]] = torch.tensor([*biases.values()])
    return bias


def _check_token(token: int, at: str, size: int) -> None:
    if not 0 <= token < size:
        raise APIError(f"{at}: the model has tokens 0 to {size - 1}", param=at, code="invalid_value")
