"""The object that a loaded model is."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterable, AsyncIterator, Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, TypedDict, TypeVar, overload

import torch

from constrain.arguments import check_count, texts_of
from constrain.completion import (
    AsyncStream,
    Completion,
    Failure,
    Options,
    Pending,
    Stream,
    arun_many,
    encode,
    fresh_filters,
    run_many,
    runtime_of,
    submit,
    submitted,
)
from constrain.engine.lark import NamedGrammar
from constrain.errors import ArgumentError, GrammarError
from constrain.extract import Extraction, Extractor, ExtractOptions, Prompt, Target, build_prompt
from constrain.generator.settings import Settings
from constrain.llm.constraints import make_filters
from constrain.model import ExLlamaV2
from constrain.runtime import Runtime
from constrain.tokenizer import ExLlamaV2Tokenizer

if TYPE_CHECKING:
    from typing_extensions import Unpack

T = TypeVar("T")

#: A conversation, each message with ``role`` and ``content``.
Messages: TypeAlias = Sequence[Mapping[str, Any]]
#: A text to continue, or a conversation to answer.
PromptOrMessages: TypeAlias = "str | Messages"

_CONSTRAINTS = ("json_schema", "regex", "grammar", "grammars", "choices", "prefix")


class GenerateOptions(TypedDict, total=False):
    """Options of :meth:`LLM.generate` and its kin; they are described there."""

    json_schema: Any
    regex: str | re.Pattern[str] | None
    grammar: str | None
    grammars: Mapping[str, NamedGrammar] | None
    choices: Sequence[str] | None
    prefix: str | Sequence[str] | None
    filters: Sequence[Any]
    max_new_tokens: int
    settings: Settings | None
    temperature: float | None
    top_p: float | None
    top_k: int | None
    min_p: float | None
    stop: str | int | Collection[str | int] | None
    seed: int | None
    logprobs: int | None
    timeout: float | None
    priority: int


class LLM:
    """A loaded model; see :func:`load`. Threads and tasks may share it: their requests run side by side.

    Attributes:
        runtime: what runs the requests.
        extractor: what :meth:`extract` calls.
    """

    def __init__(self, runtime: Any, prompt: Prompt = build_prompt) -> None:
        """
        Args:
            runtime: a :class:`~constrain.runtime.Runtime` of a model, a cache and a tokenizer, or what has one as its
                ``runtime``, as generators have.
            prompt: makes the prompt of an extraction from a schema and a text.

        Raises:
            ArgumentError: an argument is of the wrong type.
        """
        self.runtime: Runtime = runtime_of(runtime)
        self.extractor = Extractor(self.runtime, prompt)

    @property
    def model(self) -> ExLlamaV2:
        """The model."""
        return self.runtime.model

    @property
    def tokenizer(self) -> ExLlamaV2Tokenizer:
        """Its tokenizer."""
        return self.runtime.tokenizer

    @overload
    def generate(
        self,
        prompt: str | None = ...,
        *,
        messages: Messages | None = ...,
        n: Literal[1] = ...,
        stream: Literal[False] = ...,
        **options: Unpack[GenerateOptions],
    ) -> Completion: ...

    @overload
    def generate(
        self,
        prompt: str | None = ...,
        *,
        messages: Messages | None = ...,
        n: Literal[1] = ...,
        stream: Literal[True],
        **options: Unpack[GenerateOptions],
    ) -> Stream: ...

    @overload
    def generate(
        self,
        prompt: str | None = ...,
        *,
        messages: Messages | None = ...,
        n: int,
        stream: Literal[False] = ...,
        **options: Unpack[GenerateOptions],
    ) -> list[Completion]: ...

    def generate(
        self,
        prompt: str | None = None,
        *,
        messages: Messages | None = None,
        n: int = 1,
        stream: bool = False,
        **options: Unpack[GenerateOptions],
    ) -> Completion | list[Completion] | Stream:
        """Continue a prompt, or answer a conversation.

        Where several constraints are given, all of them hold. A JSON Schema, regular expression, grammar or list of
        choices is complete within ``max_new_tokens``.

        Args:
            prompt: the text to continue.
            messages: a conversation in its place, each message with ``role`` and ``content``, which the model's own
                chat template turns into a prompt.
            n: number of texts to generate; more than one are a list. With a seed, they have that seed and those after.
            stream: return the text piece by piece. The iterator has the whole as its ``completion`` at the end; closing
                it cancels the request.
            json_schema: a JSON Schema, or a type (see :meth:`extract`); the text is a document that matches it.
            regex: a regular expression that matches the whole text, as text or compiled.
            grammar: a Lark grammar whose rule ``start`` derives the text.
            grammars: further grammars, which ``@name`` stands for in ``grammar``; see
                :func:`~constrain.engine.compile_lark`.
            choices: texts, one of which is written.
            prefix: a string, or several of which one is, that the text begins with.
            filters: further filters, for example of :func:`constrain.filters.create`.
            max_new_tokens: upper bound, by default 256; lowered to what the model's context still takes.
            settings: how tokens are sampled; by ``ExLlamaV2Sampler.Settings()`` by default.
            temperature, top_p, top_k, min_p: take the place of those in ``settings``.
            stop: a text or an id, or several, before which the text ends.
            seed: makes sampling reproducible, whatever else runs at the same time.
            logprobs: report the log probability of each token, and this number of most likely tokens with theirs.
            timeout: seconds after which the request is given up.
            priority: requests of a higher one start first.

        Raises:
            ArgumentError: an argument is of the wrong type, or out of its bounds.
            GrammarError: a constraint does not compile, or there are ``grammars`` and no ``grammar``.
            BudgetError: no text that the constraints allow is as short as ``max_new_tokens``; says how short one is.
            GenerationError: the prompt leaves no room in the context.
            TokenizerError: there are messages, and the model has no chat template, or it refuses them.
            FilterError: the constraints, taken together, allow nothing, or a filter failed.
            GenerationTimeout: it took longer than ``timeout``.
        """
        check_count("n", n, 1)
        if stream and n > 1:
            raise ArgumentError(f"a stream is of one text, not of n={n}")
        begin = self._beginner(options, copied=n > 1)
        ask = _one_of(prompt, messages)
        if stream:
            return Stream(begin(0, ask))
        pending = _all_or_none([partial(begin, number, ask) for number in range(n)])
        found = _results(pending)
        return found[0] if n == 1 else found

    def generate_many(
        self, prompts: Iterable[PromptOrMessages], *, ordered: bool = True, **options: Unpack[GenerateOptions]
    ) -> Iterator[Completion | Failure]:
        """Continue many prompts, several at a time.

        Args:
            prompts: texts to continue, or conversations to answer; read as far ahead as there are places for requests.
            ordered: whether completions come in the order of the prompts, or as they are done; their ``index`` says
                which is which.
            options: as for :meth:`generate`. With a seed, each prompt has its own: that seed plus its ``index``.

        Returns:
            Completions, each with the place of its prompt as ``index``. Where something is wrong with one prompt there
            is a :class:`Failure` in its place, with the ``error``.

        Raises:
            ArgumentError: an argument other than a prompt is of the wrong type, or out of its bounds.
            GrammarError: a constraint does not compile.
        """
        return run_many(self.runtime, self._beginner(options, copied=True), prompts, ordered=ordered)

    def extract(
        self, schema: type[T] | Target[T] | Any, text: str, **options: Unpack[ExtractOptions]
    ) -> Extraction[T]:
        """Extract a record from a text.

        Args:
            schema: a JSON Schema as a dict, or any type that pydantic can read from JSON: a model, a dataclass, a
                TypedDict, a Literal, an Enum, a union, ``list[...]`` and so on.
            text: the document.
            options: as for :meth:`generate`, as far as :class:`~constrain.extract.ExtractOptions` has them. The record
                has at most ``max_new_tokens``, by default 1024, and its tokens are the most likely ones by default.

        Raises:
            ArgumentError: another argument is of the wrong type, or out of its bounds.
            SchemaError: the schema is not valid, or cannot be enforced; says where.
            BudgetError: no record is as short as ``max_new_tokens``; says how short one is.
            ExtractionError: the text is too long, or the record cannot be read.
            GenerationTimeout: it took longer than ``timeout``.
        """
        return self.extractor.extract(Target.of(schema), text, **options)

    def extract_many(
        self,
        schema: type[T] | Target[T] | Any,
        texts: Iterable[str],
        *,
        ordered: bool = True,
        **options: Unpack[ExtractOptions],
    ) -> Iterator[Extraction[T] | Failure]:
        """Extract a record from each of many texts, several at a time.

        Args:
            schema: as for :meth:`extract`.
            texts: the documents; read as far ahead as there are places for requests.
            ordered: whether records come in the order of the texts, or as they are done; their ``index`` says which is
                which.
            options: as for :meth:`extract`.

        Returns:
            Extractions, each with the place of its text as ``index``. Where something is wrong with one text there is a
            :class:`Failure` in its place, with the ``error``.

        Raises:
            ArgumentError: another argument is of the wrong type, or out of its bounds.
            SchemaError: the schema is not valid.
        """
        return self.extractor.extract_many(Target.of(schema), texts, ordered=ordered, **options)

    def choose(self, prompt: str, options: Sequence[str]) -> str:
        """Return the option that the model continues the prompt with, taking the most likely token at each step.

        Raises:
            ArgumentError: the prompt is no text.
            GrammarError: there is no option, or an empty one, or a text in place of a list.
            GenerationError: the prompt leaves no room in the context.
        """
        texts = texts_of("options", options, GrammarError)
        # An option may be spelt in more tokens than the tokenizer would use, but not in more than it has bytes.
        most = 1 + max((len(text.encode()) for text in texts), default=0)
        return self.generate(prompt, choices=texts, max_new_tokens=most, settings=Settings.greedy()).text

    @overload
    async def agenerate(
        self,
        prompt: str | None = ...,
        *,
        messages: Messages | None = ...,
        n: Literal[1] = ...,
        **options: Unpack[GenerateOptions],
    ) -> Completion: ...

    @overload
    async def agenerate(
        self,
        prompt: str | None = ...,
        *,
        messages: Messages | None = ...,
        n: int,
        **options: Unpack[GenerateOptions],
    ) -> list[Completion]: ...

    async def agenerate(
        self,
        prompt: str | None = None,
        *,
        messages: Messages | None = None,
        n: int = 1,
        **options: Unpack[GenerateOptions],
    ) -> Completion | list[Completion]:
        """Continue a prompt, for ``await``; as :meth:`generate`. A task that is cancelled cancels the request."""
        check_count("n", n, 1)
        ask = _one_of(prompt, messages)
        begin = await asyncio.to_thread(self._beginner, options, n > 1)

        async def one(number: int) -> Completion:
            return await (await submitted(partial(begin, number, ask))).aresult()

        if n == 1:
            return await one(0)
        return list(await _gathered([one(number) for number in range(n)]))

    def astream(
        self, prompt: str | None = None, *, messages: Messages | None = None, **options: Unpack[GenerateOptions]
    ) -> AsyncStream:
        """Continue a prompt piece by piece, for ``async for``; as :meth:`generate` with ``stream=True``."""
        ask = _one_of(prompt, messages)
        return AsyncStream(lambda: self._beginner(options, copied=False)(0, ask))

    def agenerate_many(
        self,
        prompts: Iterable[PromptOrMessages] | AsyncIterable[PromptOrMessages],
        *,
        ordered: bool = True,
        **options: Unpack[GenerateOptions],
    ) -> AsyncIterator[Completion | Failure]:
        """Continue many prompts, for ``async for``; as :meth:`generate_many`. Prompts may come asynchronously."""
        return arun_many(self.runtime, self._beginner(options, copied=True), prompts, ordered=ordered)

    async def aextract(
        self, schema: type[T] | Target[T] | Any, text: str, **options: Unpack[ExtractOptions]
    ) -> Extraction[T]:
        """Extract a record, for ``await``; as :meth:`extract`. A task that is cancelled cancels the request."""
        return await self.extractor.aextract(Target.of(schema), text, **options)

    def aextract_many(
        self,
        schema: type[T] | Target[T] | Any,
        texts: Iterable[str] | AsyncIterable[str],
        *,
        ordered: bool = True,
        **options: Unpack[ExtractOptions],
    ) -> AsyncIterator[Extraction[T] | Failure]:
        """Extract many records, for ``async for``; as :meth:`extract_many`. Texts may come asynchronously."""
        return self.extractor.aextract_many(Target.of(schema), texts, ordered=ordered, **options)

    def _beginner(
        self, given: GenerateOptions, copied: bool
    ) -> Callable[[int, PromptOrMessages], Pending[Completion]]:
        """Compile constraints; returns what submits a prompt, given its place among several.

        Args:
            given: the options of the call.
            copied: whether each prompt gets copies of the filters.
        """
        named = {name: value for name, value in given.items() if name in _CONSTRAINTS}
        options = Options(**{name: value for name, value in given.items() if name not in _CONSTRAINTS})  # type: ignore[arg-type]
        filters = [*options.filters, *make_filters(self.model, self.tokenizer, **named)]  # type: ignore[arg-type]
        if copied:
            fresh_filters(filters)  # the error of one that cannot be copied comes at once

        def begin(number: int, ask: PromptOrMessages) -> Pending[Completion]:
            own = fresh_filters(filters) if copied else filters
            read = partial(replace, index=number)
            return submit(self.runtime, self._ids(ask), own, options.numbered(number), read)

        return begin

    def _ids(self, ask: PromptOrMessages) -> torch.Tensor:
        """Ids of a prompt, int64 of shape (1, n)."""
        if not isinstance(ask, (list, tuple)):
            return encode(self.tokenizer, ask)
        text = self.tokenizer.apply_chat_template(ask)
        ids: torch.Tensor = self.tokenizer.encode(text, encode_special_tokens=True)
        return ids


def _one_of(prompt: str | None, messages: Messages | None) -> PromptOrMessages:
    """A prompt, or messages as a list.

    Raises:
        ArgumentError: there are both or neither, or the messages are no list of such.
    """
    if messages is None:
        return prompt  # type: ignore[return-value]  # None is refused with everything else that is no text
    if prompt is not None:
        raise ArgumentError("give a prompt or messages, not both")
    if not isinstance(messages, (list, tuple)) or not all(isinstance(each, Mapping) for each in messages):
        raise ArgumentError("messages must be a list of dicts, each with role and content")
    return list(messages)


def _all_or_none(submits: Sequence[Callable[[], Pending[Completion]]]) -> list[Pending[Completion]]:
    """Submit several requests; where one cannot be, none is."""
    pending: list[Pending[Completion]] = []
    try:
        for each in submits:
            pending.append(each())
    except BaseException:
        _cancel(pending)
        raise
    return pending


def _results(pending: Sequence[Pending[Completion]]) -> list[Completion]:
    """Wait for several requests; where one fails, the others are cancelled."""
    try:
        return [each.result() for each in pending]
    finally:
        _cancel(pending)


def _cancel(pending: Sequence[Pending[Completion]]) -> None:
    for each in pending:
        each.cancel()


async def _gathered(work: Sequence[Any]) -> list[Completion]:
    """The results of coroutines; where one fails, the others are cancelled."""
    tasks = [asyncio.ensure_future(each) for each in work]
    try:
        return await asyncio.gather(*tasks)
    finally:
        for task in tasks:
            task.cancel()
