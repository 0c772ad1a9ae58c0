"""The class :class:`constrain.LLM`."""

from __future__ import annotations

import json
from collections.abc import Generator, Iterable, Sequence
from typing import TYPE_CHECKING, Any, Literal, TypeVar, overload

from constrain.arguments import check_count, texts_of
from constrain.completion import Completion, Failure, Stream, run_many, successes
from constrain.documents import DocumentLike
from constrain.errors import ArgumentError, ExtractionError, GenerationError, GrammarError
from constrain.extract import Extraction, ExtractionStream, ExtractOptions, Target
from constrain.extract.prompts.builtin_form import BuiltinForm
from constrain.generator.settings import Settings
from constrain.llm.asynchronous import AsyncMethods
from constrain.llm.base import GenerateOptions, Messages, PromptOrMessages, one_of

if TYPE_CHECKING:
    from typing_extensions import Unpack

T = TypeVar("T")


class LLM(AsyncMethods):
    """A loaded model; see :func:`load`. Threads and tasks may share it: their requests are batched together.

    Attributes:
        runtime: the runtime that runs the requests.
        extractor: the extractor that :meth:`extract` uses.
    """

    @overload
    def generate(  # type: ignore[overload-overlap]  # 1 is an int
        self,
        prompt: str | None = ...,
        *,
        messages: Messages | None = ...,
        n: Literal[1] = ...,
        faithful: bool = ...,
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
        faithful: bool = ...,
        stream: Literal[False] = ...,
        **options: Unpack[GenerateOptions],
    ) -> list[Completion]: ...

    def generate(
        self,
        prompt: str | None = None,
        *,
        messages: Messages | None = None,
        n: int = 1,
        faithful: bool = False,
        stream: bool = False,
        **options: Unpack[GenerateOptions],
    ) -> Completion | list[Completion] | Stream:
        """Generate a completion of a prompt, or an answer to a conversation.

        If several constraints are given, the output meets all of them. A JSON Schema, regular expression, grammar or
        list of choices is completed within ``max_new_tokens``.

        Args:
            prompt: the text to complete.
            messages: a conversation instead of a prompt, each message with ``role`` and ``content``; the model's chat
                template converts it into a prompt. Contents may have images, see :func:`load`.
            n: number of outputs; a list is returned for more than one. Output ``i`` uses ``seed + i``. If one fails,
                its error is raised, and the others are cancelled.
            faithful: sample from the distribution of the model, given that the constraints allow the output: each
                completion has a ``weight``, and all are sampled together, from seeds made of ``seed``. No sampling
                settings or stop strings may be given, and filters must have ``clone()`` and add nothing to logits.
                The more outputs, the better they stand for the distribution; 64 are a good number.
            stream: return an iterator over the text as it is generated. Its ``completion`` is set at the end; closing
                it cancels the request.
            json_schema: a JSON Schema, or a type (see :meth:`extract`); the output is a document that matches it.
            regex: a regular expression that matches the whole output, as a string or compiled.
            grammar: a Lark grammar whose rule ``start`` derives the output, or a grammar in GBNF.
            grammars: further grammars, referred to as ``@name`` in ``grammar``; see
                :func:`~constrain.engine.compile_lark`.
            choices: texts, one of which is the output.
            prefix: a string that the output begins with, or several alternatives.
            filters: further filters, for example from :func:`constrain.filters.create`, or
                :class:`~constrain.filters.NamedFilter`.
            max_new_tokens: maximum number of output tokens, by default 256; lowered to what fits in the context.
            settings: sampling settings; by default ``ExLlamaV2Sampler.Settings()``.
            temperature, top_p, top_k, min_p: override those in ``settings``.
            stop: a string or id, or several, before which the output ends.
            seed: makes sampling reproducible, regardless of other requests in the batch.
            logprobs: report the log probability of each token, and this number of most likely tokens with theirs.
            timeout: seconds after which the request is cancelled, with all of its outputs.
            priority: requests with a higher priority start first.

        Raises:
            ArgumentError: an argument is of the wrong type or out of range.
            GrammarError: a constraint does not compile, or there are ``grammars`` and no ``grammar``.
            BudgetError: the constraints allow no output within ``max_new_tokens``; reports the minimum.
            GenerationError: the prompt leaves no room in the context; or ``n`` faithful outputs do not fit in a batch
                or in the cache together, or none of them could be completed.
            TokenizerError: messages are given, and the model has no chat template, or the template rejects them.
            FilterError: the constraints together allow no output, or a filter failed.
            GenerationTimeout: the request took longer than ``timeout``.
        """
        check_count("n", n, 1)
        if stream and n > 1:
            raise ArgumentError(f"a stream is of one text, not of n={n}")
        ask = one_of(prompt, messages)
        if faithful:
            if stream:
                raise ArgumentError("faithful outputs get their weights at the end, so that they cannot be streamed")
            weighted = self.submit_faithful(options, n, ask).result()
            return weighted[0] if n == 1 else weighted
        submit_one = self.submitter(options, copied=n > 1, together=n > 1)
        if stream:
            return Stream(submit_one(0, ask))
        if n == 1:
            return submit_one(0, ask).result()
        return successes(run_many(self.runtime, lambda number, _: submit_one(number, ask), range(n)))

    def generate_many(
        self, prompts: Iterable[PromptOrMessages], *, ordered: bool = True, **options: Unpack[GenerateOptions]
    ) -> Generator[Completion | Failure, None, None]:
        """Generate completions of many prompts, several at a time.

        Args:
            prompts: texts to complete, or conversations to answer; read only as far ahead as there are request slots.
            ordered: whether completions are yielded in the order of the prompts, or as they finish, identified by
                their ``index``.
            options: as for :meth:`generate`. Prompt ``i`` uses ``seed + i``.

        Returns:
            Completions, each with the position of its prompt as ``index``. A prompt that failed has a :class:`Failure`
            instead, with the ``error``.

        Raises:
            ArgumentError: an argument other than a prompt is of the wrong type or out of range.
            GrammarError: a constraint does not compile.
        """
        return run_many(self.runtime, self.submitter(options, copied=True), prompts, ordered=ordered)

    @overload
    def extract(
        self, schema: type[T] | Target[T], document: DocumentLike, **options: Unpack[ExtractOptions]
    ) -> Extraction[T]: ...

    @overload
    def extract(self, schema: Any, document: DocumentLike, **options: Unpack[ExtractOptions]) -> Extraction[Any]: ...

    def extract(self, schema: Any, document: DocumentLike, **options: Unpack[ExtractOptions]) -> Extraction[Any]:
        """Extract a record from a text or an image.

        Args:
            schema: a JSON Schema as a dict, or any type that pydantic can read from JSON: a model, a dataclass, a
                TypedDict, a Literal, an Enum, a union, ``list[...]`` and so on.
            document: the document, its text, or a Pillow image.
            options: see :class:`~constrain.extract.ExtractOptions`: options of :meth:`generate`, with which by default
                ``max_new_tokens`` is 1024 and sampling is greedy, and ``instructions``, ``examples`` and ``thinking``.

        Raises:
            ArgumentError: another argument is of the wrong type or out of range, or an example does not match the
                schema.
            SchemaError: the schema is not valid, or cannot be enforced; reports where.
            BudgetError: no record fits in ``max_new_tokens``; reports the minimum.
            ExtractionError: the document is empty or does not fit in the context, the record cannot be read, or the
                document is an image and the model reads none or the schema asks for quotes.
            DocumentError: the image is broken.
            GenerationTimeout: the request took longer than ``timeout``.
        """
        return self.extractor.extract(Target.of(schema), document, **options)

    @overload
    def extract_stream(
        self, schema: type[T] | Target[T], document: DocumentLike, **options: Unpack[ExtractOptions]
    ) -> ExtractionStream[T]: ...

    @overload
    def extract_stream(
        self, schema: Any, document: DocumentLike, **options: Unpack[ExtractOptions]
    ) -> ExtractionStream[Any]: ...

    def extract_stream(
        self, schema: Any, document: DocumentLike, **options: Unpack[ExtractOptions]
    ) -> ExtractionStream[Any]:
        """Extract a record, and show it while the model writes it, in a loop with ``for`` or ``async for``.

        Each time a value is complete, the loop gets a :class:`~constrain.extract.Partial` with all values so far.

        Args:
            schema: as for :meth:`extract`.
            document: the document, its text, or a Pillow image.
            options: as for :meth:`extract`.

        Raises:
            ArgumentError: another argument is of the wrong type or out of range.
            SchemaError: the schema is not valid. The other errors of :meth:`extract` are raised by the loop.
        """
        return self.extractor.extract_stream(Target.of(schema), document, **options)

    @overload
    def extract_many(
        self,
        schema: type[T] | Target[T],
        texts: Iterable[DocumentLike],
        *,
        ordered: bool = ...,
        **options: Unpack[ExtractOptions],
    ) -> Generator[Extraction[T] | Failure, None, None]: ...

    @overload
    def extract_many(
        self,
        schema: Any,
        texts: Iterable[DocumentLike],
        *,
        ordered: bool = ...,
        **options: Unpack[ExtractOptions],
    ) -> Generator[Extraction[Any] | Failure, None, None]: ...

    def extract_many(
        self,
        schema: Any,
        texts: Iterable[DocumentLike],
        *,
        ordered: bool = True,
        **options: Unpack[ExtractOptions],
    ) -> Generator[Extraction[Any] | Failure, None, None]:
        """Extract a record from each of many texts, several at a time.

        Args:
            schema: as for :meth:`extract`.
            texts: the documents; read only as far ahead as there are request slots.
            ordered: whether records are yielded in the order of the texts, or as they finish, identified by their
                ``index``.
            options: as for :meth:`extract`.

        Returns:
            Extractions, each with the position of its text as ``index``. A text that failed has a :class:`Failure`
            instead, with the ``error``.

        Raises:
            ArgumentError: another argument is of the wrong type or out of range.
            SchemaError: the schema is not valid.
        """
        return self.extractor.extract_many(Target.of(schema), texts, ordered=ordered, **options)

    def choose(self, prompt: str, options: Sequence[str]) -> str:
        """Return the option that the model generates after the prompt, with greedy sampling.

        The built-in model, which completes no texts, is asked in its own form which option the prompt, as a document,
        calls for.

        Raises:
            ArgumentError: the prompt is not a string.
            GrammarError: there are no options, one is empty, or ``options`` is a single string.
            GenerationError: the prompt leaves no room in the context.
        """
        texts = texts_of("options", options, GrammarError)
        if isinstance(self.extractor.form, BuiltinForm) and texts and all(texts):
            return self._extracted_choice(prompt, texts)
        # The model may use a longer tokenization of an option than the tokenizer, but at most one token per byte.
        most = 1 + max((len(text.encode()) for text in texts), default=0)
        return self.generate(prompt, choices=texts, max_new_tokens=most, settings=Settings.greedy()).text

    def _extracted_choice(self, prompt: str, options: Sequence[str]) -> str:
        most = max(len(json.dumps(option)) for option in options)
        try:
            return str(self.extract({"enum": options}, prompt, max_new_tokens=most).json)
        except ExtractionError as error:
            raise GenerationError(str(error)) from error
