"""Extraction of records from documents: build the prompt, compile the schema, generate, and parse the output."""

from __future__ import annotations

from collections.abc import (
    AsyncGenerator,
    AsyncIterable,
    Callable,
    Generator,
    Iterable,
)
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar
from weakref import WeakKeyDictionary, WeakValueDictionary

import torch

from constrain.arguments import check_type, refused
from constrain.completion import (
    Completion,
    Failure,
    Pending,
    PendingResult,
    PendingRounds,
    Rounds,
    arun_many,
    fresh_filters,
    run_many,
    runtime_of,
    submit,
    submitted,
)
from constrain.completion.images import MessageImages, no_images
from constrain.documents import Document, DocumentLike, decode_image
from constrain.engine import CompiledGrammar, compile_json_schema, grammar_cache
from constrain.errors import ArgumentError, ExtractionError, GenerationError, GrammarError
from constrain.extract.bounds import IMAGE_LENGTH, max_length
from constrain.extract.calibration import Calibration
from constrain.extract.confidence import ConfidenceReader
from constrain.extract.evidence import SOURCE
from constrain.extract.exact import score_branches
from constrain.extract.extraction import Extraction
from constrain.extract.list_ends import with_more_items
from constrain.extract.long import LongExtraction
from constrain.extract.mistakes import warn_of_mistakes
from constrain.extract.options import ExtractionOptions, ExtractOptions
from constrain.extract.partial import ExtractionStream, PartialReader
from constrain.extract.prompts.builtin_form import BuiltinForm
from constrain.extract.prompts.chat_form import ChatForm
from constrain.extract.prompts.choose import OwnForm, Prompt, choose_form
from constrain.extract.prompts.form import PromptForm
from constrain.extract.reader import RecordReader
from constrain.extract.target import Target
from constrain.filters.engine_filter import ExLlamaV2EngineFilter
from constrain.filters.named import created
from constrain.filters.thinking import Thinking
from constrain.filters.vocabularies import vocabulary_of
from constrain.generator.settings import Settings

if TYPE_CHECKING:
    from typing_extensions import Unpack

T = TypeVar("T")
R = TypeVar("R")


