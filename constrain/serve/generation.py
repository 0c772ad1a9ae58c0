"""Generation of one output, and its division into parts."""

from __future__ import annotations

from codecs import getincrementaldecoder
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

import torch

from constrain.completion import Completion, Options, Pending, submit
from constrain.errors import FilterError, ResourceLimit
from constrain.filters import ExLlamaV2EngineFilter
from constrain.filters.thinking import Thinking
from constrain.runtime import Handle
from constrain.runtime.outputs import Piece, SampledToken, Update
from constrain.serve.errors import in_grammar
from constrain.serve.formats import OutputFormat
from constrain.serve.models import ServedModel
from constrain.serve.prompt_scores import submit_scores
from constrain.serve.sampling import OutputSettings
from constrain.serve.tools.reader import AnswerReader, CallArguments, Part, Text

FinishReason = Literal["stop", "length", "tool_calls"]


@dataclass(frozen=True)
class Work:
    """An output to generate.

    Attributes:
        model: the model.
        ids: the prompt, int64 of shape (1, n).
        format: the form of the output; ``None``: any text.
        options: options of the completion.
        thinking: how long the model may think before ``format`` applies.
        make_reader: makes what divides the text; ``None``: it stays as it is.
        content: the form of the part of the output that is neither thoughts nor calls.
        max_tokens: most tokens of thoughts and answer; ``None``: what fits in the context.
        prompt_logprobs: report the log probability of each token of the prompt, and of this number of most likely ones.
    """

    model: ServedModel
    ids: torch.Tensor
    format: OutputFormat | None
    options: Options
    thinking: Thinking | None = None
    make_reader: Callable[[], AnswerReader] | None = None
    content: OutputFormat | None = None
    max_tokens: int | None = None
    prompt_logprobs: int | None = None

    def submit(self, number: int) -> Output:
        """Compile the format, and submit output ``number`` of several.

        Raises:
            APIError: the format cannot be enforced.
            ConstrainError: as for :func:`constrain.completion.submit`.
        """
        try:
            return self._submit(number)
        except (FilterError, ResourceLimit) as error:
            limit = error.__cause__ if isinstance(error, FilterError) else error
            if self.format is None or not isinstance(limit, ResourceLimit):
                raise
            raise in_grammar(limit, self.format.pointer) from error

    def _submit(self, number: int) -> Output:
        llm = self.model.llm
        filters: list[ExLlamaV2EngineFilter] = []
        if self.format is not None:
            filters.append(ExLlamaV2EngineFilter(llm.model, llm.tokenizer, self.format.compile(self.model.vocabulary)))
        options, thinking = self._options(number), self.thinking
        if thinking is not None and self.max_tokens is not None:
            thinking = shortened(thinking, self.max_tokens, filters[0].min_tokens() - 1)
            options = replace(options, max_new_tokens=max(1, self.max_tokens - thinking.max_tokens))
        pending = submit(llm.runtime, self.ids, filters, options, _as_it_is, thinking=thinking)
        return Output(self, pending, self._submit_scores() if number == 0 else None)

    def _submit_scores(self) -> Handle | None:
        """Submit the prompt, once for all outputs, if its log probabilities are asked for, and there are any."""
        if self.prompt_logprobs is None or self.ids.shape[-1] < 2:
            return None
        return submit_scores(self.model, self.ids, self.prompt_logprobs, self.options.priority)

    def _options(self, number: int) -> Options:
        options, settings = self.options.numbered(number), self.options.settings
        if not isinstance(settings, OutputSettings) or not settings.counts_tokens:
            return options
        return replace(options, settings=replace(settings, frequency_start=self.ids.shape[-1]))


def _as_it_is(completion: Completion) -> Completion:
    return completion


@dataclass(frozen=True)
class Batch:
    """New parts of an output, and the tokens of those that are content; of some, what shows them comes later."""

    parts: list[Part]
    tokens: list[SampledToken] = field(default_factory=list)


