"""Submission of prompts to a runtime as requests."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, TypeVar

import torch

from constrain.arguments import check_text, refused
from constrain.completion.options import Options
from constrain.completion.pending import Pending
from constrain.completion.result import Completion, TokenLogprobs, finish_reason
from constrain.errors import ArgumentError, BudgetError, GenerationError
from constrain.filters import Constraint, ExLlamaV2EngineFilter, combine
from constrain.filters.capabilities import capabilities_of
from constrain.filters.thinking import ThinkFirst, Thinking
from constrain.generator.hooks import as_hook
from constrain.generator.settings import Settings
from constrain.runtime import Handle, Request, Runtime
from constrain.runtime.detokenizer import Detokenizer
from constrain.runtime.outputs import Finish, SampledToken
from constrain.runtime.sampler.params import UNSHAPED
from constrain.tokenizer import ExLlamaV2Tokenizer

R = TypeVar("R")


def runtime_of(source: Any) -> Runtime:
    """Return ``source`` if it is a runtime, else its attribute ``runtime``.

    Raises:
        ArgumentError: ``source`` is not a runtime, and has none.
    """
    found = source if isinstance(source, Runtime) else getattr(source, "runtime", None)
    if not isinstance(found, Runtime):
        raise refused("runtime", source, "a Runtime, or something that has one: an LLM, a dynamic generator")
    return found


def encode(tokenizer: ExLlamaV2Tokenizer, prompt: Any) -> torch.Tensor:
    """Encode a prompt, as int64 of shape (1, n).

    The text of special tokens is encoded as these tokens, and a beginning-of-sequence token is prepended if the model
    has one.

    Raises:
        ArgumentError: the prompt is not a string.
    """
    check_text("prompt", prompt)
    ids: torch.Tensor = tokenizer.encode(prompt, add_bos=True, encode_special_tokens=True)
    return ids


def fresh_filters(filters: Sequence[Any]) -> list[Any]:
    """Return copies of filters for another sequence.

    Raises:
        ArgumentError: a filter cannot be copied.
    """
    for each in filters:
        if not capabilities_of(each).can_be_copied:
            name = type(each).__name__
            raise ArgumentError(f"{name} has no clone() of its own, so that it can follow a single sequence only")
    return [each.clone() for each in filters]


def submit(
    runtime: Runtime,
    ids: torch.Tensor,
    filters: Sequence[Any],
    options: Options,
    read: Callable[[Completion], R],
    default: Settings | None = None,
    thinking: Thinking | None = None,
) -> Pending[R]:
    """Submit a prompt to a runtime.

    Args:
        runtime: the runtime.
        ids: the prompt, int64 of shape (1, n).
        filters: constraints on the output; ``options.filters`` is ignored.
        options: options of the completion.
        read: converts the completion into the result.
        default: sampling settings if the options have none.
        thinking: let the model think before the filters apply. Its tokens are not part of the completion, do not count
            among ``max_new_tokens``, and take up at most half of what the prompt leaves of the context.

    Raises:
        ArgumentError: an argument is of the wrong type or out of range.
        GenerationError: the prompt leaves no room in the context, or too little for what the filters require.
        BudgetError: ``max_new_tokens`` is too small for what the filters require.
    """
    handle = _submitted(runtime, ids, filters, options, default or Settings(), thinking)
    text = partial(_text, runtime.tokenizer, handle)
    return Pending(handle, text, lambda: read(_completion(runtime, handle, filters)), options.timeout, options.since)


def submit_faithful(
    runtime: Runtime, ids: torch.Tensor, filters: Sequence[Any], options: Options
) -> Pending[list[Completion]]:
    """Submit a prompt for faithful sampling, see :mod:`constrain.runtime.smc.particles`.

    Args:
        runtime: the runtime.
        ids: the prompt, int64 of shape (1, n).
        filters: constraints on the output, which can be copied; ``options.filters`` is ignored.
        options: options of the completions, ``particles`` of them.

    Raises:
        ArgumentError, GenerationError, BudgetError: as :func:`submit`; or there are more particles than fit in a batch,
            or in the cache.
    """
    handle = _submitted(runtime, ids, filters, options, Settings(), None)
    return Pending(handle, lambda: "", partial(_faithful_completions, handle), options.timeout)


def _submitted(
    runtime: Runtime,
    ids: torch.Tensor,
    filters: Sequence[Any],
    options: Options,
    default: Settings,
    thinking: Thinking | None,
) -> Handle:
    length, room = ids.shape[-1], _room(runtime, ids)
    if thinking is not None:
        thinking = replace(thinking, limit=min(thinking.limit, room // 2))
    wanted = options.max_new_tokens + (thinking.max_tokens if thinking else 0)
    limit = min(wanted, room)
    settings = options.sampling(default)
    request = _request(runtime, ids, _constraint(runtime, filters, thinking), options, settings, limit)
    try:
        return runtime.submit(request)
    except BudgetError as error:
        if limit == wanted:
            raise
        raise GenerationError(
            f"the prompt has {length} tokens and the context {length + limit}, which leaves {limit} for an answer of "
            f"at least {error.needed}: shorten the text, or load the model with a larger max_seq_len"
        ) from error


def _room(runtime: Runtime, ids: torch.Tensor) -> int:
    """Return the number of tokens that fit in the context after the prompt, at least one."""
    length, context = ids.shape[-1], runtime.max_seq_len
    if length == 0:
        raise GenerationError("the prompt has no token to start from")
    if length >= context:
        raise GenerationError(
            f"the prompt has {length} tokens and the context {context}, which leaves no room for an answer: "
            "shorten the text, or load the model with a larger max_seq_len"
        )
    return context - length


def _constraint(runtime: Runtime, filters: Sequence[Any], thinking: Thinking | None) -> Constraint | None:
    """Return the filters as one constraint, which applies after the thoughts of the model."""
    width = runtime.model.config.padded_vocab_size
    constraint = combine(filters, runtime.tokenizer, width) if filters else None
    if thinking is None or constraint is None:
        return constraint
    return ThinkFirst(constraint, thinking, end_tokens(runtime), width)


def _request(
    runtime: Runtime,
    ids: torch.Tensor,
    constraint: Constraint | None,
    options: Options,
    settings: Settings,
    limit: int,
) -> Request:
    tokenizer, config = runtime.tokenizer, runtime.model.config
    width = config.padded_vocab_size
    if settings.cfg_scale is not None:
        raise GenerationError("cfg_scale needs two prompts, with the condition and without it; use a dynamic generator")
    if options.logprobs is not None and options.logprobs > config.vocab_size:
        raise refused("logprobs", options.logprobs, f"a whole number from 0 to {config.vocab_size}")
    stop_tokens, stop_strings = options.stop_conditions()
    return Request(
        prompt=[ids],
        sampling=settings.params(tokenizer, width) if options.particles is None else UNSHAPED,
        faithful=options.particles is not None,
        particles=options.particles or 1,
        seed=options.key(),
        constraint=constraint,
        max_new_tokens=limit,
        stop_tokens=stop_tokens | end_tokens(runtime),
        stop_strings=stop_strings,
        return_logprobs=options.logprobs,
        return_confidence=options.confidence and not settings.post_sampling_hooks,
        watched_tokens=options.watched_tokens,
        within_budget=True,
        decode_special_tokens=options.special_tokens,
        loras=tuple(options.loras),
        embeddings=tuple(options.embeddings),
        hook=as_hook(settings),
        priority=options.priority,
    )


def end_tokens(runtime: Runtime) -> frozenset[int]:
    """Return the end-of-sequence tokens of the model."""
    ends = runtime.model.config.generation_config.get("eos_token_id") or []
    listed = [ends] if isinstance(ends, int) else ends
    return frozenset({runtime.tokenizer.eos_token_id, *listed} - {None})


def _completion(runtime: Runtime, handle: Handle, filters: Sequence[Any]) -> Completion:
    """Build the completion of a request that has ended."""
    output, sequence = handle.output, handle.sequence
    if output.finish is None:
        raise GenerationError("the request was cancelled")
    num_thoughts = _num_thoughts(handle)
    sampled = output.tokens[num_thoughts:]
    tokens = [token.id for token in sampled]
    text = _text(runtime.tokenizer, handle)
    confidence = [token.confidence for token in sampled if token.confidence is not None]
    request, prompt = sequence.request, sequence.rows[0]
    return Completion(
        text,
        tokens,
        finish_reason(output.finish.reason, tokens),
        _is_complete(output.finish, text, filters, end_tokens(runtime), request.decode_special_tokens),
        prompt.prompt_length,
        _logprobs(request, sampled),
        confidence if request.return_confidence else None,
        cached_tokens=prompt.cached_tokens,
        thinking_tokens=num_thoughts,
        context=prompt.tokens()[: prompt.prompt_length + num_thoughts] if request.return_confidence else [],
    )


def _is_complete(finish: Finish, text: str, filters: Sequence[Any], ends: frozenset[int], special_tokens: bool) -> bool:
    """Return whether an output meets the constraints of the engine, although a limit or a stop condition has cut it."""
    constraints = [each for each in filters if isinstance(each, ExLlamaV2EngineFilter)]
    if finish.reason == "max_new_tokens":
        return all(each.matcher.is_accepting() for each in constraints)
    if finish.reason == "stop_string" or (finish.reason == "stop_token" and finish.trigger not in ends):
        return all(each.grammar.accepts(text, special_tokens=special_tokens) for each in constraints)
    return True


def _faithful_completions(handle: Handle) -> list[Completion]:
    """Build the completions of a faithful request that has ended."""
    output, sequence = handle.output, handle.sequence
    if output.finish is None:
        raise GenerationError("the request was cancelled")
    prompt, greatest = sequence.rows[0], max(each.log_weight for each in output.particles)
    total = sum(math.exp(each.log_weight - greatest) for each in output.particles)
    found = []
    for index, each in enumerate(output.particles):
        assert each.finish is not None
        tokens = [token.id for token in each.tokens]
        completion = Completion(
            each.text,
            tokens,
            finish_reason(each.finish.reason, tokens),
            each.log_weight > -math.inf,
            prompt.prompt_length,
            _logprobs(sequence.request, each.tokens),
            index=index,
            cached_tokens=prompt.cached_tokens,
            log_weight=each.log_weight,
            weight=math.exp(each.log_weight - greatest) / total,
        )
        found.append(completion)
    return found


def _logprobs(request: Request, tokens: Sequence[SampledToken]) -> list[TokenLogprobs] | None:
    if request.return_logprobs is None:
        return None
    return [TokenLogprobs(token.logprob or 0.0, list(token.top_logprobs)) for token in tokens]


def _num_thoughts(handle: Handle) -> int:
    """Return the number of tokens that the model has written as its thoughts."""
    constraint = handle.sequence.request.constraint
    return constraint.num_tokens if isinstance(constraint, ThinkFirst) else 0


def _text(tokenizer: ExLlamaV2Tokenizer, handle: Handle) -> str:
    """Return the text that has been generated, without thoughts."""
    num_thoughts = _num_thoughts(handle)
    if not num_thoughts:
        return handle.output.text
    detokenizer = Detokenizer(tokenizer, special=False)
    tokens = handle.output.tokens[num_thoughts:]
    return "".join(detokenizer.push(token.id) for token in tokens) + detokenizer.flush()
