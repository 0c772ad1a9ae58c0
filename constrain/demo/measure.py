"""How good the records of documents written by hand are."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from constrain.demo.handwritten import Handwritten, leaves
from constrain.evaluation.compare import Pair, compare

#: Keywords of strings that need not be as in the text.
_REWRITTEN = frozenset({"enum", "const", "format", "pattern"})


@dataclass(frozen=True)
class Share:
    """A part of a number of things."""

    part: int
    whole: int

    @classmethod
    def of(cls, flags: Iterable[bool]) -> Share:
        """Count the flags that are true."""
        values = list(flags)
        return cls(sum(values), len(values))

    def __str__(self) -> str:
        return f"{self.part / self.whole:.1%} of {self.whole:,}" if self.whole else "none"


@dataclass(frozen=True)
class Measure:
    """Measure of a model on a set of documents.

    Attributes:
        records: documents with a record.
        values: leaves of gold that are right; values that only the answer has count as wrong.
        in_lists: those of them inside lists.
        absent: nulls and empty lists of gold that are so in the answer.
        free_outside: strings in the answer of any form that are not in the text, but for white space.
        quotes_outside: strings with ``x-verbatim`` that are not in the text.
    """

    records: Share
    values: Share
    in_lists: Share
    absent: Share
    free_outside: Share
    quotes_outside: Share

    def __str__(self) -> str:
        names = {
            "documents with a record": self.records,
            "values right": self.values,
            "values inside lists right": self.in_lists,
            "absent values null": self.absent,
            "free strings outside of the text": self.free_outside,
            "quotes outside of the text": self.quotes_outside,
        }
        return "\n".join(f"{name}: {share}" for name, share in names.items())


def measure(answers: Iterable[tuple[Handwritten, Any | None]]) -> Measure:
    """Measure records, each beside its document; ``None`` for a document without one."""
    given = list(answers)
    pairs = [pair for document, record in given for pair in compare(record, document.record) if _counts(pair)]
    strings = [each for document, record in given if record is not None for each in _strings(document, record)]
    return Measure(
        records=Share.of(record is not None for _, record in given),
        values=Share.of(pair.is_right for pair in pairs),
        in_lists=Share.of(pair.is_right for pair in pairs if _is_in_list(pair)),
        absent=Share.of(pair.is_right for pair in pairs if pair.gold is None and pair.gold_path is not None),
        free_outside=Share.of(is_outside for is_quote, is_outside in strings if not is_quote),
        quotes_outside=Share.of(is_outside for is_quote, is_outside in strings if is_quote),
    )


def _counts(pair: Pair) -> bool:
    """Whether a pair is of a leaf of gold, or of a value: nulls that only the answer has do not count."""
    return pair.gold_path is not None or pair.found is not None


def _is_in_list(pair: Pair) -> bool:
    return "*" in pair.field.split("/")


def _strings(document: Handwritten, record: Any) -> Iterator[tuple[bool, bool]]:
    """Yield for each string that the text should have whether it is a quote, and whether the text lacks it."""
    text = " ".join(document.text.split())
    for value, schema in leaves(record, document.schema, document.schema):
        if isinstance(value, str) and not _REWRITTEN & schema.keys():
            is_quote = "x-verbatim" in schema
            yield is_quote, value not in document.text if is_quote else " ".join(value.split()) not in text
