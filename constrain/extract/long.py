"""Extraction from documents that are longer than the context of the model, in chunks."""

from __future__ import annotations

import json
from collections.abc import Collection, Sequence
from dataclasses import replace
from functools import cached_property, partial, reduce
from itertools import zip_longest
from operator import add
from typing import Any, Generic, Protocol, TypeVar

import torch

from constrain.completion import PendingResult, Rounds, fresh_filters, submit_all
from constrain.documents import Document, Part, part_of
from constrain.errors import ExtractionError, GrammarError
from constrain.extract.annotated import Node, annotated, notes
from constrain.extract.chunks import chunks
from constrain.extract.corrected import with_allowed_lists, with_allowed_values
from constrain.extract.extraction import Extraction, Usage
from constrain.extract.merge import merge
from constrain.extract.options import ExtractionOptions
from constrain.extract.relaxed import relaxed
from constrain.extract.target import Target

T = TypeVar("T")

#: Fewest tokens of a chunk.
MIN_CHUNK = 32
#: Most tokens that two chunks have in common; and the share of a chunk that they are at most.
MAX_OVERLAP, OVERLAP = 512, 4
#: Share of the room after instructions and examples that is kept free for the record, if it needs less than is allowed.
_RESERVED = 3
#: Number of characters of the sample.
_SAMPLE = 1000
#: How many times as long as its text a record can be, in tokens.
_MAX_RATIO = 4
#: How often the chunks whose records do not fit are divided again: the first time into those that should, then by half.
_DIVISIONS = 3


class Requests(Protocol):
    """The part of an extractor that long documents need."""

    @property
    def context(self) -> int:
        """Number of tokens in the context of the model."""

    def count_tokens(self, text: str) -> int:
        """Count the tokens of a text."""

    def encode_prompt(self, text: str, options: ExtractionOptions) -> torch.Tensor:
        """Encode the prompt for a text, as int64 of shape (1, n)."""

    def count_min_tokens(self, target: Target[Any], document: Document) -> int:
        """Count the tokens of the shortest record of a document."""

    def submit_whole(
        self,
        target: Target[T],
        document: Document,
        options: ExtractionOptions,
        index: int = 0,
        *,
        prompt: torch.Tensor | None = None,
    ) -> PendingResult[Extraction[T]]:
        """Submit a document as one request; ``prompt`` is what :meth:`encode_prompt` returns, if it was called."""


