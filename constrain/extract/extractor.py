"""Documents in, records out: the prompt, the constraint, one completion, and the reading of what was written."""

from __future__ import annotations

import json
from collections.abc import (
    AsyncGenerator,
    AsyncIterable,
    Callable,
    Generator,
    Iterable,
    Mapping,
    Sequence,
)
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar, Generic, TypeAlias, TypedDict, TypeVar

from constrain.arguments import check_text, check_type, refused
from constrain.completion import (
    Completion,
    Failure,
    FinishReason,
    Options,
    Pending,
    arun_many,
    encode,
    fresh_filters,
    run_many,
    runtime_of,
    submit,
    submitted,
)
from constrain.engine import CompiledGrammar, compile_json_schema, grammar_cache
from constrain.errors import ExtractionError, GenerationError, GrammarError
from constrain.extract.bounds import bounded, max_length
from constrain.extract.prompt import build_prompt
from constrain.extract.target import Target
from constrain.filters.engine import ExLlamaV2EngineFilter, vocabulary_of
from constrain.generator.settings import Settings

if TYPE_CHECKING:
    from typing_extensions import Unpack

T = TypeVar("T")

#: The name by which ``x-verbatim`` refers to the document.
SOURCE = "text"

#: Makes the prompt from a schema and a text.
Prompt: TypeAlias = Callable[[Mapping[str, Any], str], str]


@dataclass(frozen=True)
class Extraction(Generic[T]):
    """A record that was extracted from a text.

    Attributes:
        value: the record as the type asked for; the same as ``json`` where a dict schema was given.
        json: the record as parsed JSON.
        text: the record as the model wrote it.
        tokens: its token ids, without the end-of-sequence token.
        finish_reason: ``"stop"``; ``"length"`` or ``"repetition"`` where the tokens ran out just when the record was
            complete, see :class:`Completion`.
        index: place of the text among many.
        error: none; what failed among many is a :class:`Failure` instead, which has one.
    """

    value: T
    json: Any
    text: str
    tokens: list[int]
    finish_reason: FinishReason
    index: int = 0
    error: ClassVar[None] = None


class ExtractOptions(TypedDict, total=False):
    """Options of extractions; see :class:`~constrain.completion.Options`, but for what is said here.

    ``max_new_tokens`` is 1024 by default. Without ``settings``, ``temperature`` and the like, the most likely tokens
    are taken.
    """

    filters: Sequence[Any]
    max_new_tokens: int
    settings: Settings | None
    temperature: float | None
    top_p: float | None
    top_k: int | None
    min_p: float | None
    seed: int | None
    timeout: float | None
    priority: int


