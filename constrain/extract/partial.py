"""Partial records: what is known of a record while the model writes it."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, AsyncIterable, Callable, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import aclosing, closing
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Generic, TypeVar

from pydantic import ValidationError
from pydantic_core import from_json

from constrain.completion import Pending, PendingResult, PendingRounds, submitted
from constrain.documents import Document
from constrain.engine import CompiledGrammar
from constrain.extract.evidence import Quotation
from constrain.extract.extraction import Extraction, Span
from constrain.extract.partial_type import partial_validator
from constrain.extract.spans import locate
from constrain.extract.target import Target

T = TypeVar("T")

#: A text is read when it has grown by this part, so that reading all beginnings of a long record takes linear time.
PACE = 128
#: Characters of numbers. A number may go on, as long as nothing else follows.
_NUMBER = "0123456789.eE+-"


@dataclass(frozen=True)
class Partial(Generic[T]):
    """A partly written record. Its values are complete: there are no halves of strings.

    Attributes:
        value: the record as an instance of the requested type. Fields of models and dataclasses that are not known yet
            are ``None``, those of a ``TypedDict`` are missing. Lists end with the last item of which something is
            known. Validators of models and lists have not run. Equal to ``json`` for a dict schema.
        json: the record as parsed JSON, without the members that are not known yet.
        document: the document.
        quotations: the quotes of the record.
        known_spans: where they stand, if that is known.
    """

    value: T
    json: Any
    document: Document
    quotations: Sequence[Quotation] = ()
    known_spans: Mapping[str, Span] | None = None

    @cached_property
    def spans(self) -> Mapping[str, Span]:
        """Spans of the quotes in the document, see :class:`Extraction`; may change while more quotes are found."""
        return locate(self.quotations, self.document.text)[0] if self.known_spans is None else self.known_spans


class PartialReader(Generic[T]):
    """Reads the beginnings of a record.

    Attributes:
        grammar: what the model writes.
    """

    def __init__(self, target: Target[T], document: Document, grammar: CompiledGrammar) -> None:
        """
        Args:
            target: the target of the record.
            document: the document that the record is extracted from.
            grammar: what the model writes.
        """
        self._target, self._document = target, document
        self._validator = None if target.adapter is None else partial_validator(target.adapter)
        self.grammar, self._matcher = grammar, grammar.matcher()
        self._num_read = self._num_accepted = self._num_written = self._num_values = 0
        self._last: Any = ...

    def read(self, text: str) -> Partial[T] | None:
        """Return what is known of the record, or ``None`` if no value is complete that was not before.

        Of long records it may return several new values at once.

        Args:
            text: what the model has written, which begins with the texts of earlier calls.
        """
        text = text.rstrip("\ufffd")  # a character of which some bytes are still to come
        if len(text) - self._num_read < self._num_read // PACE:
            return None
        self._num_read = len(text)
        written = _complete_values(text)
        if written is None or _num_values(written) == self._num_written:
            return None
        self._num_written = _num_values(written)
        record, quotations = self._target.without_quotes(written, self._completed(text))
        if record is None or _num_values(record) == self._num_values:
            return None
        return self._made(record, quotations)

    def rest(self, extraction: Extraction[T]) -> Iterator[Partial[T]]:
        """Yield the whole record, if it has not been returned yet."""
        if extraction.json != self._last:
            yield Partial(extraction.value, extraction.json, self._document, known_spans=extraction.spans)

    def _completed(self, text: str) -> Any:
        """Return a whole record that begins with a text."""
        self._matcher.accept_bytes(text[self._num_accepted :].encode())
        self._num_accepted = len(text)
        return json.loads(text.encode() + self._matcher.completion())

    def _made(self, record: Any, quotations: list[Quotation]) -> Partial[T] | None:
        try:
            value = record if self._validator is None else self._validator.validate_json(json.dumps(record))
        except ValidationError:  # for example a union, of which too little is known to tell its alternatives apart
            return None
        except (Exception, SystemExit):  # validators are not ours, and may raise anything; the whole record tells it
            return None
        self._last, self._num_values = record, _num_values(record)
        return Partial(value, record, self._document, quotations)


def _complete_values(text: str) -> Any:
    """Parse the beginning of a JSON text, without the values that are not complete; ``None`` if there are none."""
    try:
        return from_json(text.rstrip(_NUMBER), allow_partial=True)
    except ValueError:
        return None


def _num_values(record: Any) -> int:
    """Count the values of a record that are neither objects nor lists."""
    if isinstance(record, dict):
        return sum(map(_num_values, record.values()))
    return sum(map(_num_values, record)) if isinstance(record, list) else 1


def _streamed(pending: PendingResult[Any]) -> Pending[Any] | None:
    """Return the request whose text is the record, or its first version."""
    return pending.streamed if isinstance(pending, PendingRounds) else pending if isinstance(pending, Pending) else None


class ExtractionStream(Iterable[Partial[T]], AsyncIterable[Partial[T]]):
    """The partial records of an extraction, for ``for`` and ``async for``; the last one is the whole record.

    Doubtful values become null, and lists with doubtful ends go on, in the last one only, if the extractor has a
    calibration with margins.

    A loop submits the request, and cancels it if it is left early. A document that does not fit in the context has no
    partial records, only the whole one.

    Attributes:
        extraction: the whole extraction, after the loop; ``None`` before.
    """

    def __init__(
        self,
        make_reader: Callable[[], PartialReader[T]],
        submit: Callable[[CompiledGrammar], PendingResult[Extraction[T]]],
    ) -> None:
        """
        Args:
            make_reader: compiles the grammar, and makes a reader of the record.
            submit: submits the request, given the grammar.
        """
        self.extraction: Extraction[T] | None = None
        self._make_reader, self._submit = make_reader, submit

    def __iter__(self) -> Generator[Partial[T], None, None]:
        reader = self._make_reader()
        pending = self._submit(reader.grammar)
        if streamed := _streamed(pending):
            with closing(streamed.pieces()) as pieces:
                for _ in pieces:
                    if partial := reader.read(streamed.text()):
                        yield partial
        self.extraction = pending.read() if isinstance(pending, Pending) else pending.result()
        yield from reader.rest(self.extraction)

    async def __aiter__(self) -> AsyncGenerator[Partial[T], None]:
        reader = await asyncio.to_thread(self._make_reader)
        pending = await submitted(lambda: self._submit(reader.grammar))
        if streamed := _streamed(pending):
            async with aclosing(streamed.apieces()) as pieces:
                async for _ in pieces:
                    if partial := reader.read(streamed.text()):
                        yield partial
        self.extraction = pending.read() if isinstance(pending, Pending) else await pending.aresult()
        for partial in reader.rest(self.extraction):
            yield partial