class Extractor:
    """Extracts records on a runtime. Threads may share it.

    Compiled schemas are cached in ``constrain.engine.grammar_cache``, so a schema is compiled once for many documents.
    Keywords that look misspelled give a :class:`SchemaWarning`.
    A schema that copies strings from the document, with ``"x-verbatim": {"source": "text"}``, is compiled for each.

    Numbers and strings that a schema does not bound are bounded by default, so that the model cannot repeat endlessly:
    numbers have at most 15 digits before the decimal point, and strings at most twice as many characters as the text,
    rounded up to a power of two, and at least 256; for an image, 4096.

    Attributes:
        runtime: the runtime that requests are submitted to.
        form: makes the prompts.
        calibration: makes the probabilities of values the shares of right values, and doubtful values null; ``None``:
            as the model gives them.
    """

    def __init__(
        self,
        runtime: Any,
        prompt: Prompt | None = None,
        calibration: Calibration | str | Path | None = None,
        images: MessageImages | None = None,
    ) -> None:
        """
        Args:
            runtime: a :class:`~constrain.runtime.Runtime`, or an object with one as its attribute ``runtime``, such as
                a generator.
            prompt: builds the prompt from a schema and a text; by default it is made in the form that fits the model:
                that of the built-in model, its own chat template, or a plain text.
            calibration: makes the probabilities of values the shares of right values, and doubtful values null; or the
                path of one. By default ``constrain_calibration.json`` in the folder of the model, if there is one.
            images: encodes conversations with images, so that documents may be images.

        Raises:
            ArgumentError: an argument is of the wrong type.
            TokenizerError: the chat template of the model is malformed.
        """
        self.runtime = runtime_of(runtime)
        if prompt is not None and not callable(prompt):
            raise refused("prompt", prompt, "a function from a schema and a text to a prompt")
        tokenizer = self.runtime.tokenizer
        self.form: PromptForm = choose_form(tokenizer) if prompt is None else OwnForm(tokenizer, prompt)
        self.calibration = Calibration.of_model(self.runtime.model.config.model_dir, Calibration.of(calibration))
        self._confidence = ConfidenceReader(tokenizer)
        self._images = images
        self._greedy = Settings.greedy()
        #: Compiled grammars in use, by the default ``maxLength`` of strings.
        self._grammars: WeakKeyDictionary[Target[Any], WeakValueDictionary[int, CompiledGrammar]] = WeakKeyDictionary()

    def extract(self, target: Target[T], document: DocumentLike, **options: Unpack[ExtractOptions]) -> Extraction[T]:
        """Extract one record.

        Args:
            target: schema and type of the record.
            document: the document, its text, or a Pillow image.
            options: see :class:`ExtractOptions`.

        Raises:
            ArgumentError: an argument is of the wrong type or out of range.
            SchemaError: the schema does not compile.
            BudgetError: no record fits in ``max_new_tokens``.
            ExtractionError: the document is empty or does not fit in the context, the record cannot be read, or the
                document is an image and the model reads none or the schema asks for quotes.
            DocumentError: the image is broken.
            GenerationTimeout: the request took longer than ``timeout``.
        """
        return self.submit(target, document, self._options(target, options)).result()

    async def aextract(
        self, target: Target[T], document: DocumentLike, **options: Unpack[ExtractOptions]
    ) -> Extraction[T]:
        """Extract one record asynchronously; arguments and errors as for :meth:`extract`."""
        made = self._options(target, options)
        return await (await submitted(lambda: self.submit(target, document, made))).aresult()

    def extract_many(
        self,
        target: Target[T],
        texts: Iterable[DocumentLike],
        *,
        ordered: bool = True,
        **options: Unpack[ExtractOptions],
    ) -> Generator[Extraction[T] | Failure, None, None]:
        """Extract a record from each of many texts, several at a time.

        Args:
            target: schema and type of the records.
            texts: the documents; read only as far ahead as there are request slots.
            ordered: whether results are yielded in the order of the texts, or as they finish.
            options: see :class:`ExtractOptions`.

        Raises:
            ArgumentError: an argument other than a text is of the wrong type or out of range. A text that failed
                yields a :class:`Failure` instead.
        """
        return run_many(self.runtime, self.submitter(target, **options), texts, ordered=ordered)

    def aextract_many(
        self,
        target: Target[T],
        texts: Iterable[DocumentLike] | AsyncIterable[DocumentLike],
        *,
        ordered: bool = True,
        **options: Unpack[ExtractOptions],
    ) -> AsyncGenerator[Extraction[T] | Failure, None]:
        """Extract a record from each of many texts, for ``async for``; arguments as for :meth:`extract_many`."""
        return arun_many(self.runtime, self.submitter(target, **options), texts, ordered=ordered)

    def extract_stream(
        self, target: Target[T], document: DocumentLike, **options: Unpack[ExtractOptions]
    ) -> ExtractionStream[T]:
        """Return the partial records of an extraction, for ``for`` and ``async for``.

        Arguments and errors as for :meth:`extract`; errors other than those of arguments are raised by the loop.
        """
        made, read = self._options(target, options), _not_empty(document)
        if made.exact:
            raise ArgumentError("a stream has no exact confidence: it would have to wait for further requests")

        def submit_one(grammar: CompiledGrammar) -> PendingResult[Extraction[T]]:
            if read.image is not None:
                return self.submit_image(target, read, made)
            long = LongExtraction(self, target, read, made)
            if long.fits:
                return self.submit_whole(target, read, made, grammar=grammar, prompt=long.prompt)
            return self.submit(target, read, made)

        return ExtractionStream(lambda: PartialReader(target, read, self.grammar(target, read)), submit_one)

    def submit(
        self, target: Target[T], document: DocumentLike, options: ExtractionOptions, index: int = 0
    ) -> PendingResult[Extraction[T]]:
        """Submit the extraction of a record, without waiting for it; errors as for :meth:`extract`."""
        read = _not_empty(document)
        if read.image is not None:
            return self.submit_image(target, read, options, index)
        return PendingRounds(LongExtraction(self, target, read, options, index).rounds())

    def submit_image(
        self, target: Target[T], document: Document, options: ExtractionOptions, index: int = 0
    ) -> PendingResult[Extraction[T]]:
        """Submit the extraction of a record from an image; errors as for :meth:`extract`."""
        assert document.image is not None
        if not isinstance(self.form, ChatForm) or self._images is None:
            raise ExtractionError(f"the document is an image, but {self._no_images()}")
        if target.has_quotes:
            raise ExtractionError("the document is an image, and the schema asks for quotes, which only a text has")
        image = decode_image(document.image, document.source or "the document")
        messages = self.form.image_messages(options.task)
        prompt, embeddings = self._images.encode(messages, [image], enable_thinking=options.thinking > 0)
        return self.submit_whole(target, document, replace(options, embeddings=embeddings), index, prompt=prompt)

    def _no_images(self) -> str:
        """Return why no record is extracted from an image."""
        if isinstance(self.form, BuiltinForm):
            return "the built-in model reads texts only: load a model with a vision tower"
        if self._images is None:
            return no_images(self.runtime.model)
        return "the prompt is a function of a text" if isinstance(self.form, OwnForm) else "there is no chat template"

    def submit_whole(
        self,
        target: Target[T],
        document: Document,
        options: ExtractionOptions,
        index: int = 0,
        *,
        grammar: CompiledGrammar | None = None,
        prompt: torch.Tensor | None = None,
    ) -> PendingResult[Extraction[T]]:
        """Submit the extraction of a record as one request; errors as for :meth:`extract`, and for long documents.

        With exact confidence, further requests follow.

        Args:
            target: schema and type of the record.
            document: the document.
            options: the options.
            index: position of the document among many.
            grammar: what :meth:`grammar` returns, if it was called before.
            prompt: what :meth:`encode_prompt` returns, if it was called before.
        """
        grammar = grammar or self.grammar(target, document)
        ids = self.encode_prompt(document.text, options) if prompt is None else prompt
        confidence, calibration, limit = self._confidence, self.calibration, options.max_new_tokens
        reader = RecordReader(target, document, index, limit, grammar, confidence, calibration, options.confidence)
        if not options.confidence and calibration is not None and calibration.has_margins:
            options = replace(options, confidence=True, watched_tokens=confidence.watched_tokens)
        end_margin = calibration.end_margin if calibration is not None and not options.filters else None
        if options.exact or end_margin:
            return PendingRounds(self._in_rounds(reader, ids, options, end_margin or 0))
        return self._submitted(reader, ids, options, reader.read)

    def _in_rounds(
        self, reader: RecordReader[T], ids: torch.Tensor, options: ExtractionOptions, end_margin: float
    ) -> Rounds[Extraction[T]]:
        """Extract a record, let its lists go on, and score what is not known of the alternatives of its values."""
        (written,) = yield [self._submitted(reader, ids, options, lambda written: written)]
        if end_margin and written.complete:
            written = yield from with_more_items(self.runtime, reader, written, options, end_margin)
        leaves = reader.leaves(written)
        if options.exact:
            watched, embeddings = self._confidence.watched_tokens, tuple(options.embeddings)
            yield from score_branches(self.runtime, reader.grammar, written, leaves, watched, embeddings)
        return reader.extraction(written, leaves)

    def _submitted(
        self,
        reader: RecordReader[Any],
        ids: torch.Tensor,
        options: ExtractionOptions,
        read: Callable[[Completion], R],
    ) -> Pending[R]:
        """Submit the request for a record, which ``read`` converts."""
        try:
            thinking = self._thinking(ids, options.thinking)
            filters = [self._constraint(reader.grammar), *options.filters]
            return submit(self.runtime, ids, filters, options, read, self._greedy, thinking)
        except GenerationError as error:
            fewer = ", or give fewer examples" if options.task.examples else ""
            raise ExtractionError(f"{error}{fewer}") from error

    @property
    def context(self) -> int:
        """Number of tokens of the context of a request."""
        return self.runtime.max_seq_len

    def count_tokens(self, text: str) -> int:
        """Count the tokens of a text."""
        return int(self.runtime.tokenizer.encode(text).shape[-1])

    def count_min_tokens(self, target: Target[Any], document: Document) -> int:
        """Count the tokens of the shortest record of a document.

        Raises:
            SchemaError: the schema does not compile.
        """
        constraint = self._constraint(self.grammar(target, document))
        constraint.begin()
        return constraint.min_tokens()

    def encode_prompt(self, text: str, options: ExtractionOptions) -> torch.Tensor:
        """Encode the prompt for a document, as int64 of shape (1, n)."""
        return self.form.encode(options.task, text, think=options.thinking > 0)

    def _options(self, target: Target[Any], given: ExtractOptions) -> ExtractionOptions:
        check_type("target", target, Target, "a Target, which Target.of makes of a schema or a type")
        made = ExtractionOptions.of(target, given)
        if made.thinking and self.form.thinking is None:
            raise ArgumentError("thinking needs a model that thinks: the tokenizer of this one has no marks for it")
        if isinstance(self.form, OwnForm) and (made.task.instructions or made.task.examples):
            raise ArgumentError("a prompt of one's own takes no instructions and examples: let the function add them")
        filters = created(made.filters, self.runtime.model, self.runtime.tokenizer)
        watched = self._confidence.watched_tokens if made.confidence else None
        return replace(made, filters=filters, watched_tokens=watched)

    def _thinking(self, ids: torch.Tensor, limit: int) -> Thinking | None:
        """Return how the model may think after a prompt: ``None`` if it begins with the record."""
        marks = self.form.thinking
        if marks is None:
            return None
        is_open = marks.are_open(ids[0].tolist())
        if not limit and not is_open:
            return None
        return Thinking(() if is_open else marks.opening, marks.closing, limit)

    def submitter(
        self, target: Target[T], **options: Unpack[ExtractOptions]
    ) -> Callable[[int, DocumentLike], PendingResult[Extraction[T]]]:
        """Return a function that submits the extraction of a record from one of many texts, given its position."""
        made = self._options(target, options)
        fresh_filters(made.filters)

        def submit_one(index: int, document: DocumentLike) -> PendingResult[Extraction[T]]:
            own = replace(made, filters=fresh_filters(made.filters)) if made.filters else made
            return self.submit(target, document, own, index)

        return submit_one

    def grammar(self, target: Target[Any], document: Document) -> CompiledGrammar:
        """Compile what the model may write for a document.

        The schema has default bounds, unless it does not compile with them, for example if no record meets them.

        Raises:
            SchemaError: the schema does not compile.
        """
        longest = max_length(document.text) if document.image is None else IMAGE_LENGTH
        if target.has_quotes:
            return self._compiled(partial(compile_json_schema, sources={SOURCE: document.text}), target, longest)
        grammars = self._grammars.setdefault(target, WeakValueDictionary())
        grammar = grammars.get(longest)
        if grammar is None:
            grammar = self._compiled(partial(grammar_cache.compile, compile_json_schema), target, longest)
            grammars[longest] = grammar
        return grammar

    def _constraint(self, grammar: CompiledGrammar) -> ExLlamaV2EngineFilter:
        constraint = ExLlamaV2EngineFilter(self.runtime.model, self.runtime.tokenizer, grammar)
        constraint.argument = "schema"
        return constraint

    def _compiled(self, compiler: Callable[..., CompiledGrammar], target: Target[Any], longest: int) -> CompiledGrammar:
        # Property order of the schema, spacing and integers of json.dumps: the usual output of models, and the
        # smallest grammar.
        layout = {"whitespace": "single", "property_order": "schema", "integers": "plain"}
        vocabulary = vocabulary_of(self.runtime.tokenizer)
        try:
            grammar = compiler(target.bounded_schema(longest), vocabulary, **layout)
        except GrammarError:
            grammar = compiler(target.output_schema, vocabulary, **layout)
        warn_of_mistakes(grammar.report)
        return grammar


def _not_empty(document: DocumentLike) -> Document:
    document = Document.of(document)
    if document.is_empty:
        raise ExtractionError("the document is empty")
    return document