class Output:
    """An output in progress.

    Attributes:
        completion: the whole of it, once it has ended.
        finish_reason: why it has ended: ``"length"`` whenever the limit of tokens was reached, however complete the
            output is.
        error: what :meth:`fail` has ended it with.
        num_tokens: number of its tokens.
        reasoning_tokens: number of tokens of thoughts among them.
    """

    def __init__(self, work: Work, pending: Pending[Completion], scores: Handle | None = None) -> None:
        """
        Args:
            work: what is generated.
            pending: the output of the model.
            scores: the log probabilities of the prompt.
        """
        self._pending, self._model, self._scores = pending, work.model, scores
        self._reader = work.make_reader() if work.make_reader else None
        self._shows_special = work.options.special_tokens
        is_free = work.format is None and self._shows_special
        self._foreign = work.model.special_names if is_free else {}
        self._marks = set(work.model.form.reasoning or ()) | _names(work.model)
        self.completion: Completion | None = None
        self.error: Exception | None = None
        self.finish_reason: FinishReason = "stop"
        self.num_tokens = self.reasoning_tokens = 0
        self._held: list[SampledToken] = []

    @property
    def done(self) -> bool:
        """Whether it has ended."""
        return all(handle.done for handle in self._handles)

    @property
    def _handles(self) -> Sequence[Handle]:
        return [self._pending.handle, *([self._scores] if self._scores else [])]

    async def prompt_tokens(self) -> Sequence[SampledToken]:
        """Return the tokens of the prompt after the first, with their log probabilities, if they are asked for.

        Raises:
            ConstrainError: the request failed, or was cancelled.
        """
        return (await self._scores).tokens if self._scores else ()

    def cancel(self) -> None:
        """Cancel it; waits until the running step of the model has ended."""
        for handle in self._handles:
            handle.cancel()

    def fail(self, error: Exception) -> None:
        """End it with an error, without waiting for the model; :meth:`release` has to follow."""
        self.error = error
        for handle in self._handles:
            handle.fail(error)

    def release(self) -> None:
        """Remove it from the runtime; waits until the running step of the model has ended."""
        for handle in self._handles:
            self._model.llm.runtime.cancel(handle.sequence)

    async def batches(self, rest: Callable[[], float]) -> AsyncIterator[Batch]:
        """Yield what it gains, as it does.

        Args:
            rest: as for :meth:`constrain.runtime.handle.Handle.aupdates`.

        Raises:
            ConstrainError: it failed, or was cancelled.
        """
        async for update in self._pending.handle.aupdates(rest):
            batch = self._read(update)
            if batch.parts or batch.tokens:
                yield batch
        self.completion = self._pending.read()
        last = self._reader.feed("", is_last=True) if self._reader else []
        self.finish_reason = self._finish_reason(self.completion)
        if last:
            yield Batch(last, self._held)

    def _read(self, update: Update) -> Batch:
        batch = Batch([])
        for text, tokens in self._divided(update.released):
            self._add(batch, self._without_foreign(text, tokens) if self._foreign else text, tokens)
        finish = update.finish
        removed = finish.held.text if finish is not None and finish.reason == "stop_string" else ""
        return Batch(_joined(batch.parts), self._without_end(batch.tokens, removed))

    def _divided(self, piece: Piece) -> Iterator[tuple[str, Sequence[SampledToken]]]:
        """Yield the text of each token, with it; or the whole if nothing reads it, or the tokens have another text.

        A token that ends within a character has the text before it.
        """
        if self._reader is None:
            yield piece
            return
        decoder = getincrementaldecoder("utf-8")("replace")
        texts = [decoder.decode(self._content(token.id)) for token in piece.tokens]
        rest = decoder.decode(b"", True)
        if "".join(texts) + rest != piece.text:
            yield piece
            return
        yield from zip(texts, ([token] for token in piece.tokens), strict=True)
        yield rest, ()

    def _content(self, token: int) -> bytes:
        """Return what a token adds to the text."""
        shown = self._model.special_names.get(token, "") if self._shows_special else ""
        return self._model.vocabulary.token_bytes(token) or shown.encode()

    def _add(self, batch: Batch, text: str, tokens: Sequence[SampledToken]) -> None:
        """Add a text to a batch, and its tokens as soon as it is known that a part shows them."""
        self.num_tokens += len(tokens)
        if self._reader is None:
            batch.parts.extend([Text(text)] if text else [])
            batch.tokens.extend(tokens)
            return
        was_thinking = self._reader.in_thoughts
        parts = self._reader.feed(text) if text else []
        batch.parts.extend(parts)
        self._held.extend(tokens)
        if was_thinking or self._reader.in_thoughts:
            self.reasoning_tokens += len(tokens)
            self._held.clear()
        elif any(isinstance(part, Text) for part in parts):
            batch.tokens.extend(self._held)
            self._held.clear()
        elif text and not (self._reader.is_held and self._reader.in_answer):
            self._held.clear()

    def _without_end(self, tokens: list[SampledToken], removed: str) -> list[SampledToken]:
        """Remove the tokens that belong to the end of a text only, which a text to stop at has removed."""
        left, count = len(removed.encode()), len(tokens)
        while left and count and (length := len(self._model.vocabulary.token_bytes(tokens[count - 1].id))) <= left:
            left -= length
            count -= 1
        return tokens[:count]

    def _without_foreign(self, text: str, tokens: Sequence[SampledToken]) -> str:
        """Remove the names of special tokens other than the marks of thoughts."""
        for token in tokens:
            name = self._foreign.get(token.id)
            if name is not None and name not in self._marks:
                text = text.replace(name, "", 1)
        return text

    def _finish_reason(self, completion: Completion) -> FinishReason:
        if completion.finish_reason != "stop":
            return "length"
        has_whole_calls = self._reader is not None and self._reader.num_calls > 0 and not self._reader.in_call
        return "tool_calls" if has_whole_calls else "stop"


def _joined(parts: Sequence[Part]) -> list[Part]:
    """Join those that follow one another and differ in their text only."""
    found: list[Part] = []
    for part in parts:
        end = found[-1] if found else None
        if isinstance(part, (Text, CallArguments)) and type(end) is type(part) and replace(part, text=end.text) == end:
            found[-1] = replace(end, text=end.text + part.text)
        else:
            found.append(part)
    return found


def _names(model: ServedModel) -> set[str]:
    marks = model.thinking_marks
    return {model.special_names.get(idx, "") for idx in (marks.opening[0], marks.closing[0])} if marks else set()


def shortened(thinking: Thinking, max_tokens: int, needed: int) -> Thinking:
    """Return shorter thoughts, which leave half of the tokens to an answer, or what it needs if that is more.

    Args:
        thinking: the thoughts.
        max_tokens: most tokens of thoughts and answer.
        needed: number of tokens of the shortest answer.
    """
    room = max(0, max_tokens - len(thinking.opening) - len(thinking.closing))
    return replace(thinking, limit=min(thinking.limit, room // 2, max(0, room - needed)))
