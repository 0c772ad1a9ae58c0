"""The object that a loaded model is."""

from __future__ import annotations

from collections.abc import (
    Callable,
    Generator,
    Iterable,
    Sequence,
)
from functools import partial
from typing import TYPE_CHECKING, Any, Literal, TypeVar, overload

from constrain.arguments import check_count, texts_of
from constrain.completion import (
    Completion,
    Failure,
    Pending,
    Stream,
    run_many,
)
from constrain.errors import ArgumentError, GrammarError
from constrain.extract import Extraction, ExtractOptions, Target
from constrain.generator.settings import Settings
from constrain.llm.asynchronous import AsyncMethods
from constrain.llm.base import GenerateOptions, Messages, PromptOrMessages, one_of

if TYPE_CHECKING:
    from typing_extensions import Unpack

T = TypeVar("T")


class LLM(AsyncMethods):
    """A loaded model; see :func:`load`. Threads and tasks may share it: their requests run side by side.

    Attributes:
        runtime: what runs the requests.
        extractor: what :meth:`extract` calls.
    """

    @overload
    def generate(  # type: ignore[overload-overlap]  # 1 is an int
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
        submit_one = self.submitter(options, copied=n > 1)
        ask = one_of(prompt, messages)
        if stream:
            return Stream(submit_one(0, ask))
        pending = _all_or_none([partial(submit_one, number, ask) for number in range(n)])
        found = _results(pending)
        return found[0] if n == 1 else found

    def generate_many(
        self, prompts: Iterable[PromptOrMessages], *, ordered: bool = True, **options: Unpack[GenerateOptions]
    ) -> Generator[Completion | Failure, None, None]:
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
        return run_many(self.runtime, self.submitter(options, copied=True), prompts, ordered=ordered)

    @overload
    def extract(self, schema: type[T] | Target[T], text: str, **options: Unpack[ExtractOptions]) -> Extraction[T]: ...

    @overload
    def extract(self, schema: Any, text: str, **options: Unpack[ExtractOptions]) -> Extraction[Any]: ...

    def extract(self, schema: Any, text: str, **options: Unpack[ExtractOptions]) -> Extraction[Any]:
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

    @overload
    def extract_many(
        self,
        schema: type[T] | Target[T],
        texts: Iterable[str],
        *,
        ordered: bool = ...,
        **options: Unpack[ExtractOptions],
    ) -> Generator[Extraction[T] | Failure, None, None]: ...

    @overload
    def extract_many(
        self,
        schema: Any,
        texts: Iterable[str],
        *,
        ordered: bool = ...,
        **options: Unpack[ExtractOptions],
    ) -> Generator[Extraction[Any] | Failure, None, None]: ...

    def extract_many(
        self,
        schema: Any,
        texts: Iterable[str],
        *,
        ordered: bool = True,
        **options: Unpack[ExtractOptions],
    ) -> Generator[Extraction[Any] | Failure, None, None]:
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
