"""From what a model wrote to an extraction."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Generic, TypeVar

from constrain.completion import Completion
from constrain.documents import Document
from constrain.engine import CompiledGrammar
from constrain.engine.pointers import pointer
from constrain.errors import ExtractionError
from constrain.extract.calibration import Calibration, value_kind
from constrain.extract.confidence import ConfidenceReader, LeafConfidence
from constrain.extract.doubt import with_nulls
from constrain.extract.extraction import Confidence, Extraction, Usage
from constrain.extract.spans import locate
from constrain.extract.target import Reading, Target

T = TypeVar("T")


@dataclass(frozen=True)
class RecordReader(Generic[T]):
    """Reads the record of a document.

    Attributes:
        target: the target of the record.
        document: the document.
        index: position of the document among many.
        max_new_tokens: maximum number of tokens of the record.
        grammar: the grammar that the model writes the record with.
        confidence: computes the confidence of values.
        calibration: makes probabilities the shares of right values, and doubtful values null; ``None``: as the model
            gives them.
        shows_confidence: whether the extraction has the confidence of values.
    """

    target: Target[T]
    document: Document
    index: int
    max_new_tokens: int
    grammar: CompiledGrammar
    confidence: ConfidenceReader
    calibration: Calibration | None
    shows_confidence: bool = True

    def read(self, written: Completion) -> Extraction[T]:
        """Return the extraction.

        Raises:
            ExtractionError: the record is not complete, or does not match the schema.
        """
        return self.extraction(written, self.leaves(written))

    def leaves(self, written: Completion) -> list[LeafConfidence]:
        """Return the confidence of the leaves of a record; nothing if it is not complete, or was not asked for."""
        return self.confidence.read(self.target, self.grammar, written) if written.complete else []

    def extraction(self, written: Completion, leaves: list[LeafConfidence]) -> Extraction[T]:
        """Return the extraction, given the confidence of its leaves; errors as for :meth:`read`."""
        record, text, leaves = self._decided(written, leaves)
        output_tokens = written.thinking_tokens + len(written.tokens)
        spans, occurrences = locate(record.quotations, self.document.text)
        shown = leaves if self.shows_confidence else []
        confidence = {leaf.pointer: self._calibrated(leaf, leaf.pointer in spans) for leaf in shown}
        return Extraction(
            record.value,
            record.json,
            text,
            written.tokens,
            written.finish_reason,
            self.index,
            self.document,
            spans,
            occurrences,
            confidence,
            usage=Usage(written.prompt_tokens, written.cached_tokens, output_tokens),
        )

    def _decided(
        self, written: Completion, leaves: list[LeafConfidence]
    ) -> tuple[Reading[T], str, list[LeafConfidence]]:
        """Return the record with its text and leaves: doubtful values are null, unless the schema refuses that."""
        margin = 0.0 if self.calibration is None else self.calibration.null_margin
        text, decided = with_nulls(written.text, leaves, margin or 0.0)
        if text != written.text:
            try:
                return _without_evidence(self.target.read(text), leaves, decided), text, decided
            except ExtractionError:
                pass  # null is allowed in each of the places, but not beside the other values
        return self._record(written), written.text, leaves

    def _calibrated(self, leaf: LeafConfidence, has_span: bool) -> Confidence:
        if self.calibration is None:
            return leaf.confidence
        kind = value_kind(json.loads(leaf.text), leaf.confidence.alternatives, has_span)
        return self.calibration.calibrated(leaf.confidence, kind, leaf.text)

    def _record(self, written: Completion) -> Reading[T]:
        """Parse the record of a completion."""
        try:
            return self.target.read(written.text)
        except ExtractionError as error:
            reason = error.reason
            if not written.complete:
                reason = f"the record was not complete after {len(written.tokens)} tokens; "
                full = len(written.tokens) < self.max_new_tokens
                reason += "the context of the model is full" if full else "raise max_new_tokens"
            raise ExtractionError(reason, written.text, written.finish_reason) from error.__cause__


def _without_evidence(
    record: Reading[T], written: Sequence[LeafConfidence], decided: Sequence[LeafConfidence]
) -> Reading[T]:
    """Drop the quotes that are evidence of values that became null."""
    dropped = {before.pointer for before, after in zip(written, decided, strict=True) if after is not before}
    return replace(record, quotations=[each for each in record.quotations if pointer(each.path) not in dropped])
