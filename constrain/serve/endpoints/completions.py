"""``POST /v1/completions``."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator, Sequence
from time import time
from typing import Any
from uuid import uuid4

import torch

from constrain.completion import encode
from constrain.runtime.outputs import SampledToken
from constrain.serve.constraints import read_format
from constrain.serve.endpoints.common import DONE, finite, usage
from constrain.serve.endpoints.completion_logprobs import CompletionLogprobs
from constrain.serve.errors import APIError
from constrain.serve.generation import Batch, Work
from constrain.serve.http import event
from constrain.serve.jobs import Job
from constrain.serve.models import ServedModel
from constrain.serve.protocol.completions import CompletionRequest
from constrain.serve.sampling import make_options


def completion_works(request: CompletionRequest, model: ServedModel) -> list[Work]:
    """Return the work of each prompt of a request.

    Raises:
        APIError: a prompt or the constraint is malformed.
        GenerationError: a prompt does not fit in the context.
    """
    format = read_format(request, model.vocabulary)
    shows_special = format is not None and isinstance(format.grammar, str)
    # The best outputs are those of which tokens are the most likely.
    logprobs = 0 if request.logprobs is None and request.num_generated > request.n else request.logprobs
    # A request has one token at the least; it is left out where only the prompt is asked for.
    limit = 1 if request.is_only_prompt else request.max_tokens
    options = make_options(request, model, limit, logprobs=logprobs, special_tokens=shows_special)
    scored = request.logprobs if request.echo else None
    return [
        Work(model, _encoded(each, model), format, options, content=format, prompt_logprobs=scored)
        for each in _prompts(request)
    ]


def _prompts(request: CompletionRequest) -> Sequence[str | list[int]]:
    """Return the prompts, each a text or tokens."""
    prompt = request.prompt
    if isinstance(prompt, str):
        return [prompt]
    numbers = [each for each in prompt if isinstance(each, int)]
    prompts = [numbers] if numbers else [each for each in prompt if not isinstance(each, int)]
    if not prompts or [] in prompts:
        raise APIError("/prompt: there is no prompt, or an empty one", param="/prompt", code="invalid_value")
    return prompts


def _encoded(prompt: str | list[int], model: ServedModel) -> torch.Tensor:
    if isinstance(prompt, str):
        model.check_length(len(prompt.encode()))
        return encode(model.tokenizer, prompt)
    size = model.llm.model.config.vocab_size
    if not all(0 <= token < size for token in prompt):
        message = f"/prompt: the model has tokens 0 to {size - 1}"
        raise APIError(message, param="/prompt", code="invalid_value")
    return torch.tensor([prompt], dtype=torch.long)


class CompletionAnswer:
    """Writes the response to a request: all at once, or as a stream of chunks."""

    def __init__(self, request: CompletionRequest, model: ServedModel, job: Job) -> None:
        self._request, self._model, self._job = request, model, job
        head = {"id": f"cmpl-{uuid4().hex}", "object": "text_completion", "created": int(time())}
        self._head = {**head, "model": request.model}
        self._logprobs = CompletionLogprobs(model)

    async def whole(self) -> dict[str, Any]:
        """Return the response, when all outputs have ended."""
        found = await self._job.collect()
        choices = [await self._whole_choice(number, batches) for number, batches in self._best(found)]
        numbered = [{**choice, "index": index} for index, choice in enumerate(choices)]
        return {**self._head, "choices": numbered, "usage": self._usage()}

    async def _whole_choice(self, number: int, batches: Sequence[Batch]) -> dict[str, Any]:
        reason = self._job.outputs[number].finish_reason
        if not self._request.echo:
            return self._choice(number, _text(batches), _tokens(batches), reason)
        echo = await self._echo_choice(number)
        if self._request.is_only_prompt:
            return {**echo, "finish_reason": "length"}
        rest = self._choice(number, _text(batches), _tokens(batches), reason)
        return {**rest, "text": echo["text"] + rest["text"], "logprobs": _joined(echo["logprobs"], rest["logprobs"])}

    def _best(self, found: Sequence[Sequence[Batch]]) -> Iterator[tuple[int, Sequence[Batch]]]:
        """Yield the outputs that are returned, with their numbers: for each prompt the best ones, best first."""
        count, size = self._request.n, self._request.num_generated
        for start in range(0, len(found), size):
            group = [*enumerate(found[start : start + size], start)]
            best = sorted(group, key=lambda each: _mean_logprob(each[1]), reverse=True) if count < size else group
            yield from best[:count]

    async def chunks(self) -> AsyncIterator[bytes]:
        """Yield the response as events."""
        outputs = self._job.outputs
        if self._request.echo:
            for number in range(len(outputs)):
                yield self._chunk(await self._echo_choice(number))
        async for number, batch in self._job.stream():
            if batch is None:
                reason = "length" if self._request.is_only_prompt else outputs[number].finish_reason
                yield self._chunk(self._choice(number, "", [], reason))
            elif not self._request.is_only_prompt:
                yield self._chunk(self._choice(number, _text([batch]), batch.tokens, None))
        if self._shows_usage:
            yield event({**self._head, "choices": [], "usage": self._usage()})
        yield DONE

    @property
    def _shows_usage(self) -> bool:
        options = self._request.stream_options
        return options is not None and options.include_usage

    def _chunk(self, choice: dict[str, Any]) -> bytes:
        return event({**self._head, "choices": [choice], **({"usage": None} if self._shows_usage else {})})

    def _choice(
        self, number: int, text: str, tokens: Sequence[SampledToken], finish_reason: str | None
    ) -> dict[str, Any]:
        special = self._work(number).options.special_tokens
        has_logprobs = self._request.logprobs is not None
        logprobs = self._logprobs.of_output(number, tokens, special) if has_logprobs else None
        return {"index": number, "text": text, "logprobs": logprobs, "finish_reason": finish_reason}

    async def _echo_choice(self, number: int) -> dict[str, Any]:
        """Return the prompt of an output as the beginning of its choice."""
        echo, logprobs = self._echo(number), None
        if self._request.logprobs is not None:
            logprobs = self._logprobs.of_prompt(number, await self._prompt_tokens(number), echo)
        return {"index": number, "text": echo, "logprobs": logprobs, "finish_reason": None}

    def _echo(self, number: int) -> str:
        prompt = _prompts(self._request)[number // self._request.num_generated]
        if isinstance(prompt, str):
            return prompt
        return str(self._model.tokenizer.decode(torch.tensor(prompt), decode_special_tokens=True))

    async def _prompt_tokens(self, number: int) -> list[SampledToken]:
        """Return the tokens of the prompt of an output, without the one that begins a text in this model."""
        first = number - number % self._request.num_generated
        tokens = self._work(number).ids[0].tolist()
        scored = [SampledToken(tokens[0], 1.0), *await self._job.outputs[first].prompt_tokens()]
        prompt = _prompts(self._request)[number // self._request.num_generated]
        name = self._model.special_names.get(tokens[0])
        is_added = isinstance(prompt, str) and name is not None and not prompt.startswith(name)
        return scored[1:] if is_added else scored

    def _work(self, number: int) -> Work:
        return self._job.works[number // self._request.num_generated]

    def _usage(self) -> dict[str, Any]:
        """Return the numbers of tokens of all prompts and outputs together."""
        n, outputs = self._request.num_generated, self._job.outputs
        groups = [usage(outputs[start : start + n]) for start in range(0, len(outputs), n)]
        counts = {name: sum(group[name] for group in groups) for name in groups[0] if name.endswith("_tokens")}
        if self._request.is_only_prompt:
            counts |= {"completion_tokens": 0, "total_tokens": counts["prompt_tokens"]}
        return counts


def _joined(first: dict[str, Any] | None, rest: dict[str, Any] | None) -> dict[str, Any] | None:
    """Return the log probabilities of two parts of a choice, one after the other."""
    return {name: [*values, *rest[name]] for name, values in first.items()} if first and rest else None


def _text(batches: Sequence[Batch]) -> str:
    return "".join(getattr(part, "text", "") for batch in batches for part in batch.parts)


def _tokens(batches: Sequence[Batch]) -> list[SampledToken]:
    return [token for batch in batches for token in batch.tokens]


def _mean_logprob(batches: Sequence[Batch]) -> float:
    tokens = _tokens(batches)
    return sum(finite(token.logprob) for token in tokens) / max(1, len(tokens))