class LongExtraction(Generic[T]):
    """The extraction of a record from a document of any length.

    A document that fits in the context is one request. Any other is divided into chunks, whose records are merged. A
    chunk whose lists did not fit in ``max_new_tokens`` is divided again, and so is a document of which that is true.
    """

    def __init__(
        self, requests: Requests, target: Target[T], document: Document, options: ExtractionOptions, index: int = 0
    ) -> None:
        self._requests, self._target, self._document = requests, target, document
        self._options, self._index = options, index
        self._usage: list[Usage] = []
        #: The document as one piece, if it fits in the context.
        self._whole: Part | None = None

    def rounds(self) -> Rounds[Extraction[T]]:
        """Submit the requests, and return the record of the document."""
        pieces = self._pieces()
        found: dict[tuple[int, int], Extraction[Any]] = {}
        for division in range(_DIVISIONS + 1):
            missing = [piece for piece in pieces if _place(piece) not in found]
            results = yield submit_all([partial(self._submit, piece) for piece in missing])
            found |= {_place(piece): result for piece, result in zip(missing, results, strict=True)}
            self._usage += [result.usage for result in results]
            too_large = {_place(piece) for piece in pieces if self._is_too_large(piece, found[_place(piece)])}
            if not too_large or division == _DIVISIONS:
                break
            pieces = self._divided(pieces, too_large)
        extractions = [found[_place(piece)] for piece in pieces]
        if pieces[0] is self._whole:
            return extractions[0]
        record = yield from self._merged(pieces, extractions)
        return self._extraction(record, extractions)

    # Pieces

    @cached_property
    def prompt(self) -> torch.Tensor:
        """The prompt for the whole document."""
        return self._requests.encode_prompt(self._document.text, self._options)

    @property
    def fits(self) -> bool:
        """Whether the document and its record fit in the context together."""
        room = self._requests.context - self.prompt.shape[-1]
        return self._wanted <= room or self._reserved(self._target) <= room

    def _pieces(self) -> list[Part]:
        """Return the document in one piece, if it fits in the context, or else in chunks."""
        if self.fits:
            self._whole = part_of(self._document, 0, len(self._document.text))
            return [self._whole]
        return self._chunks(self._document, self._limit(self._part_target))

    def _is_too_large(self, piece: Part, extraction: Extraction[Any]) -> bool:
        """Whether the lists of a piece did not fit in its record, and would in those of smaller pieces."""
        if extraction.finish_reason != "length" or not _has_items(extraction.json):
            return False
        # A record that is many times as long as its text has a loop, which a part of the text will not end.
        return self._requests.count_tokens(piece.text) > max(2 * MIN_CHUNK, len(extraction.tokens) // _MAX_RATIO)

    def _divided(self, pieces: Sequence[Part], too_large: Collection[tuple[int, int]]) -> list[Part]:
        """Divide pieces that are too large, leaving out what their neighbours contain as well."""
        result: list[Part] = []
        for piece, after in zip_longest(pieces, pieces[1:]):
            if _place(piece) not in too_large:
                result.append(piece)
                continue
            limit = min(self._requests.count_tokens(piece.text) // 2, self._wanted)
            neighbours = [*result[-1:], *([after] if after else [])]
            smaller = self._chunks(piece, max(MIN_CHUNK, limit))
            result += [part for part in smaller if not any(_is_within(part, other) for other in neighbours)]
        return result

    def _chunks(self, document: Document, limit: int) -> list[Part]:
        overlap = min(limit // OVERLAP, MAX_OVERLAP)
        found = chunks(document, limit, overlap, self._requests.count_tokens)
        return [chunk for chunk in found if chunk.text.strip()]

    # Tokens

    def _limit(self, target: Target[Any]) -> int:
        """Return the most tokens of a part of the document that leave room for a record."""
        reserved = self._reserved(target)
        if self._room - reserved >= MIN_CHUNK:
            return self._room - reserved
        fewer = ", or give fewer examples" if self._options.task.examples else ""
        context = self._requests.context
        raise ExtractionError(
            f"the context of {context} tokens leaves no room for the document: the prompt takes {context - self._room} "
            f"without it, and a record {reserved} or more; load the model with a larger max_seq_len{fewer}"
        )

    @property
    def _wanted(self) -> int:
        """Most tokens of a record, thinking included."""
        return self._options.max_new_tokens + self._options.thinking

    @cached_property
    def _room(self) -> int:
        """Tokens that the prompt leaves for the document and its record."""
        return self._requests.context - self._requests.encode_prompt("", self._options).shape[-1]

    @cached_property
    def _sample(self) -> Document:
        """The beginning of the document, which stands for it where the shortest record is computed."""
        return part_of(self._document, 0, _SAMPLE)

    def _reserved(self, target: Target[Any]) -> int:
        """Return the tokens to keep free for a record."""
        shortest = self._requests.count_min_tokens(target, self._sample)
        return min(self._wanted, max(self._room // _RESERVED, shortest))

    # Requests

    @cached_property
    def _part_target(self) -> Target[Any]:
        """The target of parts of the document; the same where its relaxed schema cannot be compiled."""
        target: Target[Any] = Target(relaxed(self._target.schema), exact_schema=relaxed(self._target.exact_schema))
        try:
            self._requests.count_min_tokens(target, self._sample)
        except GrammarError:
            return self._target
        return target

    def _submit(self, piece: Part) -> PendingResult[Extraction[Any]]:
        if piece is self._whole:
            return self._requests.submit_whole(
                self._target, self._document, self._options, self._index, prompt=self.prompt
            )
        return self._submit_part(self._part_target, piece)

    def _submit_part(self, target: Target[Any], piece: Part) -> PendingResult[Extraction[Any]]:
        task = replace(self._options.task, schema=target.schema)
        options = replace(self._options, task=task, filters=fresh_filters(self._options.filters))
        return self._requests.submit_whole(target, piece, options)

    # The record

    def _merged(self, pieces: Sequence[Part], extractions: Sequence[Extraction[Any]]) -> Rounds[Node]:
        """Merge records. If the schema asks for values that none of them has, the first chunk has to give them."""
        numbered = enumerate(zip(pieces, extractions, strict=True))
        record = merge([annotated(found, number, piece.start) for number, (piece, found) in numbered], pieces)
        record = with_allowed_lists(record, self._target)
        if self._target.violations(record.json):
            first, *_ = self._chunks(pieces[0], self._limit(self._target))
            (strict,) = yield submit_all([partial(self._submit_part, self._target, first)])
            self._usage.append(strict.usage)
            record = with_allowed_values(record, annotated(strict, 0, first.start), self._target)
        return record

    def _extraction(self, record: Node, extractions: Sequence[Extraction[Any]]) -> Extraction[T]:
        start = self._document.start if isinstance(self._document, Part) else 0
        return Extraction(
            self._target.value_of(record.json),
            record.json,
            json.dumps(record.json, ensure_ascii=False),
            [token for each in extractions for token in each.tokens],
            next((each.finish_reason for each in extractions if each.finish_reason != "stop"), "stop"),
            self._index,
            self._document,
            usage=reduce(add, self._usage),
            **notes(record, start),
        )


def _place(piece: Part) -> tuple[int, int]:
    return piece.start, piece.end


def _is_within(part: Part, other: Part) -> bool:
    return other.start <= part.start and part.end <= other.end


def _has_items(record: Any) -> bool:
    """Whether a record has a list that is not empty."""
    if isinstance(record, dict):
        return any(map(_has_items, record.values()))
    return isinstance(record, list) and bool(record)