class Extractor:
    """Extracts records on a runtime. Threads may share it.

    Compiled schemas are kept in ``constrain.engine.grammar_cache``: many documents under one schema pay for it once. A
    schema that takes strings from the document, with ``"x-verbatim": {"source": "text"}``, is compiled for each.

    Numbers and strings that a schema does not bound are bounded by default, so that no digit or word can run on:
    numbers have at most 15 digits before the point, and strings at most twice as many characters as the text, rounded
    up to a power of two, and 256 at least.

    Attributes:
        runtime: that requests are submitted to.
        prompt: makes the prompt.
    """

    def __init__(self, runtime: Any, prompt: Prompt = build_prompt) -> None:
        """
        Args:
            runtime: a :class:`~constrain.runtime.Runtime`, or what has one as its ``runtime``, as generators have.
            prompt: makes the prompt; the default is the form that the built-in model was trained on.

        Raises:
            ArgumentError: an argument is of the wrong type.
        """
        self.runtime = runtime_of(runtime)
        if not callable(prompt):
            raise refused("prompt", prompt, "a function from a schema and a text to a prompt")
        self.prompt = prompt

    def extract(self, target: Target[T], text: str, **options: Unpack[ExtractOptions]) -> Extraction[T]:
        """Extract one record.

        Args:
            target: what the record has to be.
            text: the document.
            options: see :class:`ExtractOptions`.

        Raises:
            ArgumentError: an argument is of the wrong type, or out of its bounds.
            SchemaError: the schema does not compile.
            BudgetError: no record is as short as ``max_new_tokens``.
            ExtractionError: the text is too long, or the record cannot be read.
            GenerationTimeout: it took longer than ``timeout``.
        """
        return self.submit(target, text, _options(options)).result()

    async def aextract(self, target: Target[T], text: str, **options: Unpack[ExtractOptions]) -> Extraction[T]:
        """Extract one record, for ``await``; arguments and errors as for :meth:`extract`."""
        made = _options(options)
        return await (await submitted(lambda: self.submit(target, text, made))).aresult()

    def extract_many(
        self, target: Target[T], texts: Iterable[str], *, ordered: bool = True, **options: Unpack[ExtractOptions]
    ) -> Generator[Extraction[T] | Failure, None, None]:
        """Extract a record from each of many texts, several at a time.

        Args:
            target: what the records have to be.
            texts: the documents; read as far ahead as there are places for requests.
            ordered: whether results come in the order of the texts, or as they are done.
            options: see :class:`ExtractOptions`.

        Raises:
            ArgumentError: an argument other than a text is of the wrong type, or out of its bounds. What is wrong with
                one text is a :class:`Failure` in its place.
        """
        return run_many(self.runtime, self._submitter(target, options), texts, ordered=ordered)

    def aextract_many(
        self,
        target: Target[T],
        texts: Iterable[str] | AsyncIterable[str],
        *,
        ordered: bool = True,
        **options: Unpack[ExtractOptions],
    ) -> AsyncGenerator[Extraction[T] | Failure, None]:
        """Extract a record from each of many texts, for ``async for``; arguments as for :meth:`extract_many`."""
        return arun_many(self.runtime, self._submitter(target, options), texts, ordered=ordered)

    def submit(self, target: Target[T], text: str, options: Options, index: int = 0) -> Pending[Extraction[T]]:
        """Begin to extract a record; errors as for :meth:`extract`."""
        _check_target(target)
        check_text("text", text)
        runtime = self.runtime
        constraint = ExLlamaV2EngineFilter(runtime.model, runtime.tokenizer, self._grammar(target.schema, text))
        ids = encode(runtime.tokenizer, self.prompt(target.schema, text))
        read = partial(_read, target, options.max_new_tokens, index)
        try:
            return submit(runtime, ids, [constraint, *options.filters], options, read, Settings.greedy())
        except GenerationError as error:
            raise ExtractionError(str(error)) from error

    def _submitter(self, target: Target[T], options: ExtractOptions) -> Callable[[int, str], Pending[Extraction[T]]]:
        """Begins to extract a record from one of many texts."""
        _check_target(target)
        made = _options(options)
        fresh_filters(made.filters)

        def submit_one(index: int, text: str) -> Pending[Extraction[T]]:
            return self.submit(target, text, replace(made, filters=fresh_filters(made.filters)), index)

        return submit_one

    def _grammar(self, schema: dict[str, Any], text: str) -> CompiledGrammar:
        """The schema with default bounds; as it is, where it leaves nothing within these, or has other errors."""
        try:
            return self._compiled(bounded(schema, max_length(text)), text)
        except GrammarError:
            return self._compiled(schema, text)

    def _compiled(self, schema: dict[str, Any], text: str) -> CompiledGrammar:
        vocabulary = vocabulary_of(self.runtime.tokenizer)
        # The order of the schema and the spacing of json.dumps: what models write anyway, and the fewest choices.
        if '"x-verbatim"' in json.dumps(schema):
            return compile_json_schema(
                schema, vocabulary, whitespace="single", property_order="schema", sources={SOURCE: text}
            )
        return grammar_cache.compile(
            compile_json_schema, schema, vocabulary, whitespace="single", property_order="schema"
        )


def _check_target(target: Any) -> None:
    check_type("target", target, Target, "a Target, which Target.of makes of a schema or a type")


def _options(given: ExtractOptions) -> Options:
    options: dict[str, Any] = {"max_new_tokens": 1024, **given}
    return Options(**options)


def _read(target: Target[T], max_new_tokens: int, index: int, written: Completion) -> Extraction[T]:
    """The record of a completion."""
    try:
        document, value = target.read(written.text)
    except ExtractionError as error:
        reason = error.reason
        if not written.complete:
            reason = f"the record was not complete after {len(written.tokens)} tokens; "
            full = len(written.tokens) < max_new_tokens
            reason += "the context of the model is full" if full else "raise max_new_tokens"
        raise ExtractionError(reason, written.text, written.finish_reason) from error.__cause__
    return Extraction(value, document, written.text, written.tokens, written.finish_reason, index)
